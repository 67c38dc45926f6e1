import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Subprocess } from "bun";
import { createDockerEngine } from "../../../src/agent/engine/docker.ts";
import { systemClock } from "../../../src/kit/clock.ts";
import { type Frame, readFrames, writeFrame } from "../../../src/kit/frames.ts";
import { type AgentId, asId, newId } from "../../../src/kit/ids.ts";
import { silentLogger } from "../../../src/kit/log.ts";
import { VERSION } from "../../../src/kit/version.ts";
import type { ByteStream } from "../../../src/wire/byte-stream.ts";
import { fingerprint } from "../../../src/wire/certificates.ts";
import { signAgentCsr } from "../../../src/wire/csr.ts";
import { createDataBroker } from "../../../src/wire/data-broker.ts";
import {
  type AgentMessage,
  type FullReport,
  type HealthReport,
  type Hello,
  KernelPhase,
  type KernelSpec,
  type KernelStatus,
  type ManagerMessage,
  type OpenStream,
  type Refused,
  type UsageReport,
} from "../../../src/wire/generated/berth.ts";
import { formatJoinToken, newJoinSecret } from "../../../src/wire/join-token.ts";
import { acknowledgeLease, evaluateLease, type LeaseState, NO_LEASE } from "../../../src/wire/lease.ts";
import type { ServerLink } from "../../../src/wire/link-server.ts";
import { testCluster, testListener } from "../../../src/wire/test-kit.ts";
import { cleanUpNode, DOCKER_SOCKET } from "./engine.ts";

const MAIN = join(import.meta.dir, "../../../src/main.ts");
const WAIT_MS = 30_000;

type Body = NonNullable<AgentMessage["body"]>;
type Ref = { readonly kernelId: string; readonly generation: number };

/** Waits for something that another process brings about. */
export async function eventually<T>(what: string, look: () => T | undefined | false): Promise<T> {
  const until = performance.now() + WAIT_MS;
  for (;;) {
    const found = look();
    if (found !== undefined && found !== false) return found;
    if (performance.now() > until) throw new Error(`it never came to this: ${what}`);
    await Bun.sleep(20);
  }
}

