import { z } from "zod";
import type { Agent, Group } from "../../contract/cluster.ts";
import type { Role } from "../../contract/permissions.ts";
import type { HistoryEntry, Session, SessionDetail } from "../../contract/sessions.ts";
import { type ManualClock, manualClock } from "../../kit/clock.ts";
import { encodeFrame, type Frame, readFrames } from "../../kit/frames.ts";
import { type AgentId, type ClusterId, newId, type TokenId, type UserId } from "../../kit/ids.ts";
import { silentLogger } from "../../kit/log.ts";
import { VERSION } from "../../kit/version.ts";
import type { ByteStream } from "../../wire/byte-stream.ts";
import { createCa, loadCa } from "../../wire/ca.ts";
import { createAgentCsr } from "../../wire/csr.ts";
import {
  type AgentMessage,
  type EnsureKernel,
  type ForgetKernel,
  type ImageInfo,
  KernelPhase,
  type KernelSpec,
  type KernelStatus,
  type ManagerMessage,
  type NodeInfo,
  type OpenStream,
  type RequestReport,
  type StopKernel,
} from "../../wire/generated/berth.ts";
import { createInbox } from "../../wire/inbox.ts";
import { parseJoinToken } from "../../wire/join-token.ts";
import type { LinkEnd } from "../../wire/link.ts";
import type { ServerLink } from "../../wire/link-server.ts";
import { createAccounts } from "../accounts/accounts.ts";
import type { UserPrincipal } from "../accounts/principal.ts";
import { createCluster } from "../cluster.ts";
import { loadManagerConfig } from "../config.ts";
import { createEventLog } from "../events/log.ts";
import type { AllowedRequest, Mounted } from "../http/handle.ts";
import { createMetrics } from "../http/metrics.ts";
import { createPolicies } from "../policies/service.ts";
import { openTestStore } from "../store/testing.ts";

export const GIB = 1024 ** 3;

/** Two ends of one byte stream in memory. */
export function streamPair(): readonly [ByteStream, ByteStream] {
  const closed = Promise.withResolvers<void>();
  const free = { weigh: () => 0, limit: 1, pause: () => {}, resume: () => {} };
  const boxes = [createInbox<Uint8Array>(free), createInbox<Uint8Array>(free)] as const;
  const over = (how: "ended" | Error) => {
    for (const box of boxes) box.finish(how);
    closed.resolve();
  };
  const end = (mine: 0 | 1): ByteStream => ({
    write: async (bytes) => boxes[mine === 0 ? 1 : 0].put(bytes),
    end: () => boxes[mine === 0 ? 1 : 0].finish("ended"),
    destroy: () => over("ended"),
    unread: (bytes) => {
      if (bytes.length > 0) boxes[mine].unread(bytes);
    },
    closed: closed.promise,
    [Symbol.asyncIterator]: () => ({ next: boxes[mine].next }),
  });
  return [end(0), end(1)];
}

/**
 * Lets everything run until the condition holds, without moving the clock. Disks take real time, so it is patient;
 * it throws when the condition never holds.
 */
export async function until<T>(
  what: string,
  check: () => Promise<T | undefined | false> | T | undefined | false,
) {
  for (let turn = 0; turn < 8000; turn++) {
    const found = await check();
    if (found !== undefined && found !== false) return found;
    if (turn < 300) await new Promise<void>((resolve) => setImmediate(resolve));
    else await Bun.sleep(2);
  }
  throw new Error(`never came true: ${what}`);
}

/** Lets everything run that needs no time. */
export async function settle(): Promise<void> {
  for (let turn = 0; turn < 60; turn++) await new Promise<void>((resolve) => setImmediate(resolve));
}

/** Moves the clock in steps, with the node's heartbeat, until the condition holds. */
export async function passTime(
  bench: { readonly clock: ManualClock },
  agent: FakeAgent,
  what: string,
  check: () => Promise<boolean>,
): Promise<void> {
  for (let step = 0; step < 60; step++) {
    if (await check()) return;
    bench.clock.advance(10_000);
    agent.link.say({ $case: "heartbeat", value: { wallMs: bench.clock.wall() } });
    await settle();
  }
  throw new Error(`time passed without it: ${what}`);
}

export const NODE: NodeInfo = {
  hostname: "node-a",
  arch: "x86_64",
  os: "Debian",
  kernelVersion: "6.1",
  engine: "docker",
  engineVersion: "20.10",
  cgroupVersion: 1,
  cpuMilli: 4000,
  memBytes: 8 * GIB,
  reservedCpuMilli: 0,
  reservedMemBytes: 0,
  hostEnvironment: true,
  loopScratch: true,
  liveRestore: true,
  diskBytes: 100 * GIB,
  cpuModel: "test",
  executableVersion: VERSION,
};

