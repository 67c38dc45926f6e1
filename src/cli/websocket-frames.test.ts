import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { createServerFrameReader, encodeClientFrame, OPCODE } from "./websocket-frames.ts";

/** A frame as a server sends it: not masked. */
function serverFrame(opcode: number, payload: Uint8Array, final = true): Uint8Array {
  const length = payload.length;
  const head =
    length < 126
      ? [length]
      : length < 65_536
        ? [126, length >> 8, length & 255]
        : [127, 0, 0, 0, 0, length >>> 24, (length >> 16) & 255, (length >> 8) & 255, length & 255];
  return Buffer.concat([new Uint8Array([(final ? 0x80 : 0) | opcode, ...head]), payload]);
}

function unmask(frame: Uint8Array): Uint8Array {
  const short = (frame[1] ?? 0) & 0x7f;
  const at = short < 126 ? 2 : short === 126 ? 4 : 10;
  return frame.subarray(at + 4).map((byte, index) => byte ^ (frame[at + (index & 3)] ?? 0));
}

describe("frames of a WebSocket", () => {
  test.each([0, 1, 125, 126, 65_535, 65_536, 70_000])(
    "a client's frame of %p bytes is masked and whole",
    (size) => {
      const payload = new Uint8Array(size).map((_, index) => index % 251);
      const frame = encodeClientFrame(OPCODE.binary, payload);
      expect(frame[0]).toBe(0x82);
      expect((frame[1] ?? 0) & 0x80).toBe(0x80);
      expect(Buffer.from(unmask(frame)).equals(Buffer.from(payload))).toBe(true);
    },
  );

  test("messages come out whole however the bytes are cut and fragmented", () => {
    const part = fc.uint8Array({ maxLength: 300 });
    const messages = fc.array(fc.array(part, { minLength: 1, maxLength: 3 }), { maxLength: 6 });
    fc.assert(
      fc.property(messages, fc.array(fc.nat(2000)), (all, cuts) => {
        const bytes = Buffer.concat(
          all.flatMap((parts) =>
            parts.flatMap((payload, index) => [
              serverFrame(
                index === 0 ? OPCODE.binary : OPCODE.continuation,
                payload,
                index === parts.length - 1,
              ),
              // A control frame may come between the parts of a message.
              serverFrame(OPCODE.ping, new Uint8Array([1])),
            ]),
          ),
        );
        const read = createServerFrameReader();
        const edges = [
          0,
          ...cuts.map((cut) => Math.min(cut, bytes.length)).sort((a, b) => a - b),
          bytes.length,
        ];
        const got = edges.flatMap((edge, index) => read(bytes.subarray(edges[index - 1] ?? 0, edge)));
        const data = got
          .filter(({ opcode }) => opcode === OPCODE.binary)
          .map(({ payload }) => Buffer.from(payload));
        expect(data).toEqual(all.map((parts) => Buffer.concat(parts)));
      }),
    );
  });

  test.each([
    ["a masked frame", new Uint8Array([0x82, 0x80, 0, 0, 0, 0])],
    ["an unknown extension", new Uint8Array([0xc2, 0])],
    ["a continuation of nothing", new Uint8Array([0x80, 0])],
    ["a frame too long", new Uint8Array([0x82, 127, 0, 0, 0, 1, 0, 0, 0, 0])],
  ])("%s is refused", (_, bytes) => {
    expect(() => createServerFrameReader()(bytes)).toThrow("not valid");
  });
});
