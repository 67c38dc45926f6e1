import { afterEach, beforeEach, describe, expect, setDefaultTimeout, test } from "bun:test";
import { isBerthError } from "../../kit/errors.ts";
import { type Bench, GIB, openBench, settle, until } from "../sessions/test-bench.ts";
import { nameForNode } from "./agent.ts";

// Whole clusters on machines that may be busy: a limit for what hangs.
setDefaultTimeout(60_000);

let bench: Bench;
beforeEach(async () => {
  bench = await openBench();
});
afterEach(() => bench.close());

async function codeOf(work: Promise<unknown>): Promise<string> {
  const error = await work.then(
    () => undefined,
    (err: unknown) => err,
  );
  if (!isBerthError(error)) throw new Error(`not refused: ${String(error)}`);
  return error.code;
}

describe("names of nodes", () => {
  test("are the machine's, made fit and unique", () => {
    expect(nameForNode("gpu-1", new Set())).toBe("gpu-1");
    expect(nameForNode("gpu-1", new Set(["gpu-1", "gpu-1-2"]))).toBe("gpu-1-3");
    expect(nameForNode("__büro rechner__", new Set())).toBe("b-ro-rechner__");
    expect(nameForNode("***", new Set())).toBe("node");
  });

  test("two nodes of the same machine name are told apart", async () => {
    await bench.addAgent();
    await bench.addAgent();
    expect((await bench.node("node-a-2")).status).toBe("ALIVE");
  });
});

describe("join tokens", () => {
  const create = (body: Record<string, unknown>) =>
    bench.call("join-tokens.create", { as: bench.root, body });

  test("live at most thirty days and are listed while they work", async () => {
    expect(await codeOf(create({ ttl: "31d" }))).toBe("invalid-request");
    await create({ ttl: "30d" });
    const list = () => bench.call("join-tokens.list", { as: bench.root });
    expect(await list()).toMatchObject({ items: [{ usesLeft: 1, createdBy: "root@lab" }], next: null });
    bench.clock.advance(31 * 24 * 3_600_000);
    expect(await list()).toMatchObject({ items: [] });
  });

  test("the secret is stored as a hash alone", async () => {
    const made = await create({});
    const secret = typeof made === "object" && made !== null && "secret" in made ? String(made.secret) : "";
    const rows = await bench.store.read((db) => db.selectFrom("join_tokens").selectAll().execute());
    expect(secret).toStartWith("bj1.");
    expect(JSON.stringify(rows)).not.toContain(secret.slice(-20, -8));
  });
});

describe("the lease of a node", () => {
  test("another boot with the newest lease waits while the stream lives, and gets in once it is over", async () => {
    const agent = await bench.addAgent();
    const live = agent.link;
    agent.bootId = "another boot";
    await agent.connect();
    const refused = { code: "identity-in-use", retry: true };
    expect(agent.link.sent).toMatchObject([{ $case: "refused", value: refused }]);
    expect((await bench.node("node-a")).ready).toBe(true);
    live.cut();
    await until("the stream is over", async () => !(await bench.node("node-a")).ready);
    await agent.connect();
    expect(agent.link.sent[0]).toMatchObject({ $case: "welcome" });
  });
});

describe("what an administrator sets", () => {
  test("a node that is not schedulable takes nothing new and keeps what it has", async () => {
    const agent = await bench.addAgent();
    const set = (body: Record<string, unknown>) =>
      bench.call("agents.update", { as: bench.root, params: { agent: "node-a" }, body });
    await bench.create({ name: "stays" });
    await agent.ensured("stays");
    await set({ schedulable: false });
    await bench.create({ name: "waits" });
    bench.clock.advance(100);
    await until(
      "it says why",
      async () => (await bench.show("waits")).statusReason === "nodes-unschedulable",
    );
    expect((await bench.show("stays")).status).toBe("SCHEDULED");
    await set({ schedulable: true });
    await agent.ensured("waits");
  });

  test("what is reserved is not given to sessions, and stays the administrator's word", async () => {
    const agent = await bench.addAgent();
    await bench.call("agents.update", {
      as: bench.root,
      params: { agent: "node-a" },
      body: { reserved: { cpu: 3000 } },
    });
    expect((await bench.node("node-a")).free.cpu).toBe(1000);
    expect(await codeOf(bench.create({ slots: { cpu: 2000, mem: GIB } }))).toBe("admission-refused");
    agent.node = { ...agent.node, reservedCpuMilli: 0 };
    agent.report();
    await settle();
    expect((await bench.node("node-a")).reserved.cpu).toBe(3000);
    const tooMuch = bench.call("agents.update", {
      as: bench.root,
      params: { agent: "node-a" },
      body: { reserved: { mem: 9 * GIB } },
    });
    expect(await codeOf(tooMuch)).toBe("invalid-request");
  });

  test("a clock that is wrong is told as the node's health", async () => {
    const agent = await bench.addAgent();
    agent.link.say({ $case: "heartbeat", value: { wallMs: bench.clock.wall() + 120_000 } });
    await until("it is told", async () =>
      (await bench.node("node-a")).health.some((item) => item.code === "clock-skew"),
    );
  });
});

describe("groups", () => {
  const call = (id: string, group: string, body?: Record<string, unknown>) =>
    bench.call(`groups.${id}`, {
      as: bench.root,
      params: { group },
      ...(body === undefined ? {} : { body }),
    });

  test("are kept while something lives in them, and their ended sessions keep their name", async () => {
    await bench.call("groups.create", { as: bench.root, body: { name: "gpu", placement: "concentrated" } });
    expect(await codeOf(call("remove", "default"))).toBe("in-use");
    await bench.create({ name: "inside", group: "gpu" });
    expect(await codeOf(call("remove", "gpu"))).toBe("in-use");
    await bench.call("sessions.terminate", { params: { session: "inside" } });
    await call("remove", "gpu");
    expect(await codeOf(bench.group("gpu"))).toBe("group-not-found");
    expect((await bench.show("inside")).group).toBe("gpu");
    await bench.call("groups.create", { as: bench.root, body: { name: "gpu" } });
  });

  test("one of them is the default, and deadlines are frozen when a session is queued", async () => {
    await bench.call("groups.create", { as: bench.root, body: { name: "slow", isDefault: true } });
    await call("update", "slow", { deadlines: { CREATING: "1h" } });
    expect((await bench.group("default")).isDefault).toBe(false);
    expect((await bench.group("slow")).deadlines.CREATING).toBe(3_600_000);
    expect((await bench.create({ name: "here" })).group).toBe("slow");
    const row = await bench.store.read((db) =>
      db.selectFrom("sessions").select("deadlines").executeTakeFirst(),
    );
    expect(JSON.parse(row?.deadlines ?? "{}")).toMatchObject({ CREATING: 3_600_000, SCHEDULED: 60_000 });
  });
});
