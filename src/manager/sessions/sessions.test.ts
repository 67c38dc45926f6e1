import { afterEach, beforeEach, describe, expect, setDefaultTimeout, test } from "bun:test";
import { z } from "zod";
import { isBerthError } from "../../kit/errors.ts";
import {
  type Bench,
  type FakeAgent,
  GIB,
  KernelPhase,
  logOf,
  openBench,
  passTime,
  settle,
  until,
} from "./test-bench.ts";

// Whole clusters on machines that may be busy: a limit for what hangs.
setDefaultTimeout(60_000);

let bench: Bench;
beforeEach(async () => {
  bench = await openBench();
});
afterEach(() => bench.close());

const batch = (name: string, more: Record<string, unknown> = {}) => ({
  type: "batch",
  name,
  command: ["true"],
  slots: { cpu: 1000, mem: GIB },
  ...more,
});

async function refusal(work: Promise<unknown>) {
  const error = await work.then(
    () => undefined,
    (err: unknown) => err,
  );
  if (!isBerthError(error)) throw new Error(`not refused: ${String(error)}`);
  return { code: error.code, faults: error.faults?.map((fault) => fault.code), text: error.message };
}

/** Runs a queued session to its end on a fake node. */
async function runThrough(
  agent: FakeAgent,
  name: string,
  exitCode: number,
  output = "hello\n",
): Promise<void> {
  const spec = await agent.ensured(name);
  const at = bench.clock.wall();
  agent.tell(spec, { phase: KernelPhase.RUNNING, startedAtMs: at, containerId: "c1" });
  await bench.reaches(name, "RUNNING");
  agent.logs.set(spec.kernelId, logOf(output));
  agent.tell(spec, { phase: KernelPhase.EXITED, endedAtMs: at + 5, exitCode, logBytes: output.length });
}

async function release(agent: FakeAgent, name: string): Promise<void> {
  const spec = await agent.ensured(name);
  await until("the kernel may be forgotten", () =>
    agent.commands("forgetKernel").some((forget) => forget.kernelId === spec.kernelId),
  );
  agent.tell(spec, { phase: KernelPhase.GONE });
  agent.kernels.delete(spec.kernelId);
}

describe("the life of a session", () => {
  test("from the queue to its exit code, with its output, its history and its room given back", async () => {
    const agent = await bench.addAgent();
    await bench.create(batch("life"));
    await runThrough(agent, "life", 3);
    const ended = await bench.reaches("life", "TERMINATED");
    expect(ended).toMatchObject({
      exitCode: 3,
      result: "FAILURE",
      statusReason: "task-failed",
      agent: "node-a",
    });
    expect(await bench.statuses("life")).toEqual(["PENDING", "SCHEDULED", "RUNNING", "TERMINATED"]);
    expect(await bench.logText("life")).toBe("hello\n");
    expect((await bench.node("node-a")).used.cpu).toBe(1000);
    await release(agent, "life");
    await until("its room is free", async () => (await bench.node("node-a")).used.cpu === 0);
    expect((await bench.history("life")).map((entry) => entry.actor)).toEqual([
      "alice@lab",
      "scheduler",
      "agent:node-a",
      "agent:node-a",
    ]);
  });

  test("the same report again, and a late one, change nothing", async () => {
    const agent = await bench.addAgent();
    await bench.create(batch("again"));
    await runThrough(agent, "again", 0);
    await bench.reaches("again", "TERMINATED");
    const before = await bench.history("again");
    const spec = await agent.ensured("again");
    agent.report();
    agent.report();
    agent.link.say({
      $case: "kernelStatus",
      value: { ...(agent.kernels.get(spec.kernelId) ?? never()), phase: KernelPhase.RUNNING, exitCode: 0 },
    });
    await settle();
    expect(await bench.history("again")).toEqual(before);
    expect((await bench.show("again")).exitCode).toBe(0);
  });

  test("an end that was seen only as an end passes RUNNING in its history", async () => {
    const agent = await bench.addAgent();
    await bench.create(batch("quick"));
    const spec = await agent.ensured("quick");
    agent.logs.set(spec.kernelId, logOf("x"));
    const at = bench.clock.wall();
    agent.tell(spec, { phase: KernelPhase.EXITED, startedAtMs: at, endedAtMs: at + 1, exitCode: 0 });
    await bench.reaches("quick", "TERMINATED");
    expect(await bench.statuses("quick")).toEqual(["PENDING", "SCHEDULED", "RUNNING", "TERMINATED"]);
  });

  test("an image that cannot be pulled is told in words, and nothing stays", async () => {
    const agent = await bench.addAgent();
    await bench.create(batch("nopull"));
    const spec = await agent.ensured("nopull");
    agent.tell(spec, { phase: KernelPhase.PULLING });
    await bench.reaches("nopull", "PULLING");
    const failure = { code: "image-pull-failed", message: "no such host" };
    agent.tell(spec, { phase: KernelPhase.FAILED, failure });
    const ended = await bench.reaches("nopull", "ERROR");
    expect(ended.statusReason).toBe("image-pull-failed");
    expect(ended.statusMessage).toContain("no such host");
    expect(ended.exitCode).toBeNull();
    await release(agent, "nopull");
    await until("its room is free", async () => (await bench.node("node-a")).used.cpu === 0);
  });

  test("memory that ran out is told in words with exit code 137", async () => {
    const agent = await bench.addAgent();
    await bench.create(batch("oom-kill"));
    const spec = await agent.ensured("oom-kill");
    agent.logs.set(spec.kernelId, logOf(""));
    const at = bench.clock.wall();
    const end = { startedAtMs: at, endedAtMs: at + 1, exitCode: 137, oomKilled: true };
    agent.tell(spec, { phase: KernelPhase.EXITED, ...end });
    const ended = await bench.reaches("oom-kill", "TERMINATED");
    expect(ended).toMatchObject({ exitCode: 137, statusReason: "out-of-memory" });
    expect(ended.statusMessage).toContain("1 GiB");
  });
});

