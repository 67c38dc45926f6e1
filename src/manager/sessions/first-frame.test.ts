import { expect, test } from "bun:test";
import { manualClock } from "../../kit/clock.ts";
import type { Frame } from "../../kit/frames.ts";
import { firstFrame, OPEN_MS } from "./first-frame.ts";

const OPEN: Frame = { type: "open", params: { argv: ["true"] } };
const silent: AsyncIterator<Frame> = { next: () => new Promise(() => {}) };

async function* saying(...frames: readonly Frame[]): AsyncGenerator<Frame> {
  yield* frames;
}

test("a client that says nothing is refused after 15 s, not before", async () => {
  const clock = manualClock();
  let refusal: unknown;
  const waiting = firstFrame(silent, clock).catch((err: unknown) => {
    refusal = err;
  });
  clock.advance(OPEN_MS - 1);
  await Bun.sleep(0);
  expect(refusal).toBeUndefined();
  clock.advance(1);
  await waiting;
  expect(refusal).toMatchObject({ code: "request-stalled", message: expect.stringContaining("within 15 s") });
});

test("the first frame is handed on, the rest is left, and time no longer counts", async () => {
  const clock = manualClock();
  const frames = saying(OPEN, { type: "stdin-eof" });
  expect(await firstFrame(frames, clock)).toEqual(OPEN);
  clock.advance(OPEN_MS * 2);
  expect(await frames.next()).toEqual({ done: false, value: { type: "stdin-eof" } });
  expect(await firstFrame(frames, clock)).toBeUndefined();
});
