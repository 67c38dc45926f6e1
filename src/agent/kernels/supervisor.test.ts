import { afterEach, beforeEach, describe, expect, test } from "bun:test";
import { existsSync, mkdirSync, readFileSync, rmdirSync, rmSync } from "node:fs";
import fc from "fast-check";
import { BerthError } from "../../kit/errors.ts";
import { KernelPhase, MainProcess } from "../../wire/generated/berth.ts";
import { keyOf } from "./record.ts";
import { createBench, specOf, until } from "./test-bench.ts";

let bench: ReturnType<typeof createBench>;
let agent: Awaited<ReturnType<typeof bench.boot>>;
beforeEach(async () => {
  bench = createBench();
  agent = await bench.boot();
});
afterEach(async () => {
  await agent.down();
  await bench.remove();
});

const spec = specOf(1);
const key = keyOf(spec);
const count = (call: string) => bench.engine.calls.filter((entry) => entry === call).length;
const phase = async (wanted: KernelPhase) =>
  until(`${key} is ${KernelPhase[wanted]}`, () => agent.now(key)?.phase === wanted);
const running = () =>
  phase(KernelPhase.RUNNING).then(() =>
    until("it runs", () => bench.engine.containers.get(key)?.state.kind === "running"),
  );
const startRunning = async () => {
  agent.supervisor.ensure(spec);
  await running();
};

describe("the life of a kernel", () => {
  test("it is made, runs, ends with its exit code and its whole output, and stays until it is forgotten", async () => {
    await startRunning();
    bench.engine.print(key, "hello\n");
    bench.engine.exit(key, 3);
    await phase(KernelPhase.EXITED);
    expect(agent.last(key)).toMatchObject({ exitCode: 3, logBytes: 6, endReason: "", stopRequested: false });
    expect(await agent.text(key)).toBe("hello\n");
    expect(bench.engine.containers.has(key)).toBe(true);
    agent.supervisor.forget(spec);
    await until("it is forgotten", () => agent.now(key) === undefined);
    expect(agent.last(key)).toMatchObject({ phase: KernelPhase.GONE, scratchPresent: false });
    expect(bench.engine.containers.size).toBe(0);
    expect(await agent.logs.list()).toEqual([]);
  });

  test("wanted twice is one container, started once", async () => {
    await startRunning();
    agent.supervisor.ensure(spec);
    await agent.supervisor.lookAtAll();
    expect(count(`create ${key}`)).toBe(1);
    expect(count(`start ${key}`)).toBe(1);
  });

  test("a missing image is pulled, with its progress told", async () => {
    agent.supervisor.ensure({ ...spec, image: "far/away", imageIsHost: false });
    await running();
    const pulling = agent.statuses.find(
      (status) => status.phase === KernelPhase.PULLING && status.pull?.totalBytes,
    );
    expect(pulling?.pull).toMatchObject({ reference: "far/away", doneBytes: 1, totalBytes: 2 });
    const phases = agent.statuses.map((status) => status.phase);
    expect(phases.indexOf(KernelPhase.CREATING)).toBeGreaterThan(phases.lastIndexOf(KernelPhase.PULLING));
  });

  test("an image that is here already is not pulled", async () => {
    agent.supervisor.ensure({ ...spec, image: "present", imageIsHost: false });
    await running();
    expect(agent.statuses.map((status) => status.phase)).not.toContain(KernelPhase.PULLING);
    expect(count("pull present")).toBe(0);
  });

  test("a pull that fails is told in the engine's words and leaves nothing", async () => {
    agent.supervisor.ensure({ ...spec, image: "absent/image", imageIsHost: false });
    await phase(KernelPhase.FAILED);
    expect(agent.last(key)?.failure).toEqual({
      code: "image-pull-failed",
      message: "The registry has no image absent/image.",
    });
    expect(bench.engine.containers.size).toBe(0);
  });

  test("a command that does not exist is exit code 127 of a batch, and a failure of an interactive session", async () => {
    const missing = new BerthError("command-not-found", "There is no command nope.");
    bench.engine.failNextStart(missing);
    agent.supervisor.ensure(spec);
    await phase(KernelPhase.EXITED);
    expect(agent.last(key)).toMatchObject({ exitCode: 127, failure: { code: "command-not-found" } });
    expect(await agent.text(key)).toBe("There is no command nope.\n");

    const interactive = specOf(2, { main: MainProcess.KEEP_ALIVE });
    bench.engine.failNextStart(missing);
    agent.supervisor.ensure(interactive);
    await until("it failed", () => agent.now(keyOf(interactive))?.phase === KernelPhase.FAILED);
  });

  test("its time is over by the steady clock: it is stopped and says so; a stepped wall clock changes nothing", async () => {
    agent.supervisor.ensure({ ...spec, timeoutMs: 60_000 });
    await running();
    await agent.supervisor.lookAtAll();
    await until("the time limit is armed", () => agent.supervisor.running().length === 1);
    bench.clock.stepWall(3_600_000);
    bench.clock.advance(59_000);
    await agent.supervisor.lookAtAll();
    expect(agent.now(key)?.phase).toBe(KernelPhase.RUNNING);
    await until(
      "it is over",
      () => agent.now(key)?.phase === KernelPhase.EXITED,
      () => bench.clock.advance(100),
    );
    expect(agent.last(key)).toMatchObject({ timedOut: true, exitCode: 143 });
  });

  test("a container removed by hand is noticed", async () => {
    await startRunning();
    bench.engine.print(key, "so far\n");
    await agent.supervisor.lookAtAll();
    bench.engine.vanish(key);
    await phase(KernelPhase.GONE);
    expect(agent.last(key)).toMatchObject({ endReason: "container-removed", scratchPresent: false });
    agent.supervisor.ensure(spec);
    await agent.supervisor.lookAtAll();
    expect(count(`create ${key}`)).toBe(1);
  });

  test("an id that is no id is refused before it names a folder", () => {
    expect(() => agent.supervisor.ensure({ ...spec, kernelId: "../../etc" })).toThrow("not a kernel's id");
    expect(() => agent.supervisor.forget({ kernelId: "..", generation: 1 })).toThrow("not a kernel's id");
  });
});

