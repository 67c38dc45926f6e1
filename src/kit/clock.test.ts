import { describe, expect, test } from "bun:test";
import { manualClock, systemClock } from "./clock.ts";

describe("manualClock", () => {
  test("runs timers in the order they fall due, and those they make", () => {
    const clock = manualClock();
    const seen: string[] = [];
    clock.after(30, () => seen.push(`c@${clock.mono()}`));
    clock.after(10, () => {
      seen.push(`a@${clock.mono()}`);
      clock.after(5, () => seen.push(`b@${clock.mono()}`));
    });
    clock.advance(20);
    expect(seen).toEqual(["a@10", "b@15"]);
    clock.advance(10);
    expect(seen).toEqual(["a@10", "b@15", "c@30"]);
  });

  test("a cancelled timer does not run, and every() repeats until then", () => {
    const clock = manualClock();
    let ticks = 0;
    clock.after(1, () => (ticks += 100))();
    const stop = clock.every(10, () => (ticks += 1));
    clock.advance(35);
    stop();
    clock.advance(100);
    expect(ticks).toBe(3);
  });

  test("a step of the wall clock leaves the monotonic one and its timers alone", () => {
    const clock = manualClock(1000);
    let rang = false;
    clock.after(10, () => (rang = true));
    clock.stepWall(5000);
    expect([clock.wall(), clock.mono(), rang]).toEqual([6000, 0, false]);
    clock.advance(10);
    expect([clock.wall(), clock.mono(), rang]).toEqual([6010, 10, true]);
  });

  test("sleep ends in time, or with the signal's reason", async () => {
    const clock = manualClock();
    const slept = clock.sleep(10);
    clock.advance(10);
    await slept;
    const abort = new AbortController();
    const broken = clock.sleep(10, abort.signal);
    abort.abort(new Error("enough"));
    await expect(broken).rejects.toThrow("enough");
    await expect(clock.sleep(10, abort.signal)).rejects.toThrow("enough");
  });
});

test("the system clock does not fire a far timer at once", async () => {
  let rang = false;
  const cancel = systemClock.after(2 ** 40, () => (rang = true));
  await systemClock.sleep(5);
  cancel();
  expect(rang).toBe(false);
});
