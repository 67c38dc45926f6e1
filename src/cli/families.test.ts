import { afterEach, describe, expect, test } from "bun:test";
import type { Agent, Group } from "../contract/cluster.ts";
import type { Image } from "../contract/images.ts";
import { parseSlots } from "./policies.ts";
import { cli, detail, ENDED, type FakeManager, fakeManager, problemResponse, SESSION } from "./testing.ts";
import { otherMachinesUrl } from "./tokens.ts";

let manager: FakeManager | undefined;
afterEach(() => manager?.stop());

function serve(handlers: Parameters<typeof fakeManager>[0]): string {
  manager = fakeManager(handlers);
  return manager.url;
}
const at = "2026-11-30T10:00:00.000Z";
const id = "01930000-0000-7000-8000-0000000000cc";

const AGENT: Agent = {
  id,
  name: "node-a",
  group: "default",
  status: "ALIVE",
  schedulable: true,
  ready: true,
  version: "0.1.0",
  arch: "amd64",
  os: "Debian 12",
  kernelVersion: "6.1",
  engine: "Docker 20.10",
  cpuModel: "Model X",
  hostEnvironment: true,
  capacity: { cpu: 4000, mem: 8 * 2 ** 30 },
  reserved: { cpu: 0, mem: 0 },
  used: { cpu: 1000, mem: 1 << 30 },
  free: { cpu: 3000, mem: 7 * 2 ** 30 },
  sessions: 1,
  health: [],
  usage: null,
  joinedAt: at,
  lastSeenAt: at,
  certificateExpiresAt: null,
};

describe("ps", () => {
  test("prints a table with the place in the queue", async () => {
    const waiting = { ...SESSION, name: "job-2", status: "PENDING" as const, queuePosition: 2, agent: null };
    const url = serve({ "sessions.list": () => ({ items: [SESSION, waiting], next: null }) });
    const { stdout } = await cli(url, ["ps", "--utc"]);
    const lines = stdout.split("\n");
    expect(lines[0]).toMatch(/^NAME +TYPE +STATUS +IMAGE +NODE +CPU +MEM +CREATED$/);
    expect(lines[1]).toMatch(/^calm-otter-1 +batch +RUNNING +host +node-a +1 +1g +2026-11-30T10:00:00.000Z$/);
    expect(lines[2]).toMatch(/^job-2 +batch +PENDING \(2nd\) +host +- /);
    expect(stdout).not.toContain("\u001b");
  });

  test("--json is an array, also an empty one; without it an empty list says what to do", async () => {
    const url = serve({ "sessions.list": () => ({ items: [], next: null }) });
    expect(JSON.parse((await cli(url, ["ps", "--json"])).stdout)).toEqual([]);
    const { stdout, stderr, code } = await cli(url, ["ps"]);
    expect([code, stdout]).toEqual([0, ""]);
    expect(stderr).toContain("berth run");
  });

  test("filters become the query", async () => {
    const url = serve({ "sessions.list": () => ({ items: [], next: null }) });
    await cli(url, ["ps", "--all", "--status", "running", "--tag", "t", "--node", "n", "--all-users"]);
    const [call] = manager?.calls ?? [];
    expect(call?.query).toMatchObject({
      state: "all",
      status: "RUNNING",
      tag: "t",
      agent: "n",
      owner: "all",
    });
    expect((await cli(url, ["ps", "--status", "SLEEPING"])).code).toBe(2);
  });

  test("a name cannot steer the terminal", async () => {
    const url = serve({
      "sessions.list": () => ({ items: [{ ...SESSION, image: "x\u001b[2J" }], next: null }),
    });
    expect((await cli(url, ["ps"])).stdout).not.toContain("\u001b");
  });
});

test("show and history print the contract's objects as JSON", async () => {
  const entry = {
    seq: 1,
    at,
    from: null,
    to: "PENDING",
    reason: "created",
    message: null,
    actor: "kim@lab.example",
  };
  const url = serve({ "sessions.get": () => detail(), "sessions.history": () => ({ items: [entry] }) });
  expect(JSON.parse((await cli(url, ["show", "x", "--json"])).stdout)).toEqual(detail());
  expect(JSON.parse((await cli(url, ["history", "x", "--json"])).stdout)).toEqual([entry]);
});