/** A kernel of which nothing has happened yet, for tests to fill in. */
export const STATUS: KernelStatus = {
  kernelId: "",
  sessionId: "",
  generation: 1,
  phase: KernelPhase.PREPARING,
  containerId: "",
  startedAtMs: 0,
  endedAtMs: 0,
  exitCode: 0,
  oomKilled: false,
  timedOut: false,
  failure: undefined,
  logBytes: 0,
  stopRequested: false,
  epoch: 1,
  endReason: "",
  pull: undefined,
  scratchPresent: false,
};

type Body = ManagerMessage["body"] & {};
type Commands = {
  readonly ensureKernel: EnsureKernel[];
  readonly stopKernel: StopKernel[];
  readonly forgetKernel: ForgetKernel[];
  readonly openStream: OpenStream[];
  readonly requestReport: RequestReport[];
};

/** What a manager's link to an agent looks like from the agent's side. */
export type FakeLink = {
  /** Everything that the manager sent, in order. */
  readonly sent: Body[];
  say(body: AgentMessage["body"] & {}): void;
  cut(): void;
  readonly closed: Promise<LinkEnd>;
};

/** A node in memory: it says what the test has it say, and keeps what the manager tells it. */
export type FakeAgent = {
  readonly id: AgentId;
  lease: string;
  bootId: string;
  link: FakeLink;
  node: NodeInfo;
  images: ImageInfo[];
  engineReachable: boolean;
  /** What the next full report holds. */
  readonly kernels: Map<string, KernelStatus>;
  /** What a log stream of a kernel gives; "none" refuses it. */
  readonly logs: Map<string, readonly Frame[] | "none" | "silent">;
  connect(): Promise<void>;
  report(): void;
  /** Sets what is true of a kernel and tells it at once. */
  tell(spec: KernelSpec, change: Partial<KernelStatus>): void;
  commands<C extends keyof Commands>(kind: C): Commands[C];
  /** Waits for the manager to ask for a session's kernel. */
  ensured(name: string): Promise<KernelSpec>;
};

function fakeLink(agentId: AgentId, clusterId: ClusterId): readonly [ServerLink, FakeLink] {
  const box = createInbox<AgentMessage>({ weigh: () => 0, limit: 1, pause: () => {}, resume: () => {} });
  const closed = Promise.withResolvers<LinkEnd>();
  const sent: Body[] = [];
  let over = false;
  const finish = (end: LinkEnd) => {
    over = true;
    box.finish("ended");
    closed.resolve(end);
  };
  const server: ServerLink = {
    identity: { role: "agent", clusterId, agentId },
    send: async ({ body }) => {
      if (over) throw new Error("the link is over");
      if (body !== undefined) sent.push(body);
    },
    messages: { [Symbol.asyncIterator]: () => ({ next: box.next }) },
    closed: closed.promise,
    close: () => finish({ by: "us", message: "closed" }),
  };
  const far: FakeLink = {
    sent,
    say: (body) => box.put({ body }),
    cut: () => finish({ by: "network", message: "cut" }),
    closed: closed.promise,
  };
  return [server, far];
}

const page = z.object({ items: z.array(z.custom<Session>()), next: z.string().nullable() });
const created = z.object({ items: z.array(z.custom<SessionDetail>()) });