function never(): never {
  throw new Error("the fake node does not have it");
}

describe("stopping", () => {
  test("what waits is cancelled at once", async () => {
    await bench.create(batch("wait"));
    await bench.call("sessions.terminate", { params: { session: "wait" } });
    expect(await bench.show("wait")).toMatchObject({ status: "CANCELLED", statusReason: "user-requested" });
  });

  test("what runs is stopped with grace, and again changes nothing", async () => {
    const agent = await bench.addAgent();
    await bench.create({ name: "inter", slots: { cpu: 1000, mem: GIB } });
    const spec = await agent.ensured("inter");
    const at = bench.clock.wall();
    agent.tell(spec, { phase: KernelPhase.RUNNING, startedAtMs: at });
    await bench.reaches("inter", "RUNNING");
    await bench.call("sessions.terminate", { params: { session: "inter" } });
    await bench.call("sessions.terminate", { params: { session: "inter" } });
    const stops = await until("it is told to stop", () => {
      const sent = agent.commands("stopKernel");
      return sent.length > 0 && sent;
    });
    expect(stops[0]).toMatchObject({ kernelId: spec.kernelId, graceMs: 10_000, force: false });
    agent.logs.set(spec.kernelId, logOf("bye"));
    agent.tell(spec, { phase: KernelPhase.EXITED, endedAtMs: at + 1, exitCode: 143, stopRequested: true });
    expect(await bench.reaches("inter", "TERMINATED")).toMatchObject({
      exitCode: 137,
      statusReason: "user-requested",
    });
    expect(await bench.statuses("inter")).toEqual([
      "PENDING",
      "SCHEDULED",
      "RUNNING",
      "TERMINATING",
      "TERMINATED",
    ]);
  });

  test("force ends it at once; its room stays taken until its container is seen gone", async () => {
    const agent = await bench.addAgent();
    await bench.create({ name: "hard", slots: { cpu: 4000, mem: GIB } });
    const spec = await agent.ensured("hard");
    agent.tell(spec, { phase: KernelPhase.RUNNING, startedAtMs: bench.clock.wall() });
    await bench.reaches("hard", "RUNNING");
    agent.link.cut();
    await settle();
    await bench.call("sessions.terminate", { params: { session: "hard" }, query: { force: "true" } });
    expect(await bench.show("hard")).toMatchObject({
      status: "TERMINATED",
      statusReason: "force-terminated",
    });
    expect((await bench.node("node-a")).used.cpu).toBe(4000);
    // Its name is free, its room is not.
    await bench.create({ name: "hard", slots: { cpu: 4000, mem: GIB } });
    await agent.connect();
    await until("it is stopped by force", () => agent.commands("stopKernel").some((stop) => stop.force));
    bench.clock.advance(50);
    await settle();
    expect((await bench.show("hard")).status).toBe("PENDING");
    agent.logs.set(spec.kernelId, logOf("x"));
    agent.tell(spec, { phase: KernelPhase.EXITED, endedAtMs: bench.clock.wall(), stopRequested: true });
    await until("it may be forgotten", () => agent.commands("forgetKernel").length > 0);
    agent.tell(spec, { phase: KernelPhase.GONE });
    await until("the next one starts", async () => {
      bench.clock.advance(50);
      return (await bench.show("hard")).status === "SCHEDULED";
    });
  });

  test("force before the node has said anything still clears the node", async () => {
    const agent = await bench.addAgent();
    await bench.create({ name: "early" });
    const spec = await agent.ensured("early");
    await bench.call("sessions.terminate", { params: { session: "early" }, query: { force: "true" } });
    expect((await bench.show("early")).status).toBe("CANCELLED");
    expect((await bench.node("node-a")).used.cpu).toBe(1000);
    await until("it is stopped", () => agent.commands("stopKernel").some((stop) => stop.force));
    agent.tell(spec, { phase: KernelPhase.GONE, stopRequested: true });
    await until("its room is free", async () => (await bench.node("node-a")).used.cpu === 0);
    await until("it may be forgotten", () => agent.commands("forgetKernel").length > 0);
  });

  test("a stop that its node never carries out is over at its deadline, in words", async () => {
    const agent = await bench.addAgent();
    await bench.create({ name: "stuck" });
    const spec = await agent.ensured("stuck");
    agent.tell(spec, { phase: KernelPhase.RUNNING, startedAtMs: bench.clock.wall() });
    await bench.reaches("stuck", "RUNNING");
    await bench.call("sessions.terminate", { params: { session: "stuck" } });
    await until("it is told to stop", () => agent.commands("stopKernel").length > 0);
    await settle();
    await passTime(bench, agent, "it ends", async () => (await bench.show("stuck")).status === "TERMINATED");
    const ended = await bench.reaches("stuck", "TERMINATED");
    expect(ended.statusReason).toBe("terminating-timeout");
    expect((await bench.node("node-a")).used.cpu).toBe(1000);
    expect(agent.commands("stopKernel").some((stop) => stop.force)).toBe(true);
  });
});