test("show tells why a session waits and hides values of its environment", async () => {
  const session = detail({
    status: "PENDING",
    queuePosition: 1,
    statusMessage: "Needs 4 CPUs; node-a has 3 free.",
    environment: { SECRET_KEY: "hush" },
  });
  const { stdout } = await cli(serve({ "sessions.get": () => session }), ["show", "x"]);
  expect(stdout).toContain("PENDING, 1st in group default");
  expect(stdout).toContain("Needs 4 CPUs; node-a has 3 free.");
  expect(stdout).toContain("SECRET_KEY");
  expect(stdout).not.toContain("hush");
});

describe("rm", () => {
  test("one that is refused does not keep the others", async () => {
    const url = serve({
      "sessions.terminate": ({ params }) =>
        params.session === "gone" ? problemResponse("session-not-found", "No gone.") : detail({ name: "b" }),
    });
    const { code, stdout, stderr } = await cli(url, ["rm", "--force", "gone", "b"]);
    expect([code, stdout]).toEqual([1, "b\n"]);
    expect(stderr).toContain("gone: No gone.");
    expect(manager?.calls.every(({ query }) => query.force === "true")).toBe(true);
  });

  test("--wait returns when the session has ended", async () => {
    let looks = 0;
    const url = serve({
      "sessions.terminate": () => detail({ status: "TERMINATING" }),
      "sessions.get": () => (++looks < 3 ? detail({ status: "TERMINATING" }) : ENDED),
    });
    const { stdout } = await cli(url, ["rm", "--wait", "--json", "b"]);
    expect(JSON.parse(stdout)).toEqual([ENDED]);
    expect(looks).toBe(3);
  });
});

describe("start", () => {
  test("prints the name when the session runs", async () => {
    const states = ["PENDING", "PREPARING", "RUNNING"] as const;
    let looks = 0;
    const url = serve({
      "sessions.create": () => ({ items: [detail({ type: "interactive", status: "PENDING" })] }),
      "sessions.get": () => detail({ status: states[looks++] ?? "RUNNING" }),
    });
    const { code, stdout, stderr } = await cli(url, ["start", "--cpu", "1"]);
    expect([code, stdout, stderr]).toEqual([0, "calm-otter-1\n", ""]);
    expect(looks).toBe(3);
    expect(manager?.calls[0]?.body).toMatchObject({ type: "interactive", slots: { cpu: 1000 } });
  });

  test("a session that fails to start is a failure with the reason", async () => {
    const url = serve({
      "sessions.create": () => ({ items: [detail({ status: "PENDING" })] }),
      "sessions.get": () =>
        detail({
          status: "ERROR",
          statusReason: "image-pull-failed",
          statusMessage: "The image could not be pulled.",
        }),
    });
    const { code, stdout, stderr } = await cli(url, ["start"]);
    expect([code, stdout]).toEqual([1, ""]);
    expect(stderr).toContain("The image could not be pulled. [image-pull-failed]");
  });

  test("--no-wait prints the name at once", async () => {
    const url = serve({ "sessions.create": () => ({ items: [detail({ status: "PENDING" })] }) });
    expect((await cli(url, ["start", "--no-wait"])).stdout).toBe("calm-otter-1\n");
    expect(manager?.calls).toHaveLength(1);
  });
});

describe("node", () => {
  test("ls shows what is free and set changes it", async () => {
    const url = serve({
      "agents.list": () => ({ items: [AGENT], next: null }),
      "agents.update": () => ({ ...AGENT, schedulable: false }),
    });
    expect((await cli(url, ["node", "ls"])).stdout).toMatch(
      /node-a +ALIVE +default +1 +3 of 4 +7 GiB of 8 GiB +good/,
    );
    const set = await cli(url, [
      "node",
      "set",
      "node-a",
      "--schedulable",
      "off",
      "--reserved-cpu",
      "0",
      "--reserved-mem",
      "2g",
    ]);
    expect(set.stdout).toContain("ALIVE (no new sessions)");
    expect(manager?.callsOf("agents.update")[0]?.body).toEqual({
      schedulable: false,
      reserved: { cpu: 0, mem: 2 * 2 ** 30 },
    });
    expect((await cli(url, ["node", "set", "node-a"])).code).toBe(2);
  });

  test("rm passes the refusal on", async () => {
    const url = serve({ "agents.remove": () => problemResponse("in-use", "2 sessions run there.") });
    const { code, stderr } = await cli(url, ["node", "rm", "node-a"]);
    expect([code, stderr]).toEqual([1, "berth: 2 sessions run there. [in-use]\n"]);
  });
});

