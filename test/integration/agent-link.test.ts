import { afterEach, beforeEach, describe, expect, setDefaultTimeout, test } from "bun:test";
import { cpSync, mkdtempSync, readFileSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type RunningAgent, startAgent } from "../../src/agent/agent.ts";
import { loadAgentConfig } from "../../src/agent/config.ts";
import { createFakeEngine, type FakeEngine } from "../../src/agent/kernels/fake-engine.ts";
import { keyOf } from "../../src/agent/kernels/record.ts";
import { type Clock, systemClock } from "../../src/kit/clock.ts";
import { createLogger } from "../../src/kit/log.ts";
import { KernelPhase } from "../../src/wire/generated/berth.ts";
import { createTestManager, eventually, readLog, type TestManager } from "./support/agent-bench.ts";
import { batchSpec } from "./support/engine.ts";

setDefaultTimeout(60_000);

let manager: TestManager;
let dir: string;
let engine: FakeEngine;
let words: string[];
const agents: RunningAgent[] = [];

beforeEach(async () => {
  manager = await createTestManager();
  dir = mkdtempSync(join(tmpdir(), "berth-link-"));
  engine = createFakeEngine({ now: Date.now });
  words = [];
});
afterEach(async () => {
  await Promise.all(agents.splice(0).map((agent) => agent.stop()));
  await manager.close();
  rmSync(dir, { recursive: true, force: true });
});

/** An agent on the engine in memory; needs no container engine. */
async function start(
  options: { dataDir?: string; token?: boolean | string; clock?: Clock } = {},
): Promise<RunningAgent> {
  const { dataDir = join(dir, "a"), token = true, clock = systemClock } = options;
  const argv = [
    "--manager",
    manager.url,
    "--data-dir",
    dataDir,
    ...(token === false ? [] : ["--token", token === true ? manager.token : token]),
  ];
  const log = createLogger({
    level: "info",
    name: "agent",
    stream: { write: (line) => words.push(line) },
  });
  const { value: config } = loadAgentConfig({ argv, env: {} });
  const agent = await startAgent({ config, clock, log, engine: () => engine });
  agents.push(agent);
  return agent;
}

describe("joining", () => {
  test("needs a token once; key and lease are kept for the owner alone", async () => {
    const agent = await start();
    await agent.ready;
    await agent.stop();
    for (const name of ["identity.json", "lease"]) {
      expect(statSync(join(dir, "a", name)).mode & 0o077).toBe(0);
    }
    const again = await start({ token: false });
    await again.ready;
    expect(again.agentId).toBe(agent.agentId);
  });

  test("without a token, says how to get one", async () => {
    await expect(start({ token: false })).rejects.toThrow("berth join-token create");
  });

  test("a damaged identity is not overwritten", async () => {
    await (await start()).stop();
    await Bun.write(join(dir, "a", "identity.json"), "{");
    await expect(start()).rejects.toThrow("is damaged");
    expect(readFileSync(join(dir, "a", "identity.json"), "utf8")).toBe("{");
  });
});

describe("the lease", () => {
  test("is new at each connect and stored before it is acknowledged", async () => {
    await (await start()).ready;
    const stored = () => readFileSync(join(dir, "a", "lease"), "utf8").split("\n")[0] ?? "";
    const first = stored();
    manager.cutLink();
    await eventually("it is back", () => manager.connects() === 2);
    await eventually("the next lease is stored", () => stored() !== first);
    expect(manager.hellos.map(({ lease }) => lease)).toEqual(["", first]);
  });

  test("a copy of the node is refused, says so, and touches nothing; the node itself goes on", async () => {
    const agent = await start();
    await agent.ready;
    await eventually("the lease is acknowledged", () =>
      manager.bodies.some(({ $case }) => $case === "leaseStored"),
    );
    cpSync(join(dir, "a"), join(dir, "b"), { recursive: true });
    manager.cutLink();
    await eventually("the node is back", () => manager.connects() === 2 && manager.report());
    const copy = await start({ dataDir: join(dir, "b"), token: false });
    await expect(copy.ready).rejects.toMatchObject({ code: "clone" });
    expect(copy.state()).toBe("refused");
    expect(words.some((line) => line.includes("Its containers run on"))).toBe(true);
    expect(agent.state()).toBe("connected");
  });
});

describe("a refusal", () => {
  const removed = { code: "removed", message: "This node was removed.", retry: false };

  test("for good ends the tries and leaves containers alone", async () => {
    const agent = await start();
    await agent.ready;
    const spec = batchSpec("run");
    await manager.ensure(spec);
    await manager.phase(spec, KernelPhase.RUNNING);
    manager.refuseWith(removed);
    await manager.expel(removed);
    await eventually("it is refused", () => agent.state() === "refused");
    expect(engine.containers.get(keyOf(spec))?.state.kind).toBe("running");
    const hellos = manager.hellos.length;
    manager.cutLink();
    await Bun.sleep(1500);
    expect(manager.hellos).toHaveLength(hellos);
  });

  test("that may pass is waited out", async () => {
    manager.refuseWith({ code: "version", message: "The agent is newer.", retry: true });
    const agent = await start();
    await eventually("it was refused", () => words.some((line) => line.includes("The agent is newer.")));
    expect(agent.state()).toBe("connecting");
  });
});