describe("deadlines", () => {
  test("a phase that lasts too long is given up, naming the phase", async () => {
    const agent = await bench.addAgent();
    await bench.create(batch("slow"));
    const spec = await agent.ensured("slow");
    agent.tell(spec, { phase: KernelPhase.CREATING });
    await bench.reaches("slow", "CREATING");
    await settle();
    await passTime(bench, agent, "it is told to stop", async () => agent.commands("stopKernel").length > 0);
    agent.tell(spec, { phase: KernelPhase.GONE, stopRequested: true });
    expect(await bench.reaches("slow", "ERROR")).toMatchObject({ statusReason: "creating-timeout" });
  });

  test("a step of the wall clock ends nothing", async () => {
    const agent = await bench.addAgent();
    await bench.create(batch("step"));
    const spec = await agent.ensured("step");
    agent.tell(spec, { phase: KernelPhase.CREATING });
    await bench.reaches("step", "CREATING");
    bench.clock.stepWall(24 * 3_600_000);
    bench.clock.advance(20_000);
    agent.report();
    await settle();
    expect((await bench.show("step")).status).toBe("CREATING");
  });
});

describe("nodes that go away", () => {
  test("a lost node leaves its sessions as they are, and they are whole when it is back", async () => {
    const agent = await bench.addAgent();
    await bench.create({ name: "lost" });
    const spec = await agent.ensured("lost");
    agent.tell(spec, { phase: KernelPhase.RUNNING, startedAtMs: bench.clock.wall() });
    await bench.reaches("lost", "RUNNING");
    agent.link.cut();
    await settle();
    bench.clock.advance(41_000);
    await until("the node is lost", async () => (await bench.node("node-a")).status === "LOST");
    await until("the session says so", async () => (await bench.show("lost")).statusReason === "agent-lost");
    expect((await bench.show("lost")).status).toBe("RUNNING");
    expect((await bench.node("node-a")).health.map((item) => item.code)).toContain("agent-lost");
    await agent.connect();
    await until("all is well", async () => (await bench.show("lost")).statusReason === null);
    expect((await bench.node("node-a")).status).toBe("ALIVE");
    expect(await bench.statuses("lost")).toEqual(["PENDING", "SCHEDULED", "RUNNING"]);
  });

  test("what ended while manager and node were apart arrives with exit code and output", async () => {
    const agent = await bench.addAgent();
    await bench.create(batch("apart"));
    const spec = await agent.ensured("apart");
    const at = bench.clock.wall();
    agent.tell(spec, { phase: KernelPhase.RUNNING, startedAtMs: at });
    await bench.reaches("apart", "RUNNING");
    await bench.restart();
    const was = agent.kernels.get(spec.kernelId) ?? never();
    const end = { phase: KernelPhase.EXITED, endedAtMs: at + 9, exitCode: 7 };
    agent.kernels.set(spec.kernelId, { ...was, ...end });
    agent.logs.set(spec.kernelId, logOf("meanwhile\n"));
    await agent.connect();
    expect(await bench.reaches("apart", "TERMINATED")).toMatchObject({ exitCode: 7 });
    expect(await bench.logText("apart")).toBe("meanwhile\n");
    expect(agent.commands("ensureKernel")).toEqual([]);
  });

  test("nothing is placed on a node before its first report is reconciled", async () => {
    const agent = await bench.addAgent();
    await bench.restart();
    await bench.create(batch("early"));
    bench.clock.advance(11_000);
    await settle();
    expect(await bench.show("early")).toMatchObject({ status: "PENDING", queuePosition: 1 });
    await agent.connect();
    await agent.ensured("early");
  });

  test("a container that ran and is missing from two full reports was removed by hand", async () => {
    const agent = await bench.addAgent();
    await bench.create(batch("taken"));
    const spec = await agent.ensured("taken");
    agent.tell(spec, { phase: KernelPhase.RUNNING, startedAtMs: bench.clock.wall() });
    await bench.reaches("taken", "RUNNING");
    agent.kernels.delete(spec.kernelId);
    agent.report();
    await until("a report is asked for", () => agent.commands("requestReport").length > 0);
    expect((await bench.show("taken")).status).toBe("RUNNING");
    agent.report();
    expect(await bench.reaches("taken", "ERROR")).toMatchObject({ statusReason: "container-removed" });
    await until("its room is free", async () => (await bench.node("node-a")).used.cpu === 0);
  });

  test("a node without its engine takes nothing new, and what it does not tell of is not gone", async () => {
    const agent = await bench.addAgent();
    await bench.create({ name: "runs" });
    const spec = await agent.ensured("runs");
    agent.tell(spec, { phase: KernelPhase.RUNNING, startedAtMs: bench.clock.wall() });
    await bench.reaches("runs", "RUNNING");
    const was = agent.kernels.get(spec.kernelId) ?? never();
    agent.kernels.clear();
    agent.engineReachable = false;
    for (let count = 0; count < 3; count++) agent.report();
    await settle();
    await bench.create({ name: "later" });
    bench.clock.advance(100);
    await until("it says why", async () => (await bench.show("later")).statusReason === "no-ready-node");
    expect((await bench.show("runs")).status).toBe("RUNNING");
    agent.kernels.set(spec.kernelId, was);
    agent.engineReachable = true;
    agent.report();
    await agent.ensured("later");
  });

  test("what a node has lost before it ran is asked for again", async () => {
    const agent = await bench.addAgent();
    await bench.create(batch("anew"));
    const spec = await agent.ensured("anew");
    agent.tell(spec, { phase: KernelPhase.PREPARING });
    await bench.reaches("anew", "PREPARING");
    const before = agent.commands("ensureKernel").length;
    agent.kernels.clear();
    agent.report();
    await until("it is asked for again", () => agent.commands("ensureKernel").length > before);
  });

  test("a node's fault before the start sends the session elsewhere, as another generation", async () => {
    const first = await bench.addAgent({ hostname: "bad" });
    const second = await bench.addAgent({ hostname: "good", cpuMilli: 2000 });
    await bench.create(batch("retry", { slots: { cpu: 2000, mem: GIB } }));
    const spec = await first.ensured("retry");
    first.tell(spec, {
      phase: KernelPhase.FAILED,
      failure: { code: "engine-unreachable", message: "the engine does not answer" },
    });
    const again = await second.ensured("retry");
    expect(again).toMatchObject({ kernelId: spec.kernelId, generation: 2 });
    expect(first.commands("forgetKernel")).toEqual([{ kernelId: spec.kernelId, generation: 1 }]);
    expect(await bench.statuses("retry")).toEqual(["PENDING", "SCHEDULED", "PENDING", "SCHEDULED"]);
  });

  test("removal is refused while sessions live there, and ends them when forced", async () => {
    const agent = await bench.addAgent();
    await bench.create({ name: "tenant" });
    const spec = await agent.ensured("tenant");
    agent.tell(spec, { phase: KernelPhase.RUNNING, startedAtMs: bench.clock.wall() });
    await bench.reaches("tenant", "RUNNING");
    const remove = (force: string) =>
      bench.call("agents.remove", { as: bench.root, params: { agent: "node-a" }, query: { force } });
    expect((await refusal(remove("false"))).code).toBe("in-use");
    const removed = remove("true");
    await until("it is told to end it", () => agent.commands("forgetKernel").length > 0);
    agent.tell(spec, { phase: KernelPhase.GONE });
    await settle();
    bench.clock.advance(250);
    await settle();
    bench.clock.advance(600);
    await removed;
    expect(await bench.show("tenant")).toMatchObject({ status: "TERMINATED", statusReason: "agent-removed" });
    expect(agent.link.sent.at(-1)).toMatchObject({
      $case: "refused",
      value: { code: "removed", retry: false },
    });
    await agent.connect();
    expect(agent.link.sent.at(-1)).toMatchObject({ $case: "refused", value: { code: "removed" } });
  });
});