test("group create and set send only what was given", async () => {
  const group: Group = {
    id,
    name: "gpu",
    description: "",
    active: true,
    public: true,
    isDefault: false,
    scheduler: "lifo",
    placement: "concentrated",
    allowedTypes: ["batch"],
    pendingTimeoutMs: null,
    deadlines: { SCHEDULED: null, PREPARING: null, PULLING: 1_800_000, CREATING: null, TERMINATING: null },
    agents: 0,
    capacity: { cpu: 0, mem: 0 },
    used: { cpu: 0, mem: 0 },
    pending: 0,
    createdAt: at,
  };
  const url = serve({ "groups.create": () => group, "groups.update": () => group });
  const argv = [
    "group",
    "create",
    "gpu",
    "--scheduler",
    "lifo",
    "--types",
    "batch,interactive",
    "--pending-timeout",
    "none",
  ];
  expect((await cli(url, [...argv, "--deadline", "pulling=30m"])).stdout).toContain("PULLING 30m");
  expect(manager?.calls[0]?.body).toEqual({
    name: "gpu",
    scheduler: "lifo",
    allowedTypes: ["batch", "interactive"],
    pendingTimeout: null,
    deadlines: { PULLING: 1_800_000 },
  });
  await cli(url, ["group", "set", "gpu", "--default", "--active", "off"]);
  expect(manager?.calls[1]?.body).toEqual({ isDefault: true, active: false });
  expect((await cli(url, ["group", "set", "gpu", "--deadline", "SLEEPING=1m"])).code).toBe(2);
});

describe("image pull", () => {
  const image = (nodes: Image["nodes"]): Image => ({
    id,
    reference: "docker.io/library/python:3",
    title: "Python",
    description: "",
    kind: "oci",
    catalogue: false,
    sizeBytes: null,
    arch: null,
    digest: null,
    minimum: { cpu: 100, mem: 1 << 20 },
    servicePorts: [],
    labels: {},
    pulled: false,
    nodes,
    createdAt: at,
  });
  const node = { agent: "node-a", phase: null, doneBytes: 5, totalBytes: 10, message: null };

  test("waits until the image is there, with progress on a terminal", async () => {
    const url = serve({
      "images.pull": () => image([{ ...node, state: "pulling", phase: "downloading" }]),
      "images.get": () => image([{ ...node, state: "present" }]),
    });
    const argv = ["image", "pull", "python:3", "--node", "node-a"];
    const { code, stdout, stderr } = await cli(url, argv, { stderrTty: true });
    expect([code, stdout]).toEqual([0, "docker.io/library/python:3\n"]);
    expect(stderr).toContain("node-a downloading 50 % of 10 bytes");
    expect(manager?.calls[0]?.body).toEqual({ agents: ["node-a"] });
  });

  test("tells where and why it failed", async () => {
    const failed = image([{ ...node, state: "failed", message: "no such tag" }]);
    const { code, stderr } = await cli(serve({ "images.pull": () => failed }), ["image", "pull", "python:3"]);
    expect(code).toBe(1);
    expect(stderr).toContain("on node-a: no such tag [image-pull-failed]");
  });
});

test("a created token is alone on stdout", async () => {
  const token = { id, name: "ci", createdAt: at, expiresAt: null, lastUsedAt: null };
  const url = serve({ "tokens.create": () => ({ token, secret: "berth_abc" }) });
  const { stdout, stderr } = await cli(url, ["token", "create", "ci", "--ttl", "30d"]);
  expect(stdout).toBe("berth_abc\n");
  expect(stderr).toContain("this once");
  expect(manager?.calls[0]?.body).toEqual({ name: "ci", ttl: 2_592_000_000 });
});

describe("events", () => {
  const sse = (seq: number) =>
    `id: ${seq}\ndata: ${JSON.stringify({ seq, at, kind: "session.status", subject: id, data: { name: "job", to: "RUNNING" } })}\n\n`;

  test("go on behind the last one when the connection ends, until the manager refuses", async () => {
    let opened = 0;
    const url = serve({
      "events.stream": ({ query }) => {
        opened++;
        if (opened === 1) return new Response(`: hi\n\n${sse(7)}data: {"kind":"from.the.future"}\n\n`);
        return opened === 2
          ? new Response(sse(Number(query.after) + 1))
          : problemResponse("token-ended", "Ended.");
      },
    });
    const { code, stdout } = await cli(url, ["events", "--json", "--kind", "session", "--kind", "agent"]);
    expect(code).toBe(1);
    expect(
      stdout
        .trim()
        .split("\n")
        .map((line) => JSON.parse(line).seq),
    ).toEqual([7, 8]);
    expect(manager?.calls[0]?.query).toEqual({ kind: "session,agent" });
  });
});