test("a container killed and removed in one go counts as removed by hand", async () => {
  await startRunning();
  await agent.supervisor.lookAtAll();
  bench.engine.exit(key, 137);
  await until("the kill was seen", () => agent.supervisor.running().length === 0);
  bench.engine.vanish(key);
  await until(
    "it is gone",
    () => agent.now(key)?.phase === KernelPhase.GONE,
    () => bench.clock.advance(100),
  );
  expect(agent.last(key)).toMatchObject({ endReason: "container-removed", exitCode: 137 });
});

describe("stopping", () => {
  const stop = (graceMs = 10_000, force = false) => agent.supervisor.stop({ ref: spec, graceMs, force });

  test("a running kernel is ended with its grace and stays for its log", async () => {
    await startRunning();
    stop(7000);
    await phase(KernelPhase.EXITED);
    expect(count(`stop ${key} 7000`)).toBe(1);
    expect(agent.last(key)).toMatchObject({ stopRequested: true, exitCode: 143 });
    expect(bench.engine.containers.has(key)).toBe(true);
  });

  test("during a create it is cut off; the tombstone keeps a later wish from starting it", async () => {
    const gate = bench.engine.hold();
    agent.supervisor.ensure(spec);
    await phase(KernelPhase.CREATING);
    stop();
    await phase(KernelPhase.GONE);
    gate.release();
    agent.supervisor.ensure(spec);
    await agent.supervisor.lookAtAll();
    expect(bench.engine.calls.filter((call) => call.startsWith("start"))).toEqual([]);
    expect(agent.last(key)).toMatchObject({ phase: KernelPhase.GONE, stopRequested: true });
    agent.supervisor.forget(spec);
    await until("the tombstone is gone", () => agent.now(key) === undefined);
  });

  test("during a pull it is cut off and the pull ends when nobody else wants it", async () => {
    const gate = bench.engine.hold();
    agent.supervisor.ensure({ ...spec, image: "far/away", imageIsHost: false });
    await phase(KernelPhase.PULLING);
    stop();
    await phase(KernelPhase.GONE);
    gate.release();
    await agent.supervisor.lookAtAll();
    expect(bench.engine.pulled.has("far/away")).toBe(false);
  });

  test("before anything was known of it, it leaves a tombstone that outlives the agent", async () => {
    stop();
    await phase(KernelPhase.GONE);
    await agent.down();
    agent = await bench.boot();
    agent.supervisor.ensure(spec);
    await agent.supervisor.adopted;
    await agent.supervisor.lookAtAll();
    expect(bench.engine.calls).toEqual([]);
  });

  test("after the end it changes nothing that was told", async () => {
    await startRunning();
    bench.engine.exit(key, 0);
    await phase(KernelPhase.EXITED);
    stop();
    expect(agent.last(key)).toMatchObject({ phase: KernelPhase.EXITED, stopRequested: false, exitCode: 0 });
  });
});