/** The least manager that an agent needs: it takes the agent in, remembers what it says and opens streams. */
export async function createTestManager(port = 0) {
  const cluster = await testCluster();
  const broker = createDataBroker({ clock: systemClock, log: silentLogger });
  const statuses = new Map<string, KernelStatus>();
  const history: KernelStatus[] = [];
  const bodies: Body[] = [];
  let agentId = newId<AgentId>(systemClock);
  let joins = 0;
  const secret = newJoinSecret();
  let leases: LeaseState = NO_LEASE;
  let link: ServerLink | undefined;
  let report: FullReport | undefined;
  let health: HealthReport | undefined;
  let usage: UsageReport | undefined;
  const hellos: Hello[] = [];
  let refusal: Refused | undefined;
  let connects = 0;

  function note(status: KernelStatus): void {
    statuses.set(`${status.kernelId}.${status.generation}`, status);
    history.push(status);
  }

  function take(body: Body): void {
    bodies.push(body);
    if (body.$case === "fullReport") {
      report = body.value;
      for (const status of body.value.kernels) note(status);
    }
    if (body.$case === "kernelStatus") note(body.value);
    if (body.$case === "health") health = body.value;
    if (body.$case === "usage") usage = body.value;
  }

  /** Answers an agent's request for a new certificate. */
  async function renew(current: ServerLink, csrPem: string): Promise<void> {
    const who = { clusterId: cluster.clusterId, agentId, clock: systemClock };
    const certPem = await signAgentCsr(cluster.ca, csrPem, who);
    await current.send({ body: { $case: "certificateIssued", value: { certPem, failure: undefined } } });
  }

  async function refuse(next: ServerLink, value: Refused): Promise<void> {
    await next.send({ body: { $case: "refused", value } });
    next.close();
  }

  async function serve(next: ServerLink): Promise<void> {
    const messages = next.messages[Symbol.asyncIterator]();
    const first = await messages.next();
    const hello = first.done === true ? undefined : first.value.body;
    if (hello?.$case !== "hello") return next.close();
    const verdict = evaluateLease({
      ...leases,
      offered: hello.value.lease,
      hasLiveStream: link !== undefined,
      otherBoot: false,
      newLease: crypto.randomUUID(),
    });
    hellos.push(hello.value);
    if (refusal !== undefined) return refuse(next, refusal);
    if (verdict.kind === "refuse") {
      return refuse(next, { code: verdict.code, message: verdict.sentence, retry: verdict.retry });
    }
    leases = verdict.state;
    link?.close();
    link = next;
    report = undefined;
    connects += 1;
    const times = { heartbeatMs: 1000, reportMs: 2000, usageMs: 1000 };
    await next.send({
      body: {
        $case: "welcome",
        value: {
          lease: leases.stored ?? "",
          clusterId: cluster.clusterId,
          epoch: 1,
          managerVersion: VERSION,
          wallMs: Date.now(),
          ...times,
        },
      },
    });
    for (let message = await messages.next(); message.done !== true; message = await messages.next()) {
      const { body } = message.value;
      if (body !== undefined) take(body);
      if (body?.$case === "certificateRequest") await renew(next, body.value.csrPem);
      if (body?.$case === "leaseStored") leases = acknowledgeLease(leases, body.value.lease);
    }
    if (link === next) link = undefined;
  }

  const listener = await testListener(cluster, {
    port,
    onJoin: async ({ csrPem }) => {
      joins += 1;
      // Another node each time, as the real manager does it; a lease belongs to one node.
      if (joins > 1) {
        agentId = newId<AgentId>(systemClock);
        leases = NO_LEASE;
      }
      const who = { clusterId: cluster.clusterId, agentId, clock: systemClock };
      return { agentId, certPem: await signAgentCsr(cluster.ca, csrPem, who) };
    },
    onLink: (next) => void serve(next).catch(() => {}),
    onData: broker.accept,
  });

  const newToken = () =>
    formatJoinToken({
      id: newId(systemClock),
      secret,
      caFingerprint: fingerprint(cluster.caPem),
      port: listener.port,
    });

  async function send(body: NonNullable<ManagerMessage["body"]>): Promise<void> {
    const current = await eventually("the agent is connected", () => link);
    await current.send({ body });
  }
  const status = (ref: Ref) => statuses.get(`${ref.kernelId}.${ref.generation}`);

  return {
    get agentId() {
      return agentId;
    },
    get ownership() {
      return { clusterId: cluster.clusterId, agentId };
    },
    url: `https://127.0.0.1:${listener.port}`,
    token: newToken(),
    newToken,
    joins: () => joins,
    send,
    status,
    history: (ref: Ref) => history.filter((entry) => entry.kernelId === ref.kernelId),
    bodies,
    report: () => report,
    health: () => health,
    usage: () => usage,
    connects: () => connects,
    hellos,
    /** From now on every agent is answered so; undefined lets them in again. */
    refuseWith: (value: Refused | undefined) => {
      refusal = value;
    },
    /** Tells the connected agent that it is not wanted any more. */
    expel: (value: Refused) => send({ $case: "refused", value }),
    cutLink: () => link?.close(),
    ensure: (spec: KernelSpec) => send({ $case: "ensureKernel", value: { spec } }),
    stop: (spec: KernelSpec, graceMs = 10_000) => {
      const { kernelId, sessionId, generation } = spec;
      const value = { kernelId, sessionId, generation, graceMs, force: graceMs === 0 };
      return send({ $case: "stopKernel", value });
    },
    forget: ({ kernelId, generation }: KernelSpec) =>
      send({ $case: "forgetKernel", value: { kernelId, generation } }),
    phase: (ref: Ref, phase: KernelPhase) =>
      eventually(`${ref.kernelId} is ${KernelPhase[phase]}`, () => {
        const now = status(ref);
        return now?.phase === phase ? now : undefined;
      }),
    open: async (target: NonNullable<OpenStream["target"]>): Promise<ByteStream> => {
      const streamId = crypto.randomUUID();
      const expected = broker.expect(asId<AgentId>(agentId), streamId);
      await send({ $case: "openStream", value: { streamId, target } });
      return expected;
    },
    close: () => listener.close(),
  };
}
export type TestManager = Awaited<ReturnType<typeof createTestManager>>;

