import { expect, test } from "bun:test";
import { manualClock } from "./clock.ts";
import { silentLogger } from "./log.ts";
import { createShutdown } from "./shutdown.ts";

const settle = async () => {
  for (let i = 0; i < 20; i++) await Promise.resolve();
};

test("closes in reverse order, once, whatever one of them does", async () => {
  const shutdown = createShutdown({ clock: manualClock(), limitMs: 1000, log: silentLogger });
  const seen: string[] = [];
  shutdown.add("store", () => void seen.push("store"));
  shutdown.add("broken", async () => {
    throw new Error("no");
  });
  shutdown.add("server", async () => void seen.push("server"));
  await Promise.all([shutdown.run(), shutdown.run()]);
  expect(seen).toEqual(["server", "store"]);
});

test("one that hangs is left behind after its time", async () => {
  const clock = manualClock();
  const shutdown = createShutdown({ clock, limitMs: 1000, log: silentLogger });
  let closed = false;
  shutdown.add("store", () => {
    closed = true;
  });
  shutdown.add("hangs", () => new Promise(() => {}));
  const done = shutdown.run();
  await settle();
  expect(closed).toBe(false);
  clock.advance(1000);
  await done;
  expect(closed).toBe(true);
});