describe("an agent that comes back", () => {
  test("finds its container, its output without a gap or a line twice, and its exit code", async () => {
    await startRunning();
    bench.engine.print(key, "one\n");
    await until("one is stored", () => (agent.now(key)?.logBytes ?? 0) === 4);
    await agent.down(true);
    bench.engine.print(key, "two\n");
    agent = await bench.boot();
    await running();
    bench.engine.print(key, "three\n");
    await until("three is stored", () => (agent.now(key)?.logBytes ?? 0) === 14);
    bench.engine.exit(key, 5);
    await phase(KernelPhase.EXITED);
    expect(await agent.text(key)).toBe("one\ntwo\nthree\n");
    expect(agent.last(key)?.exitCode).toBe(5);
    expect(count(`start ${key}`)).toBe(1);
  });

  test("has the last words too when the engine ends the following of its log before them", async () => {
    await startRunning();
    bench.engine.print(key, "one\n");
    await until("one is stored", () => (agent.now(key)?.logBytes ?? 0) === 4);
    await agent.down(true);
    bench.engine.cutFollowing();
    agent = await bench.boot();
    bench.engine.print(key, "two\n");
    await until("two is stored", () => (agent.now(key)?.logBytes ?? 0) === 8);
    bench.engine.print(key, "last words\n");
    bench.engine.exit(key, 0);
    await phase(KernelPhase.EXITED);
    expect(await agent.text(key)).toBe("one\ntwo\nlast words\n");
    expect(agent.last(key)?.logBytes).toBe(19);
  });

  test("learns how a batch ended meanwhile, with the rest of its output", async () => {
    await startRunning();
    await agent.down(true);
    bench.engine.print(key, "last words\n");
    bench.engine.exit(key, 9);
    agent = await bench.boot();
    await phase(KernelPhase.EXITED);
    expect(agent.last(key)).toMatchObject({ exitCode: 9, logBytes: 11 });
    expect(await agent.text(key)).toBe("last words\n");
  });

  test("undoes what never ran, and makes it anew only when it is wanted again", async () => {
    const gate = bench.engine.hold();
    agent.supervisor.ensure(spec);
    await phase(KernelPhase.CREATING);
    await agent.down(true);
    gate.release();
    agent = await bench.boot();
    await agent.supervisor.adopted;
    expect(agent.now(key)).toBeUndefined();
    expect(bench.engine.containers.size).toBe(0);
    agent.supervisor.ensure(spec);
    await running();
    expect(count(`start ${key}`)).toBe(1);
  });

  test("reports a container that it has no record of, and touches it only on the manager's word", async () => {
    await startRunning();
    await agent.down();
    await Bun.$`rm -r ${bench.dir}/kernels`.quiet();
    agent = await bench.boot();
    await agent.supervisor.adopted;
    expect(agent.now(key)).toMatchObject({ phase: KernelPhase.RUNNING, epoch: 1 });
    expect(count(`remove ${key}`)).toBe(0);
    agent.supervisor.stop({ ref: spec, graceMs: 0, force: true });
    await phase(KernelPhase.EXITED);
    agent.supervisor.forget(spec);
    await until("it is gone", () => bench.engine.containers.size === 0);
  });

  test("after the node's reboot a killed kernel says node-restarted", async () => {
    await startRunning();
    await agent.down(true);
    bench.engine.exit(key, 137);
    bench.reboot();
    bench.clock.advance(60_000);
    agent = await bench.boot();
    await phase(KernelPhase.EXITED);
    expect(agent.last(key)?.endReason).toBe("node-restarted");
  });
});

describe("a disk that takes no record", () => {
  const path = () => `${bench.dir}/kernels/${key}/record.json`;
  /** A folder in its place keeps the record from being written, whoever runs the test. */
  const jam = () => {
    rmSync(path());
    mkdirSync(path());
  };
  const stored = () => JSON.parse(readFileSync(path(), "utf8"));

  test("keeps no kernel from ending, from being told, and from being saved when there is room", async () => {
    await startRunning();
    jam();
    bench.engine.exit(key, 3);
    await phase(KernelPhase.EXITED);
    expect(agent.last(key)?.exitCode).toBe(3);
    bench.clock.advance(5000);
    expect(agent.now(key)?.phase).toBe(KernelPhase.EXITED);
    rmdirSync(path());
    bench.clock.advance(5000);
    expect(stored()).toMatchObject({ startIntent: true, end: { exitCode: 3 } });
  });

  test("keeps no kernel from being stopped and forgotten", async () => {
    await startRunning();
    jam();
    agent.supervisor.stop({ ref: spec, graceMs: 0, force: true });
    await phase(KernelPhase.EXITED);
    expect(agent.last(key)).toMatchObject({ stopRequested: true, exitCode: 137 });
    agent.supervisor.forget(spec);
    await until("it is forgotten", () => agent.now(key) === undefined);
    expect(bench.engine.containers.size).toBe(0);
    bench.clock.advance(60_000);
    expect(existsSync(`${bench.dir}/kernels/${key}`)).toBe(false);
  });

  test("lets nothing be started that could be started twice", async () => {
    const gate = bench.engine.hold();
    agent.supervisor.ensure(spec);
    await phase(KernelPhase.CREATING);
    jam();
    gate.release();
    await until("it is made", () => bench.engine.containers.has(key));
    await agent.supervisor.lookAtAll();
    expect(count(`start ${key}`)).toBe(0);
    rmdirSync(path());
    await until(
      "it is started",
      () => count(`start ${key}`) === 1,
      () => bench.clock.advance(100),
    );
    expect(stored()).toMatchObject({ startIntent: true });
  });

  test("is tried once more when the agent ends", async () => {
    await startRunning();
    jam();
    bench.engine.exit(key, 3);
    await phase(KernelPhase.EXITED);
    rmdirSync(path());
    await agent.down();
    expect(stored()).toMatchObject({ end: { exitCode: 3 } });
    agent = await bench.boot();
  });
});

