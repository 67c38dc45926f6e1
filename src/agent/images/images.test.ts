import { expect, test } from "bun:test";
import { manualClock } from "../../kit/clock.ts";
import { throttled } from "./images.ts";

test("progress is told at once, then at times, and where it stands still", () => {
  const clock = manualClock();
  const told: number[] = [];
  const progress = throttled<number>(clock, 500, (value) => told.push(value));
  for (const value of [1, 2, 3]) progress.tell(value);
  expect(told).toEqual([1]);
  clock.advance(500);
  expect(told).toEqual([1, 3]);
  clock.advance(10_000);
  progress.tell(4);
  expect(told).toEqual([1, 3, 4]);
});

test("nothing is told after the end", () => {
  const clock = manualClock();
  const told: number[] = [];
  const progress = throttled<number>(clock, 500, (value) => told.push(value));
  for (const value of [1, 2]) progress.tell(value);
  progress.stop();
  clock.advance(10_000);
  expect(told).toEqual([1]);
});
