import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { createDemuxer, jsonLines } from "./output.ts";

function frame(stream: number, payload: Uint8Array): Uint8Array {
  const bytes = new Uint8Array(8 + payload.length);
  bytes[0] = stream;
  new DataView(bytes.buffer).setUint32(4, payload.length);
  bytes.set(payload, 8);
  return bytes;
}

describe("createDemuxer", () => {
  test("gives each stream its bytes, however the frames are cut", () => {
    const frames = fc.array(
      fc.record({ stream: fc.constantFrom(1, 2), payload: fc.uint8Array({ maxLength: 40 }) }),
    );
    fc.assert(
      fc.property(frames, fc.array(fc.integer({ min: 1, max: 13 }), { minLength: 1 }), (sent, cuts) => {
        const wire = Buffer.concat(sent.map((f) => frame(f.stream, f.payload)));
        const demuxer = createDemuxer();
        const got: { 1: Uint8Array[]; 2: Uint8Array[] } = { 1: [], 2: [] };
        for (let at = 0, turn = 0; at < wire.length; turn += 1) {
          const size = cuts[turn % cuts.length] ?? 1;
          for (const c of demuxer.push(wire.subarray(at, at + size))) got[c.stream].push(c.bytes);
          at += size;
        }
        for (const stream of [1, 2] as const) {
          const expected = Buffer.concat(sent.filter((f) => f.stream === stream).map((f) => f.payload));
          expect(Buffer.concat(got[stream]).equals(expected)).toBe(true);
        }
      }),
    );
  });

  test("refuses what is no frame", () => {
    expect(() => createDemuxer().push(Buffer.from("plain text"))).toThrow(RangeError);
  });
});

test("jsonLines puts values together that arrive in pieces", async () => {
  async function* pieces() {
    yield Buffer.from('{"a":1}\n{"b":"\u00e9').subarray(0, 15);
    yield Buffer.from('{"a":1}\n{"b":"\u00e9').subarray(15);
    yield Buffer.from('"}\r\n\n{"c":3}');
  }
  const values: unknown[] = [];
  for await (const value of jsonLines(pieces())) values.push(value);
  expect(values).toEqual([{ a: 1 }, { b: "é" }, { c: 3 }]);
});
