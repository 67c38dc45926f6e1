import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { createLogKeeper, type GapFrame, type LogFrame } from "./collect.ts";
import { createTail } from "./tail.ts";

const bytes = (text: string) => new TextEncoder().encode(text);
const textOf = (frames: readonly (LogFrame | GapFrame)[]) =>
  frames.map((f) => (f.type === "log" ? new TextDecoder().decode(f.bytes) : `[${f.dropped}]`)).join("");

function framesOf(parts: readonly string[]): LogFrame[] {
  let offset = 0;
  return parts.map((part) => {
    const frame: LogFrame = { type: "log", offset, stream: "stdout", bytes: bytes(part) };
    offset += frame.bytes.length;
    return frame;
  });
}

describe("keeping head and end of a log", () => {
  test("what fits is kept as it is", () => {
    const keeper = createLogKeeper({ totalBytes: 100, headBytes: 10 });
    const out = framesOf(["hello ", "beautiful ", "world"]).flatMap((frame) => keeper.put(frame));
    expect(textOf([...out, ...keeper.rest()])).toBe("hello beautiful world");
  });

  test("any output is its head, one gap, and its end, and every offset is right", () => {
    const parts = fc.array(fc.string({ unit: "grapheme-ascii", minLength: 1, maxLength: 12 }), {
      maxLength: 60,
    });
    fc.assert(
      fc.property(
        parts,
        fc.integer({ min: 0, max: 8 }),
        fc.integer({ min: 1, max: 20 }),
        (all, head, tail) => {
          const keeper = createLogKeeper({ totalBytes: head + tail, headBytes: head });
          const out = [...framesOf(all).flatMap((frame) => keeper.put(frame)), ...keeper.rest()];
          const whole = all.join("");
          const lost = whole.length - head - tail;
          const expected =
            lost <= 0 ? whole : `${whole.slice(0, head)}[${lost}]${whole.slice(whole.length - tail)}`;
          expect(textOf(out)).toBe(expected);
          let at = 0;
          for (const frame of out) {
            expect(frame.offset).toBe(at);
            at += frame.type === "log" ? frame.bytes.length : frame.dropped;
          }
          expect(at).toBe(whole.length);
        },
      ),
    );
  });

  test("a gap of the source stays and counts no bytes", () => {
    const keeper = createLogKeeper({ totalBytes: 20, headBytes: 10 });
    const gap: GapFrame = { type: "log-gap", offset: 0, dropped: 500 };
    const after: LogFrame = { type: "log", offset: 500, stream: "stderr", bytes: bytes("abc") };
    expect([...keeper.put(gap), ...keeper.put(after), ...keeper.rest()]).toEqual([gap, after]);
  });
});

describe("the last lines", () => {
  test("are the last N of the whole, wherever it is split", () => {
    const parts = fc.array(fc.string({ unit: fc.constantFrom("a", "b", "\n"), maxLength: 6 }), {
      maxLength: 30,
    });
    fc.assert(
      fc.property(parts, fc.integer({ min: 0, max: 6 }), (all, lines) => {
        const tail = createTail(lines);
        for (const frame of framesOf(all)) tail.put(frame);
        const whole = all.join("");
        const split = whole.split("\n");
        const open = split.pop() ?? "";
        const every = [...split.map((line) => `${line}\n`), ...(open === "" ? [] : [open])];
        expect(textOf(tail.frames())).toBe(lines === 0 ? "" : every.slice(-lines).join(""));
      }),
    );
  });
});