/** A real agent process of a test manager on the real engine. */
export async function createAgentBench() {
  const manager = await createTestManager();
  const dataDir = await mkdtemp(join(tmpdir(), "berth-agent-"));
  let child: Subprocess<"ignore", "pipe", "pipe"> | undefined;
  let output = "";

  async function start(): Promise<void> {
    const connects = manager.connects();
    const argv = ["agent", "--manager", manager.url, "--token", manager.token, "--data-dir", dataDir];
    const started = Bun.spawn([process.execPath, MAIN, ...argv, "--log-level", "debug"], {
      stdin: "ignore",
      stdout: "pipe",
      stderr: "pipe",
    });
    child = started;
    for (const stream of [started.stdout, started.stderr]) {
      void new Response(stream).text().then((text) => {
        output += text;
      });
    }
    await eventually("the agent has reported", () => manager.connects() > connects && manager.report());
  }

  async function end(signal: NodeJS.Signals): Promise<number> {
    const ending = child;
    child = undefined;
    ending?.kill(signal);
    return (await ending?.exited) ?? 0;
  }

  await start();
  return {
    manager,
    dataDir,
    start,
    pid: () => child?.pid,
    kill: () => end("SIGKILL"),
    terminate: () => end("SIGTERM"),
    log: () => output,
    cleanUp: async () => {
      await end("SIGTERM");
      await manager.close();
      const engine = createDockerEngine({
        socketPath: DOCKER_SOCKET,
        ownership: manager.ownership,
        dataDir,
        clock: systemClock,
        log: silentLogger,
      });
      await cleanUpNode(engine, dataDir);
      await rm(dataDir, { recursive: true, force: true });
    },
  };
}
export type AgentBench = Awaited<ReturnType<typeof createAgentBench>>;

export type ReadLog = {
  readonly stdout: string;
  readonly stderr: string;
  readonly gaps: number;
  readonly final: boolean;
};

/** Reads a kernel's output to the end of the stream. */
export async function readLog(
  manager: TestManager,
  ref: Ref,
  options: { readonly offset?: number; readonly follow?: boolean } = {},
): Promise<ReadLog> {
  const { kernelId, generation } = ref;
  const { offset = 0, follow = false } = options;
  const stream = await manager.open({ $case: "logs", value: { kernelId, generation, offset, follow } });
  const text = { stdout: [] as Uint8Array[], stderr: [] as Uint8Array[] };
  let gaps = 0;
  let final = false;
  try {
    for await (const frame of readFrames(stream)) {
      if (frame.type === "error") throw new Error(`${frame.code}: ${frame.message}`);
      if (frame.type === "log") text[frame.stream].push(frame.bytes);
      if (frame.type === "log-gap") gaps += 1;
      if (frame.type === "log-end") {
        final = frame.final;
        break;
      }
    }
  } finally {
    stream.destroy();
  }
  const join = (parts: Uint8Array[]) => Buffer.concat(parts).toString();
  return { stdout: join(text.stdout), stderr: join(text.stderr), gaps, final };
}

export type ExecResult = {
  readonly stdout: string;
  readonly stderr: string;
  readonly code: number | undefined;
  readonly error: string | undefined;
};

/** A command in a kernel, with its ends in the test's hands. */
export async function startExec(
  manager: TestManager,
  ref: Ref,
  argv: readonly string[],
  options: { readonly tty?: boolean; readonly environment?: Record<string, string> } = {},
) {
  const { kernelId, generation } = ref;
  const { tty = false, environment = {} } = options;
  const stream = await manager.open({
    $case: "exec",
    value: {
      kernelId,
      generation,
      argv: [...argv],
      tty,
      cols: 80,
      rows: 24,
      environment,
      workdir: "",
      stdin: true,
    },
  });
  let seen = "";
  async function read(): Promise<ExecResult> {
    let stdout = "";
    let stderr = "";
    for await (const frame of readFrames(stream)) {
      if (frame.type === "stdout") {
        stdout += Buffer.from(frame.bytes).toString();
        seen = stdout;
      }
      if (frame.type === "stderr") stderr += Buffer.from(frame.bytes).toString();
      if (frame.type === "exit") return { stdout, stderr, code: frame.code, error: frame.reason };
      if (frame.type === "error") return { stdout, stderr, code: undefined, error: frame.code };
    }
    return { stdout, stderr, code: undefined, error: "cut" };
  }
  const result = read();
  result.catch(() => {});
  return {
    result,
    seen: () => seen,
    send: (frame: Frame) => writeFrame(stream, frame),
    leave: () => stream.destroy(),
  };
}

/** Runs a command in a kernel to its end. */
export async function exec(
  manager: TestManager,
  ref: Ref,
  argv: readonly string[],
  stdin = "",
): Promise<ExecResult> {
  const running = await startExec(manager, ref, argv);
  if (stdin !== "") await running.send({ type: "stdin", bytes: Buffer.from(stdin) }).catch(() => {});
  await running.send({ type: "stdin-eof" }).catch(() => {});
  const result = await running.result;
  running.leave();
  return result;
}