describe("leases", () => {
  test("the newest lease takes over the stream, a copy with an older one is refused", async () => {
    const agent = await bench.addAgent();
    const old = agent.lease;
    const before = agent.link;
    await agent.connect();
    expect((await before.closed).by).toBe("us");
    const current = agent.link;
    agent.lease = old;
    await agent.connect();
    expect(agent.link.sent).toMatchObject([{ $case: "refused", value: { code: "clone", retry: false } }]);
    expect((await bench.node("node-a")).ready).toBe(true);
    current.say({ $case: "heartbeat", value: { wallMs: bench.clock.wall() } });
    await settle();
    expect((await bench.node("node-a")).status).toBe("ALIVE");
  });
});

describe("the queue", () => {
  test("many at once on a node that fits four all end, in order, and leave nothing taken", async () => {
    const agent = await bench.addAgent();
    const total = 40;
    for (let at = 0; at < total; at++) await bench.create(batch(`many-${at}`));
    const done = new Set<string>();
    for (let round = 0; done.size < total; round++) {
      if (round > 200) throw new Error(`only ${done.size} of ${total} ended`);
      bench.clock.advance(100);
      await settle();
      const running = agent
        .commands("ensureKernel")
        .flatMap(({ spec }) => (spec === undefined ? [] : [spec]));
      expect((await bench.node("node-a")).used.cpu).toBeLessThanOrEqual(4000);
      for (const spec of running) {
        if (done.has(spec.sessionName)) continue;
        done.add(spec.sessionName);
        agent.logs.set(spec.kernelId, logOf(spec.sessionName));
        const at = bench.clock.wall();
        agent.tell(spec, { phase: KernelPhase.EXITED, startedAtMs: at, endedAtMs: at, exitCode: 0 });
        await bench.reaches(spec.sessionName, "TERMINATED");
        await release(agent, spec.sessionName);
      }
    }
    await until("nothing is taken", async () => (await bench.node("node-a")).used.cpu === 0);
    expect([...done]).toEqual(Array.from({ length: total }, (_, at) => `many-${at}`));
  });

  test("each waiting session knows its place and why, and what never fits is refused", async () => {
    const agent = await bench.addAgent();
    await bench.create(batch("front", { slots: { cpu: 4000, mem: GIB } }));
    await agent.ensured("front");
    await bench.create(batch("second"));
    await bench.create(batch("third"));
    bench.clock.advance(100);
    await until("they know", async () => (await bench.show("third")).queuePosition === 2);
    const second = await bench.show("second");
    expect(second).toMatchObject({ queuePosition: 1, statusReason: "no-room" });
    expect(second.statusMessage).toContain("node-a");
    const refused = await refusal(bench.create(batch("huge", { slots: { cpu: 64_000, mem: GIB } })));
    expect(refused).toMatchObject({ code: "admission-refused", faults: ["never-fits"] });
  });

  test("several are made all together or not at all", async () => {
    await bench.create(batch("trio-2"));
    const refused = await refusal(bench.create(batch("trio", { count: 3 })));
    expect(refused.code).toBe("session-name-in-use");
    const { items } = await bench.list();
    expect(items.map((item) => item.name)).toEqual(["trio-2"]);
    await bench.create(batch("solo", { count: 3 }));
    const after = await bench.list({ sort: "name" });
    expect(after.items.map((item) => item.name)).toEqual(["solo-1", "solo-2", "solo-3", "trio-2"]);
  });

  test("a group's pending timeout gives up what waited too long", async () => {
    await bench.call("groups.update", {
      as: bench.root,
      params: { group: "default" },
      body: { pendingTimeout: "1m" },
    });
    await bench.create(batch("patient"));
    bench.clock.advance(30_000);
    await settle();
    expect((await bench.show("patient")).status).toBe("PENDING");
    bench.clock.advance(31_000);
    const ended = await bench.reaches("patient", "CANCELLED");
    expect(ended.statusReason).toBe("pending-timeout");
  });
});

