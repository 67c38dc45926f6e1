import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { manualClock } from "./clock.ts";
import { createWorkQueue, type WorkQueueOptions } from "./workqueue.ts";

const settle = async () => {
  for (let i = 0; i < 20; i++) await Promise.resolve();
};

function setUp(run: WorkQueueOptions<string>["run"], concurrency = 4) {
  const clock = manualClock();
  const queue = createWorkQueue<string>({ clock, run, concurrency, backoff: { firstMs: 100, maxMs: 1000 } });
  return { clock, queue };
}

/** A run that the test ends by hand. */
function gated() {
  const runs: { key: string; signal: AbortSignal; end: () => void; fail: () => void }[] = [];
  const run = (key: string, signal: AbortSignal) =>
    new Promise<void>((resolve, reject) => {
      runs.push({ key, signal, end: resolve, fail: () => reject(new Error("no")) });
    });
  return { runs, run };
}

describe("work queue", () => {
  test("never runs inside the caller", async () => {
    let ran = false;
    const { queue } = setUp(async () => {
      ran = true;
    });
    queue.add("a");
    expect([ran, queue.size()]).toEqual([false, 1]);
    await queue.idle();
    expect([ran, queue.size()]).toEqual([true, 0]);
  });

  test("merges what waits, and adds while running make exactly one more run", async () => {
    const { runs, run } = gated();
    const { queue } = setUp(run);
    for (let i = 0; i < 5; i++) queue.add("a");
    await settle();
    expect(runs).toHaveLength(1);
    for (let i = 0; i < 5; i++) queue.add("a");
    runs[0]?.end();
    await settle();
    expect(runs).toHaveLength(2);
    runs[1]?.end();
    await queue.idle();
    expect(runs).toHaveLength(2);
  });

  test("keeps to its concurrency, first come first served", async () => {
    const { runs, run } = gated();
    const { queue } = setUp(run, 2);
    for (const key of ["a", "b", "c", "d"]) queue.add(key);
    await settle();
    expect(runs.map((r) => r.key)).toEqual(["a", "b"]);
    runs[1]?.end();
    await settle();
    expect(runs.map((r) => r.key)).toEqual(["a", "b", "c"]);
  });

  test("waits longer after each failure of a key, and success resets it", async () => {
    const at: number[] = [];
    let failures = 5;
    const { clock, queue } = setUp(async () => {
      at.push(clock.mono());
      if (failures-- > 0) throw new Error("no");
    });
    queue.add("a");
    await settle();
    for (let t = 0; t < 3000; t += 100) {
      clock.advance(100);
      await settle();
    }
    expect(at).toEqual([0, 100, 300, 700, 1500, 2500]);
    failures = 1;
    queue.add("a");
    await settle();
    clock.advance(100);
    await settle();
    expect(at.slice(6)).toEqual([3000, 3100]);
  });

  test("an add runs a key at once that waits after a failure, and voids that wait", async () => {
    let count = 0;
    const { clock, queue } = setUp(async () => {
      if (count++ === 0) throw new Error("no");
    });
    queue.add("a");
    await settle();
    queue.add("a");
    await settle();
    expect(count).toBe(2);
    clock.advance(10_000);
    await settle();
    expect(count).toBe(2);
  });

  test("again runs the key once more after its time", async () => {
    let count = 0;
    const { clock, queue } = setUp(async () => (count++ === 0 ? { again: 50 } : undefined));
    queue.add("a");
    await settle();
    clock.advance(49);
    await settle();
    expect(count).toBe(1);
    clock.advance(1);
    await settle();
    expect(count).toBe(2);
  });

  test("of several addAfter the earliest counts, and a run before it does not void it", async () => {
    const at: number[] = [];
    const { clock, queue } = setUp(async () => void at.push(clock.mono()));
    queue.addAfter("a", 500);
    queue.addAfter("a", 200);
    queue.addAfter("a", 300);
    queue.add("a");
    await settle();
    for (let t = 0; t < 1000; t += 100) {
      clock.advance(100);
      await settle();
    }
    expect(at).toEqual([0, 200]);
  });

  test("close aborts what runs, forgets what waits and takes nothing more", async () => {
    const { runs, run } = gated();
    const { clock, queue } = setUp(run, 1);
    queue.add("a");
    queue.add("b");
    queue.addAfter("c", 10);
    await settle();
    let closed = false;
    const done = queue.close().then(() => (closed = true));
    await settle();
    expect([closed, runs[0]?.signal.aborted]).toEqual([false, true]);
    runs[0]?.fail();
    await done;
    queue.add("d");
    clock.advance(100_000);
    await settle();
    expect(runs.map((r) => r.key)).toEqual(["a"]);
  });

  test("a thrown non-promise is a failure like any other", async () => {
    let count = 0;
    const { clock, queue } = setUp(() => {
      count += 1;
      throw new Error("at once");
    });
    queue.add("a");
    await settle();
    clock.advance(100);
    await settle();
    expect(count).toBe(2);
  });
});

type Step = { kind: "add" | "after" | "end" | "fail" | "advance"; key: string; ms: number };
const step: fc.Arbitrary<Step> = fc.record({
  kind: fc.constantFrom("add", "after", "end", "fail", "advance"),
  key: fc.constantFrom("a", "b", "c"),
  ms: fc.integer({ min: 0, max: 500 }),
});

test("in any order of events: one worker a key, the concurrency kept, no wish lost", async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.array(step, { maxLength: 60 }),
      fc.integer({ min: 1, max: 3 }),
      async (steps, concurrency) => {
        const open = new Map<string, { end: () => void; fail: () => void }>();
        // Keys with a wish that no run has begun to serve since.
        const wished = new Set<string>();
        const faults: string[] = [];
        const { clock, queue } = setUp((key) => {
          // Noted, not thrown: the queue would take it for a failure of the work.
          if (open.has(key)) faults.push(`two workers on ${key}`);
          if (open.size >= concurrency) faults.push("too many at once");
          wished.delete(key);
          return new Promise<void>((end, reject) =>
            open.set(key, { end, fail: () => reject(new Error("no")) }),
          );
        }, concurrency);
        const finish = (key: string, how: "end" | "fail") => {
          const run = open.get(key);
          open.delete(key);
          run?.[how]();
          if (run !== undefined && how === "fail") wished.add(key);
        };
        for (const { kind, key, ms } of steps) {
          if (kind === "add" || kind === "after") wished.add(key);
          if (kind === "add") queue.add(key);
          if (kind === "after") queue.addAfter(key, ms);
          if (kind === "end" || kind === "fail") finish(key, kind);
          if (kind === "advance") clock.advance(ms);
          await settle();
        }
        for (let round = 0; round < 50; round++) {
          for (const key of [...open.keys()]) finish(key, "end");
          clock.advance(1000);
          await settle();
        }
        expect(faults).toEqual([]);
        expect([...wished]).toEqual([]);
        expect([open.size, queue.size()]).toEqual([0, 0]);
        await queue.close();
      },
    ),
    { numRuns: 200 },
  );
});