/** A whole cluster without HTTP and without nodes other than fake ones; time stands still until it is moved. */
export async function openBench(clock: ManualClock = manualClock()) {
  const store = await openTestStore(clock);
  const log = silentLogger;
  const events = createEventLog({ store, clock, log });
  const policies = createPolicies({ store, clock });
  await policies.ensureDefault();
  const ca = await loadCa(await createCa(clock));
  const { value: config } = loadManagerConfig({ argv: ["--data-dir", store.dir], env: {} });
  const accounts = createAccounts({ store, clock, log, events, policies });
  const parts = { store, clock, log, events, policies, accounts, ca, config };
  const users = new Map<string, UserPrincipal>();

  async function addUser(email: string, role: Role): Promise<UserPrincipal> {
    const userId = newId<UserId>(clock);
    const policyId = await store.write(async (tx) => {
      const id = await policies.defaultId(tx);
      await tx
        .insertInto("users")
        .values({
          id: userId,
          email,
          name: email,
          role,
          active: 1,
          password_hash: "-",
          uid: 1000,
          gid: 1000,
          policy_id: id,
          created_at: clock.wall(),
          last_login_at: null,
        })
        .execute();
      return id;
    });
    const person: UserPrincipal = {
      kind: "user",
      userId,
      email,
      name: email,
      role,
      uid: 1000,
      gid: 1000,
      policyId,
      tokenId: newId<TokenId>(clock),
      tokenKind: "api",
      expiresAt: null,
    };
    users.set(email, person);
    return person;
  }
  const alice = await addUser("alice@lab", "user");
  const root = await addUser("root@lab", "superadmin");

  async function build() {
    const metrics = createMetrics({ version: "test", commit: "test", connections: () => 0 });
    const cluster = await createCluster({ ...parts, metrics });
    cluster.listening({ port: 7411, cut: () => {} });
    await cluster.start();
    return cluster;
  }
  let cluster = await build();

  function request(who: UserPrincipal, given: { params?: unknown; query?: unknown; body?: unknown }) {
    const signal = new AbortController().signal;
    const made: AllowedRequest<unknown, unknown, unknown> = {
      params: given.params ?? {},
      query: given.query ?? {},
      body: given.body,
      requestId: "test",
      address: "127.0.0.1",
      secure: true,
      signal,
      alive: signal,
      principal: who,
      header: () => undefined,
      setHeader: () => {},
    };
    return made;
  }

  function mounted(id: string): Mounted {
    const found = cluster.routes.find((each) => each.route.id === id);
    if (found === undefined) throw new Error(`no route ${id}`);
    return found;
  }

  /** Calls a route as its handler would be called; what goes in and out is checked by the route's schemas. */
  async function call(
    id: string,
    given: { as?: UserPrincipal; params?: unknown; query?: unknown; body?: unknown } = {},
  ): Promise<unknown> {
    const { route, ...rest } = mounted(id);
    if (rest.kind !== "answer") throw new Error(`${id} does not answer with JSON`);
    const checked = {
      params: route.params?.parse(given.params ?? {}) ?? {},
      query: route.query?.parse(given.query ?? {}) ?? {},
      body: route.body?.parse(given.body ?? {}),
    };
    const answer = await rest.run(request(given.as ?? alice, checked));
    return route.answer.kind === "json" ? route.answer.schema.parse(answer) : answer;
  }

  async function logText(session: string, query: Record<string, string> = {}, as = alice): Promise<string> {
    const { route, ...rest } = mounted("sessions.logs");
    if (rest.kind !== "stream") throw new Error("logs are a stream");
    const parsed = route.query?.parse({ format: "text", ...query });
    const { body } = await rest.run(request(as, { params: { session }, query: parsed }));
    const out: Buffer[] = [];
    for await (const chunk of body) out.push(Buffer.from(chunk));
    return Buffer.concat(out).toString();
  }

  /** Asks for a command in a session, up to where a WebSocket would be opened. */
  async function exec(session: string, as = alice): Promise<void> {
    const { kind, run } = mounted("sessions.exec");
    if (kind !== "websocket") throw new Error("exec is a WebSocket");
    await run(request(as, { params: { session } }));
  }

  async function create(body: Record<string, unknown> = {}, as = alice): Promise<SessionDetail> {
    const { items } = created.parse(await call("sessions.create", { as, body }));
    const [first] = items;
    if (first === undefined) throw new Error("no session was made");
    return first;
  }

  const show = async (session: string, as = alice) =>
    z.custom<SessionDetail>().parse(await call("sessions.get", { as, params: { session } }));
  const history = async (session: string, as = alice) =>
    z
      .object({ items: z.array(z.custom<HistoryEntry>()) })
      .parse(await call("sessions.history", { as, params: { session } })).items;
  const statuses = async (session: string) => (await history(session)).map((entry) => entry.to);
  const reaches = (session: string, status: string) =>
    until(`${session} is ${status}`, async () => {
      const found = await show(session, root);
      return found.status === status && found;
    });
  const list = async (query: Record<string, unknown> = {}, as = alice) =>
    page.parse(await call("sessions.list", { as, query }));
  const node = async (name: string) =>
    z.custom<Agent>().parse(await call("agents.get", { as: root, params: { agent: name } }));
  const group = async (name: string) =>
    z.custom<Group>().parse(await call("groups.get", { as: root, params: { group: name } }));

  /** Serves the data streams that the manager asks the agent for: logs as the test has laid them out. */
  async function serveStream(agent: FakeAgent, value: OpenStream) {
    const [near, far] = streamPair();
    cluster.wire.onData({ role: "agent", clusterId: store.clusterId, agentId: agent.id }, near);
    await far.write(encodeFrame({ type: "open", params: { streamId: value.streamId } }));
    const { target } = value;
    if (target?.$case !== "logs") return;
    const frames = agent.logs.get(target.value.kernelId) ?? "none";
    if (frames === "silent") return;
    if (frames === "none") {
      await far.write(encodeFrame({ type: "error", code: "log-not-found", message: "no log" }));
      return far.end();
    }
    for (const frame of frames) {
      if (frame.type === "log" && frame.offset < target.value.offset) continue;
      await far.write(encodeFrame(frame));
    }
    far.end();
    // The manager's answer to the header is read, so that nothing is left over.
    for await (const _ of readFrames(far)) break;
  }

  async function addAgent(change: Partial<NodeInfo> = {}): Promise<FakeAgent> {
    const info = { ...NODE, ...change };
    const token = parseJoinToken(await cluster.createJoinToken());
    const { csrPem } = await createAgentCsr();
    const { agentId } = await cluster.wire.onJoin({
      tokenId: token.id,
      secret: token.secret,
      csrPem,
      hostname: info.hostname,
      version: VERSION,
      wallMs: clock.wall(),
      address: "127.0.0.1",
    });
    const [, unused] = fakeLink(agentId, store.clusterId);
    const agent: FakeAgent = {
      id: agentId,
      lease: "",
      bootId: "boot",
      link: unused,
      node: info,
      images: [],
      engineReachable: true,
      kernels: new Map(),
      logs: new Map(),
      connect: async () => {
        const [server, far] = fakeLink(agentId, store.clusterId);
        const served = new Set<string>();
        agent.link = far;
        cluster.wire.onLink(server);
        far.say({
          $case: "hello",
          value: {
            agentId,
            clusterId: store.clusterId,
            lease: agent.lease,
            version: VERSION,
            bootId: agent.bootId,
            wallMs: clock.wall(),
            node: agent.node,
          },
        });
        const first = await until("the manager answers", () => far.sent[0]);
        if (first.$case !== "welcome") return;
        agent.lease = first.value.lease;
        far.say({ $case: "leaseStored", value: { lease: agent.lease } });
        agent.report();
        await until("the node is ready", async () => (await node(agentId)).ready);
        const push = far.sent.push.bind(far.sent);
        // From now on data streams are served as they are asked for.
        const serve = (body: Body) => {
          if (body.$case !== "openStream" || served.has(body.value.streamId)) return;
          served.add(body.value.streamId);
          void serveStream(agent, body.value);
        };
        for (const body of far.sent) serve(body);
        far.sent.push = (...bodies) => {
          for (const body of bodies) serve(body);
          return push(...bodies);
        };
      },
      report: () =>
        agent.link.say({
          $case: "fullReport",
          value: {
            seq: 1,
            kernels: [...agent.kernels.values()],
            images: agent.images,
            engineReachable: agent.engineReachable,
            node: agent.node,
          },
        }),
      tell: (spec, change) => {
        const before = agent.kernels.get(spec.kernelId) ?? STATUS;
        const { kernelId, sessionId, generation } = spec;
        const status = { ...before, kernelId, sessionId, generation, ...change };
        agent.kernels.set(kernelId, status);
        agent.link.say({ $case: "kernelStatus", value: status });
      },
      commands: (kind) => sortOut(agent.link.sent)[kind],
      ensured: (name) =>
        until(`${name} is asked for`, async () => {
          clock.advance(50);
          return agent
            .commands("ensureKernel")
            .map(({ spec }) => spec)
            .findLast((spec) => spec?.sessionName === name);
        }),
    };
    await agent.connect();
    return agent;
  }

  return {
    clock,
    store,
    events,
    alice,
    root,
    addUser,
    addAgent,
    call,
    create,
    exec,
    show,
    list,
    history,
    statuses,
    reaches,
    node,
    group,
    logText,
    /** Stops this manager and starts another on the same store, as after a crash. */
    restart: async () => {
      await cluster.stop();
      cluster = await build();
    },
    close: async () => {
      await cluster.stop();
      await store.close();
    },
  };
}

function sortOut(bodies: readonly Body[]): Commands {
  const out: Commands = {
    ensureKernel: [],
    stopKernel: [],
    forgetKernel: [],
    openStream: [],
    requestReport: [],
  };
  for (const body of bodies) {
    if (body.$case === "ensureKernel") out.ensureKernel.push(body.value);
    if (body.$case === "stopKernel") out.stopKernel.push(body.value);
    if (body.$case === "forgetKernel") out.forgetKernel.push(body.value);
    if (body.$case === "openStream") out.openStream.push(body.value);
    if (body.$case === "requestReport") out.requestReport.push(body.value);
  }
  return out;
}

/** The log of a kernel as its agent tells it. */
export function logOf(text: string, final = true): Frame[] {
  const bytes = new TextEncoder().encode(text);
  return [
    { type: "log", offset: 0, stream: "stdout", bytes },
    { type: "log-end", offset: bytes.length, final },
  ];
}

export type Bench = Awaited<ReturnType<typeof openBench>>;
export { KernelPhase };