describe("who sees what", () => {
  test("others' sessions are not found, values of variables are their owner's alone", async () => {
    await bench.create({ name: "mine", environment: { SECRET: "s3cret" } });
    const bob = await bench.addUser("bob@lab", "user");
    expect((await refusal(bench.show("mine", bob))).code).toBe("session-not-found");
    expect((await bench.show("mine")).environment).toEqual({ SECRET: "s3cret" });
    expect((await bench.show("mine", bench.root)).environment).toEqual({ SECRET: null });
    const history = JSON.stringify(await bench.history("mine"));
    const events = JSON.stringify(await bench.events.after(0, {}, 1000));
    expect(history + events).not.toContain("s3cret");
  });

  test("one who sees a session but may not run things in it is told so", async () => {
    await bench.create({ name: "mine" });
    const admin = await bench.addUser("admin@lab", "admin");
    const bob = await bench.addUser("bob@lab", "user");
    const refused = (as: typeof bob) => refusal(bench.exec("mine", as));
    expect(await refused(admin)).toMatchObject({
      code: "not-permitted",
      text: "mine belongs to alice@lab: this needs the right session.exec-any, which your role does not have.",
    });
    expect((await refused(bob)).code).toBe("session-not-found");
    // Who may, gets as far as the session's state.
    expect((await refused(bench.root)).code).toBe("session-not-running");
  });

  test("a name that live sessions of several people have is refused, one's own is not", async () => {
    const bob = await bench.addUser("bob@lab", "user");
    const admin = await bench.addUser("admin@lab", "admin");
    const mine = await bench.create({ name: "twin" });
    const his = await bench.create({ name: "twin" }, bob);
    const rm = (session: string, as = admin) => bench.call("sessions.terminate", { as, params: { session } });
    const refused = await refusal(rm("twin"));
    expect(refused.code).toBe("conflict");
    for (const part of ["alice@lab", "bob@lab", mine.id, his.id]) expect(refused.text).toContain(part);
    expect((await bench.show("twin")).status).toBe("PENDING");
    expect((await bench.show("twin", bob)).status).toBe("PENDING");

    const own = await bench.create({ name: "twin" }, admin);
    await rm("twin");
    expect((await bench.show(own.id, admin)).status).toBe("CANCELLED");
    await rm("twin", bob);
    expect((await bench.show("twin", bench.root)).id).toBe(mine.id);
  });

  test("a group that is not public is its administrators' alone, with its nodes", async () => {
    const root = bench.root;
    const node = await bench.addAgent();
    const admin = await bench.addUser("admin@lab", "admin");
    const group = { params: { group: "gpu" } };
    await bench.call("groups.create", { as: root, body: { name: "gpu", public: false } });
    await bench.call("agents.update", { as: root, params: { agent: node.id }, body: { group: "gpu" } });
    const listed = async (id: string, as = bench.alice) =>
      z
        .object({ items: z.array(z.looseObject({ name: z.string() })) })
        .parse(await bench.call(id, { as }))
        .items.map(({ name }) => name);
    expect(await listed("groups.list")).toEqual(["default"]);
    expect(await listed("groups.list", admin)).toEqual(["default", "gpu"]);
    expect(await listed("agents.list")).toEqual([]);
    expect(await listed("agents.list", admin)).toEqual(["node-a"]);
    const code = async (id: string, given: object) => (await refusal(bench.call(id, given))).code;
    expect(await code("groups.get", group)).toBe("group-not-found");
    expect(await code("agents.get", { params: { agent: "node-a" } })).toBe("agent-not-found");
    expect(await code("agents.list", { query: { group: "gpu" } })).toBe("group-not-found");
    expect(await code("sessions.list", { query: { group: "gpu" } })).toBe("group-not-found");
    expect(await code("sessions.create", { body: { group: "gpu" } })).toBe("group-not-found");
    expect((await bench.create({ group: "gpu" }, admin)).group).toBe("gpu");
    const told = await bench.events.after(0, { ownerId: bench.alice.userId }, 1000);
    expect(JSON.stringify(told.filter(({ kind }) => kind === "group.updated"))).not.toContain("gpu");

    await bench.call("groups.update", { as: root, ...group, body: { public: true } });
    expect(await listed("groups.list")).toEqual(["default", "gpu"]);
    expect((await bench.create({ group: "gpu" })).group).toBe("gpu");
    await bench.call("groups.update", { as: root, params: { group: "default" }, body: { public: false } });
    expect(await refusal(bench.create({}))).toMatchObject({ code: "group-not-found" });
  });

  test("pages hold each session once, whatever is added meanwhile", async () => {
    for (let at = 0; at < 7; at++) await bench.create({ name: `page-${at}` });
    const seen: string[] = [];
    let cursor: string | undefined;
    do {
      const query = { limit: 3, sort: "-created", ...(cursor === undefined ? {} : { cursor }) };
      const page = await bench.list(query);
      seen.push(...page.items.map((item) => item.name));
      cursor = page.next ?? undefined;
      await bench.create({ name: `late-${seen.length}` });
    } while (cursor !== undefined);
    expect(seen).toEqual([6, 5, 4, 3, 2, 1, 0].map((at) => `page-${at}`));
  });
});

