import { afterEach, beforeEach, describe, expect, setDefaultTimeout, test } from "bun:test";
import { type Bench, type FakeAgent, GIB, KernelPhase, openBench, settle, until } from "./test-bench.ts";

// Whole clusters on machines that may be busy: a limit for what hangs.
setDefaultTimeout(60_000);

let bench: Bench;
beforeEach(async () => {
  bench = await openBench();
});
afterEach(() => bench.close());

async function running(agent: FakeAgent, name: string) {
  await bench.create({ name });
  const spec = await agent.ensured(name);
  agent.tell(spec, { phase: KernelPhase.RUNNING, startedAtMs: bench.clock.wall() });
  await bench.reaches(name, "RUNNING");
  return spec;
}

describe("a node that fails what it is given", () => {
  test("gets nothing new for half a minute, of any session, and the queue says why", async () => {
    const agent = await bench.addAgent();
    const batch = { type: "batch", command: ["true"], slots: { cpu: 3000, mem: GIB } };
    await bench.create({ ...batch, name: "first" });
    const spec = await agent.ensured("first");
    await bench.create({ ...batch, name: "second" });
    const failure = { code: "disk-full", message: "no space left on the device" };
    agent.tell(spec, { phase: KernelPhase.FAILED, failure });
    await bench.reaches("first", "PENDING");
    agent.tell(spec, { phase: KernelPhase.GONE });
    agent.kernels.delete(spec.kernelId);
    for (const name of ["first", "second"]) {
      await until(`${name} says why`, async () => {
        bench.clock.advance(30);
        const { statusReason, statusMessage } = await bench.show(name);
        return statusReason === "no-ready-node" && statusMessage?.includes("tried again soon");
      });
    }
    const asked = agent.commands("ensureKernel").length;
    bench.clock.advance(10_000);
    await settle();
    expect(agent.commands("ensureKernel").length).toBe(asked);
    for (const _ of [1, 2, 3]) {
      bench.clock.advance(10_000);
      agent.link.say({ $case: "heartbeat", value: { wallMs: bench.clock.wall() } });
      await settle();
    }
    await until("one is tried again", () => agent.commands("ensureKernel").length > asked);
  });
});

describe("a node that is removed by force", () => {
  const remove = () =>
    bench.call("agents.remove", { as: bench.root, params: { agent: "node-a" }, query: { force: "true" } });

  test("ends and deletes its containers before it is let go", async () => {
    const agent = await bench.addAgent();
    const spec = await running(agent, "tenant");
    const removed = remove();
    const { kernelId, generation } = spec;
    await until("it is told to forget it", () =>
      agent.commands("forgetKernel").some((forget) => forget.kernelId === kernelId),
    );
    expect(agent.commands("stopKernel")).toMatchObject([{ kernelId, generation, graceMs: 0, force: true }]);
    expect(agent.link.sent.map((body) => body.$case)).not.toContain("refused");
    agent.tell(spec, { phase: KernelPhase.GONE });
    await until("it is let go", () => {
      bench.clock.advance(10);
      return agent.link.sent.some((body) => body.$case === "refused");
    });
    bench.clock.advance(600);
    await removed;
  });

  test("is let go after a few seconds whatever it does, and at once when it is away", async () => {
    const agent = await bench.addAgent();
    await running(agent, "stuck");
    const from = bench.clock.mono();
    const removed = remove();
    await until("it is let go", async () => {
      bench.clock.advance(50);
      return agent.link.sent.some((body) => body.$case === "refused");
    });
    expect(bench.clock.mono() - from).toBeGreaterThanOrEqual(5_000);
    bench.clock.advance(600);
    await removed;
    const away = await bench.addAgent();
    await running(away, "away");
    away.link.cut();
    await settle();
    await remove();
    expect(await bench.show("away")).toMatchObject({ statusReason: "agent-removed" });
  });
});

test("a session that is stopped while its node is lost goes on saying so", async () => {
  const agent = await bench.addAgent();
  await running(agent, "lost");
  agent.link.cut();
  await settle();
  bench.clock.advance(41_000);
  await until("the session says so", async () => (await bench.show("lost")).statusReason === "agent-lost");
  const { statusMessage } = await bench.show("lost");
  await bench.call("sessions.terminate", { params: { session: "lost" } });
  expect(await bench.show("lost")).toMatchObject({
    status: "TERMINATING",
    statusReason: "agent-lost",
    statusMessage,
  });
  await agent.connect();
  await until("all is well", async () => (await bench.show("lost")).statusReason === null);
});