describe("policy", () => {
  test("none takes a limit away and 0 allows nothing", async () => {
    const limits = {
      maxConcurrentSessions: 0,
      maxContainersPerSession: null,
      maxPendingSessions: null,
      maxPendingSlots: null,
      totalSlots: { cpu: 4000 },
      maxPriority: null,
      maxSessionLifetimeMs: null,
    };
    const url = serve({
      "policies.update": () => ({ id, name: "default", isDefault: true, limits, createdAt: at }),
    });
    await cli(url, [
      "policy",
      "set",
      "default",
      "--sessions",
      "0",
      "--lifetime",
      "none",
      "--total",
      "cpu=4,mem=8g",
    ]);
    expect(manager?.calls[0]?.body).toEqual({
      limits: {
        maxConcurrentSessions: 0,
        maxSessionLifetimeMs: null,
        totalSlots: { cpu: 4000, mem: 8 * 2 ** 30 },
      },
    });
  });

  test("slots name what is wrong with them", () => {
    expect(() => parseSlots("cpu", "--total")).toThrow("--total: write cpu=4");
    expect(() => parseSlots("cuda.device=x", "--total")).toThrow('"x" is not a whole number');
  });
});

test.each([
  ["https://localhost:7410", "https://MANAGER:7410"],
  ["http://127.8.0.1:80", "http://MANAGER"],
  ["https://[::1]:7410", "https://MANAGER:7410"],
  ["https://lab.example:7410", undefined],
  ["https://10.0.0.1", undefined],
])("an address for other machines: %s becomes %p", (url, expected) => {
  expect(otherMachinesUrl(url)).toBe(expected);
});

test("join-token create names no loopback address for the new node", async () => {
  const url = serve({
    "join-tokens.create": () => ({
      joinToken: {
        id,
        usesLeft: 1,
        createdBy: "x",
        createdAt: at,
        expiresAt: at,
      },
      secret: "bj1.x",
    }),
  });
  const { stdout, stderr } = await cli(url, ["join-token", "create"]);
  expect(stdout).toBe("bj1.x\n");
  expect(stderr).toContain(`--manager ${url.replace("127.0.0.1", "MANAGER")} `);
  expect(stderr).toContain("an address of the manager that the new node can reach");
});

test("config check prints values with their sources and no secrets", async () => {
  const { runCli } = await import("./main.ts");
  const { testIo } = await import("./testing.ts");
  const io = testIo();
  const configChecks = {
    manager: () => ({
      value: {
        listen: { host: "127.0.0.1", port: 7410 },
        agentListen: { host: "::1", port: 7411 },
        token: "hush",
        tlsCert: undefined,
        logLimit: 2 ** 24,
      },
      sources: {
        listen: "flag --listen",
        agentListen: "default",
        token: "variable BERTH_TOKEN",
        tlsCert: "default",
        logLimit: "default",
      },
      written: { logLimit: "16m" },
    }),
  };
  expect(await runCli(["config", "check", "manager"], { configChecks }, io)).toBe(0);
  expect(io.stdout()).toMatch(/listen +127.0.0.1:7410 +flag --listen/);
  expect(io.stdout()).toMatch(/tls-cert +- +default/);
  expect(io.stdout()).toMatch(/agent-listen +\[::1\]:7411 +default/);
  expect(io.stdout()).toMatch(/log-limit +16m +default/);
  expect(io.stdout()).not.toContain("hush");
  const asJson = testIo();
  await runCli(["config", "check", "manager", "--json"], { configChecks }, asJson);
  expect(JSON.parse(asJson.stdout())["log-limit"]).toEqual({ value: 2 ** 24, source: "default" });
  expect(await runCli(["config", "check", "agnet"], { configChecks }, testIo())).toBe(2);
});

test("version works without any manager", async () => {
  const { code, stdout } = await cli("", ["version"], { env: { BERTH_URL: "", BERTH_TOKEN: "" } });
  expect(code).toBe(0);
  expect(stdout).toMatch(/^berth \d+\.\d+\.\d+ \(\w+\)\n$/);
});