describe("output", () => {
  test("a follower sees it from before the start to the end, over a cut link", async () => {
    const agent = await bench.addAgent();
    await bench.create(batch("follow"));
    const text = bench.logText("follow", { follow: "true" });
    const spec = await agent.ensured("follow");
    agent.logs.set(spec.kernelId, [
      { type: "log", offset: 0, stream: "stdout", bytes: new TextEncoder().encode("one\n") },
    ]);
    agent.tell(spec, { phase: KernelPhase.RUNNING, startedAtMs: bench.clock.wall() });
    await until("it is read", () => agent.commands("openStream").length > 0);
    await settle();
    agent.link.cut();
    await settle();
    agent.logs.set(spec.kernelId, [
      ...logOf("one\n").slice(0, 1),
      { type: "log", offset: 4, stream: "stderr", bytes: new TextEncoder().encode("two\n") },
      { type: "log-end", offset: 8, final: true },
    ]);
    await agent.connect();
    bench.clock.advance(3_000);
    const at = bench.clock.wall();
    agent.tell(spec, { phase: KernelPhase.EXITED, endedAtMs: at, exitCode: 0, logBytes: 8 });
    await bench.reaches("follow", "TERMINATED");
    bench.clock.advance(3_000);
    expect(await text).toBe("one\ntwo\n");
  });

  test("a session ends without its output when its node cannot give it in time, and says so", async () => {
    const agent = await bench.addAgent();
    await bench.create(batch("mute"));
    const spec = await agent.ensured("mute");
    const at = bench.clock.wall();
    agent.tell(spec, { phase: KernelPhase.RUNNING, startedAtMs: at });
    await bench.reaches("mute", "RUNNING");
    agent.logs.set(spec.kernelId, "silent");
    agent.tell(spec, { phase: KernelPhase.EXITED, endedAtMs: at + 1, exitCode: 5 });
    await until("its log is asked for", () => agent.commands("openStream").length > 0);
    await passTime(bench, agent, "it ends", async () => (await bench.show("mute")).status === "TERMINATED");
    const ended = await bench.reaches("mute", "TERMINATED");
    expect(ended.exitCode).toBe(5);
    expect(ended.statusMessage).toContain("output");
    expect(agent.commands("forgetKernel")).toEqual([]);
  });
});