describe("a new join token", () => {
  const removed = { code: "removed", message: "This node was removed.", retry: false };
  const status = () => JSON.parse(readFileSync(join(dir, "a", "status.json"), "utf8"));

  test("brings a removed node back as a new one; what the old one left ends", async () => {
    const agent = await start();
    await agent.ready;
    const spec = batchSpec("run");
    await manager.ensure(spec);
    await manager.phase(spec, KernelPhase.RUNNING);
    await manager.expel(removed);
    await eventually("it is refused", () => agent.state() === "refused");
    expect(status()).toMatchObject({ state: "refused", message: removed.message });
    await agent.stop();
    const back = await start({ token: manager.newToken() });
    await back.ready;
    expect(back.agentId).not.toBe(agent.agentId);
    expect([...engine.containers]).toEqual([]);
    expect(manager.hellos.at(-1)?.lease).toBe("");
    expect(manager.report()?.kernels ?? []).toEqual([]);
    expect(status()).toMatchObject({ state: "connected", pid: String(process.pid) });
  });

  test("that was used before changes nothing: a restart with the same options is no new node", async () => {
    const agent = await start();
    await agent.ready;
    await agent.stop();
    const again = await start();
    await again.ready;
    expect([again.agentId, manager.joins()]).toEqual([agent.agentId, 1]);
  });

  test("is refused while sessions of a cluster run that did not remove the node", async () => {
    const agent = await start();
    await agent.ready;
    const spec = batchSpec("run");
    await manager.ensure(spec);
    await manager.phase(spec, KernelPhase.RUNNING);
    await agent.stop();
    await expect(start({ token: manager.newToken() })).rejects.toMatchObject({ code: "node-busy" });
    expect(status()).toMatchObject({ state: "failed" });
    expect(engine.containers.get(keyOf(spec))?.state.kind).toBe("running");
    await (await start({ token: false })).ready;
  });

  test("is what a removed node asks for after a restart without one", async () => {
    const agent = await start();
    await agent.ready;
    await manager.expel(removed);
    await eventually("it is refused", () => agent.state() === "refused");
    await agent.stop();
    words = [];
    manager.refuseWith(removed);
    await start({ token: false });
    await eventually("it says so", () => words.some((line) => line.includes("berth join-token create")));
  });
});

test("a certificate at two thirds of its life is renewed over the link", async () => {
  const before = await start();
  await before.ready;
  await before.stop();
  const identity = () => JSON.parse(readFileSync(join(dir, "a", "identity.json"), "utf8"));
  const old = identity();
  const days = 21 * 24 * 3_600_000;
  const later: Clock = { ...systemClock, wall: () => systemClock.wall() + days };
  const agent = await start({ token: false, clock: later });
  await agent.ready;
  await eventually("it is renewed", () => identity().certPem !== old.certPem);
  expect(identity().keyPem).not.toBe(old.keyPem);
  expect(identity().agentId).toBe(old.agentId);
  await agent.stop();
  await (await start({ token: false })).ready;
});

test("a clock that is wrong is told as the node's health", async () => {
  const wrong: Clock = { ...systemClock, wall: () => systemClock.wall() + 120_000 };
  await (await start({ clock: wrong })).ready;
  const item = await eventually("it is told", () =>
    manager.health()?.items.find(({ code }) => code === "clock-skew"),
  );
  expect(item.message).toContain("ahead of");
});

test("an engine that is away is told, and the report says that it is not the whole truth", async () => {
  await (await start()).ready;
  await eventually("the engine answers", () => manager.report()?.engineReachable === true);
  engine.setDown(true);
  await eventually("it is told", () =>
    manager.health()?.items.some(({ code }) => code === "engine-unreachable"),
  );
  await eventually("so does the report", () => manager.report()?.engineReachable === false);
  engine.setDown(false);
  await eventually("it is back", () => manager.report()?.engineReachable === true);
  await eventually(
    "health is clear",
    () => !manager.health()?.items.some(({ code }) => code === "engine-unreachable"),
  );
});

test("what happened while the manager was away is in the next full report", async () => {
  await (await start()).ready;
  const spec = batchSpec("run");
  await manager.ensure(spec);
  await manager.phase(spec, KernelPhase.RUNNING);
  manager.cutLink();
  engine.print(keyOf(spec), "words\n");
  engine.exit(keyOf(spec), 6);
  const status = await manager.phase(spec, KernelPhase.EXITED);
  expect(status.exitCode).toBe(6);
  expect((await readLog(manager, spec)).stdout).toBe("words\n");
});

test("many readers of one log, one of them slow, all get all of it", async () => {
  await (await start()).ready;
  const spec = batchSpec("run");
  await manager.ensure(spec);
  await manager.phase(spec, KernelPhase.RUNNING);
  const { kernelId, generation } = spec;
  const slow = await manager.open({
    $case: "logs",
    value: { kernelId, generation, offset: 0, follow: true },
  });
  const fast = [1, 2, 3].map(() => readLog(manager, spec, { follow: true }));
  for (let chunk = 0; chunk < 200; chunk += 1) engine.print(keyOf(spec), `${"x".repeat(65_535)}\n`);
  engine.exit(keyOf(spec), 0);
  for (const log of await Promise.all(fast)) {
    expect([log.stdout.length, log.gaps, log.final]).toEqual([200 * 65_536, 0, true]);
  }
  let bytes = 0;
  for await (const part of slow) bytes += part.length;
  expect(bytes).toBeGreaterThan(200 * 65_536);
});
