import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import {
  createFrameDecoder,
  encodeFrame,
  FRAME_CHUNK_BYTES,
  type Frame,
  MAX_FRAME_BYTES,
  readFrames,
  splitFrame,
  writeFrame,
} from "./frames.ts";

const bytes = fc.uint8Array({ maxLength: 200 });
const offset = fc.nat({ max: Number.MAX_SAFE_INTEGER });
const u16 = fc.nat({ max: 0xffff });
const frames: fc.Arbitrary<Frame> = fc.oneof(
  fc.record({ type: fc.constantFrom("stdin", "stdout", "stderr"), bytes }),
  fc.record({ type: fc.constant("resize"), cols: u16, rows: u16 }),
  fc.record({ type: fc.constant("exit"), code: fc.integer(), reason: fc.string() }),
  fc.record({ type: fc.constant("exit"), code: fc.integer() }),
  fc.record({ type: fc.constant("error"), code: fc.string(), message: fc.string({ unit: "grapheme" }) }),
  fc.record({ type: fc.constant("stdin-eof") }),
  fc.record({ type: fc.constant("signal"), signal: fc.constantFrom("INT", "TERM") }),
  fc.record({ type: fc.constant("log"), offset, stream: fc.constantFrom("stdout", "stderr"), bytes }),
  fc.record({ type: fc.constant("log-gap"), offset, dropped: offset }),
  fc.record({ type: fc.constant("log-end"), offset, final: fc.boolean() }),
  fc.record({ type: fc.constant("window"), credit: fc.nat({ max: 0xffffffff }) }),
  fc.record({ type: fc.constant("open"), params: fc.dictionary(fc.string(), fc.string()) }),
);

/** Plain arrays and no undefined, so that Buffer and Uint8Array compare as equal. */
const plain = (list: readonly Frame[]) =>
  list.map((frame) =>
    JSON.parse(JSON.stringify("bytes" in frame ? { ...frame, bytes: [...frame.bytes] } : frame)),
  );

function cut(all: Uint8Array, sizes: readonly number[]): Uint8Array[] {
  const parts: Uint8Array[] = [];
  let at = 0;
  for (let i = 0; at < all.length; i++) {
    const size = sizes[i % sizes.length] ?? 1;
    parts.push(all.subarray(at, at + size));
    at += size;
  }
  return parts;
}

describe("frames", () => {
  test("any frames come back the same, wherever the bytes are split", () => {
    fc.assert(
      fc.property(
        fc.array(frames),
        fc.array(fc.integer({ min: 1, max: 50 }), { minLength: 1 }),
        (list, sizes) => {
          const decoder = createFrameDecoder();
          const parts = cut(Buffer.concat(list.map(encodeFrame)), sizes);
          const got = parts.flatMap((part) => decoder.push(part));
          expect(plain(got)).toEqual(plain(list));
          expect(decoder.pending()).toBe(0);
        },
      ),
    );
  });

  test("pushFirst gives the first frame and every byte after it", () => {
    fc.assert(
      fc.property(
        frames,
        bytes,
        fc.array(fc.integer({ min: 1, max: 9 }), { minLength: 1 }),
        (frame, tail, sizes) => {
          const decoder = createFrameDecoder();
          const parts = cut(Buffer.concat([encodeFrame(frame), tail]), sizes);
          let index = 0;
          let first: ReturnType<typeof decoder.pushFirst>;
          while (first === undefined) first = decoder.pushFirst(parts[index++] ?? new Uint8Array(0));
          expect(plain([first.frame])).toEqual(plain([frame]));
          expect([...Buffer.concat([first.rest, ...parts.slice(index)])]).toEqual([...tail]);
          expect(decoder.pending()).toBe(0);
        },
      ),
    );
  });

  test("long runs are split into chunks, log offsets moving with them", async () => {
    const long = new Uint8Array(FRAME_CHUNK_BYTES * 2 + 7).fill(3);
    const parts = [...splitFrame({ type: "log", offset: 100, stream: "stderr", bytes: long })];
    expect(parts.map((p) => p.type === "log" && [p.offset, p.bytes.length])).toEqual([
      [100, FRAME_CHUNK_BYTES],
      [100 + FRAME_CHUNK_BYTES, FRAME_CHUNK_BYTES],
      [100 + 2 * FRAME_CHUNK_BYTES, 7],
    ]);
    const written: Uint8Array[] = [];
    await writeFrame({ write: async (b) => void written.push(b) }, { type: "stdout", bytes: long });
    expect(written).toHaveLength(3);
  });

  test("a type from a newer version is skipped", () => {
    const unknown = encodeFrame({ type: "signal", signal: "x" });
    unknown[0] = 200;
    const decoder = createFrameDecoder();
    const got = decoder.push(Buffer.concat([unknown, encodeFrame({ type: "stdin-eof" })]));
    expect(got).toEqual([{ type: "stdin-eof" }]);
  });

  test.each([
    ["a length beyond the limit", Buffer.from([1, 0xff, 0xff, 0xff, 0xff])],
    ["JSON that is none", Buffer.from([4, 0, 0, 0, 1, 0x7b])],
    ["JSON of another form", Buffer.from([4, 0, 0, 0, 2, 0x7b, 0x7d])],
    ["a short resize", Buffer.from([3, 0, 0, 0, 1, 9])],
    ["a log of an unknown stream", Buffer.from([8, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 7])],
    ["an offset beyond what a number holds", Buffer.from([9, 0, 0, 0, 16, ...new Array(16).fill(255)])],
  ])("refuses %s", (_, input) => {
    expect(() => createFrameDecoder().push(input)).toThrow(expect.objectContaining({ code: "bad-frame" }));
  });

  test("refuses to write more than a frame can hold", () => {
    const params = "x".repeat(MAX_FRAME_BYTES);
    expect(() => encodeFrame({ type: "open", params })).toThrow(
      expect.objectContaining({ code: "bad-frame" }),
    );
  });

  test("readFrames tells a cut from an end", async () => {
    const all = encodeFrame({ type: "signal", signal: "TERM" });
    async function* source(upTo: number) {
      yield all.subarray(0, upTo);
    }
    const collect = async (upTo: number) => {
      const got: Frame[] = [];
      for await (const frame of readFrames(source(upTo))) got.push(frame);
      return got;
    };
    await expect(await collect(all.length)).toEqual([{ type: "signal", signal: "TERM" }]);
    await expect(collect(all.length - 1)).rejects.toMatchObject({ code: "bad-frame" });
  });
});