describe("an engine that goes away", () => {
  test("is waited for; what ran is followed on, what was wanted is made then", async () => {
    await startRunning();
    bench.engine.print(key, "before\n");
    bench.engine.setDown(true);
    bench.engine.print(key, "during\n");
    const other = specOf(2);
    agent.supervisor.ensure(other);
    await until("it noticed", () => agent.now(keyOf(other))?.phase !== KernelPhase.RUNNING);
    expect(agent.now(key)?.phase).toBe(KernelPhase.RUNNING);
    bench.engine.setDown(false);
    await until(
      "the other runs",
      () => bench.engine.containers.get(keyOf(other))?.state.kind === "running",
      () => bench.clock.advance(200),
    );
    bench.engine.exit(key, 0);
    await until(
      "it ended",
      () => agent.now(key)?.phase === KernelPhase.EXITED,
      () => bench.clock.advance(200),
    );
    expect(await agent.text(key)).toBe("before\nduring\n");
  });
});

test("whatever happens in whatever order: started at most once, never after a stop, removed only when forgotten", async () => {
  const event = fc.constantFrom(
    "ensure",
    "stop",
    "exit",
    "kill",
    "restart",
    "down",
    "up",
    "look",
    "tick",
    "forget",
  );
  await fc.assert(
    fc.asyncProperty(fc.array(event, { minLength: 1, maxLength: 14 }), async (events) => {
      const node = createBench();
      let process = await node.boot();
      let stopped = false;
      let forgotten = false;
      let startsAtStop = 0;
      const starts = () => node.engine.calls.filter((call) => call === `start ${key}`).length;
      try {
        for (const what of events) {
          if (what === "ensure" && !forgotten) process.supervisor.ensure(spec);
          if (what === "stop" && !forgotten) {
            process.supervisor.stop({ ref: spec, graceMs: 0, force: true });
            if (!stopped) startsAtStop = starts();
            stopped = true;
          }
          if (what === "exit") node.engine.exit(key, 1);
          if (what === "forget" && (stopped || process.now(key)?.phase === KernelPhase.EXITED)) {
            process.supervisor.forget(spec);
            forgotten = true;
          }
          if (what === "kill" || what === "restart") {
            await process.down(what === "kill");
            process = await node.boot();
          }
          if (what === "down") node.engine.setDown(true);
          if (what === "up") node.engine.setDown(false);
          if (what === "look") await process.supervisor.lookAtAll().catch(() => {});
          if (what === "tick") node.clock.advance(1000);
          for (let turn = 0; turn < 5; turn += 1) await new Promise((resolve) => setImmediate(resolve));
        }
        node.engine.setDown(false);
        const calm = () =>
          stopped || forgotten
            ? node.engine.containers.get(key)?.state.kind !== "running"
            : process.supervisor.hasAdopted();
        await until("it is calm", calm, () => node.clock.advance(500));
        expect(starts()).toBeLessThanOrEqual(1);
        // One start may have been under way when the stop came; calm says that it does not run any more.
        if (stopped && startsAtStop === 0 && !events.slice(0, events.indexOf("stop")).includes("ensure")) {
          expect(starts()).toBe(0);
        }
        if (!forgotten && starts() === 1) {
          const { calls } = node.engine;
          expect(calls.lastIndexOf(`remove ${key}`)).toBeLessThan(calls.indexOf(`start ${key}`));
        }
        // The wish is not on disk: the manager says it again to an agent that still reports the kernel.
        if (forgotten) process.supervisor.forget(spec);
        if (forgotten)
          await until(
            "nothing is left",
            () => node.engine.containers.size === 0,
            () => node.clock.advance(500),
          );
      } finally {
        node.engine.setDown(false);
        await process.down();
        await node.remove();
      }
    }),
    { numRuns: 60 },
  );
}, 60_000);
