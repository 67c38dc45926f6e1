import { existsSync, readFileSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Subprocess } from "bun";
import { z } from "zod";
import { createDockerEngine } from "../../../src/agent/engine/docker.ts";
import type { Agent } from "../../../src/contract/cluster.ts";
import type { HistoryEntry, Session, SessionDetail } from "../../../src/contract/sessions.ts";
import { isFinal } from "../../../src/contract/states.ts";
import { systemClock } from "../../../src/kit/clock.ts";
import { createFrameDecoder, encodeFrame, FRAME_CHUNK_BYTES, type Frame } from "../../../src/kit/frames.ts";
import { silentLogger } from "../../../src/kit/log.ts";
import { cleanUpNode, DOCKER_SOCKET } from "./engine.ts";

const MAIN = join(import.meta.dir, "../../../src/main.ts");
const READY_MS = 60_000;

const admin = z.object({ url: z.string(), email: z.string(), password: z.string() });
const joined = z.object({ secret: z.string() });
const identity = z.object({ agentId: z.string(), clusterId: z.string() });

type Role = {
  readonly process: Subprocess;
  /** Everything that it printed so far. */
  output(): string;
};

function launch(argv: readonly string[], env: Readonly<Record<string, string>> = {}): Role {
  const started = Bun.spawn([process.execPath, MAIN, ...argv], {
    stdin: "ignore",
    stdout: "pipe",
    stderr: "pipe",
    env: { PATH: process.env.PATH ?? "", HOME: "/nonexistent", LANG: "C.UTF-8", ...env },
  });
  let text = "";
  const read = async (stream: ReadableStream<Uint8Array>) => {
    const decoder = new TextDecoder();
    for await (const chunk of stream) text += decoder.decode(chunk, { stream: true });
  };
  void read(started.stdout);
  void read(started.stderr);
  return { process: started, output: () => text };
}

/** Asks again and again until there is an answer; the time limit is for what hangs, never a measure. */
export async function eventually<T>(
  what: string,
  ask: () => Promise<T | undefined | false>,
  limitMs = READY_MS,
): Promise<T> {
  const end = Date.now() + limitMs;
  let last: unknown;
  while (Date.now() < end) {
    const found = await ask().catch((err: unknown) => {
      last = err;
      return undefined;
    });
    if (found !== undefined && found !== false) return found;
    await Bun.sleep(100);
  }
  throw new Error(`not in time: ${what}${last === undefined ? "" : ` (${String(last)})`}`);
}

async function stopRole(role: Role | undefined, signal: NodeJS.Signals): Promise<void> {
  if (role === undefined || role.process.exitCode !== null) return;
  role.process.kill(signal);
  await role.process.exited;
}

export type LabOptions = {
  /** Further flags of the manager and of the agent. */
  readonly manager?: readonly string[];
  readonly agent?: readonly string[];
};

/**
 * A manager and an agent as processes of their own, on free ports and data folders of their own, with the real
 * engine. Each can be killed and started again.
 */
export async function openLab(options: LabOptions = {}) {
  const dir = await mkdtemp(join(tmpdir(), "berth-lab-"));
  const managerDir = join(dir, "manager");
  const agentDir = join(dir, "agent");
  let manager: Role | undefined;
  let agent: Role | undefined;
  let listen = "127.0.0.1:0";
  let agentListen = "127.0.0.1:0";
  let token = "";

  async function startManager(): Promise<void> {
    const flags = ["--data-dir", managerDir, "--listen", listen, "--agent-listen", agentListen];
    // Short times: the tests look at what happens, not at how long it takes.
    const times = ["--agent-heartbeat", "1s", "--agent-lost-after", "6s", "--agent-report", "5s"];
    const role = launch(["manager", ...flags, ...times, "--log-level", "debug", ...(options.manager ?? [])], {
      BERTH_CHECK_ANSWERS: "1",
    });
    manager = role;
    await eventually("the manager is ready", async () => {
      if (role.process.exitCode !== null) throw new Error(`the manager ended:\n${role.output()}`);
      return role.output().includes("Berth is ready at");
    }).catch((err: unknown) => {
      throw new Error(`${String(err)}\n${role.output()}`);
    });
    if (listen.endsWith(":0")) {
      const ports = /"url":"http:\/\/127\.0\.0\.1:(\d+)","agentPort":(\d+)/.exec(role.output());
      listen = `127.0.0.1:${ports?.[1]}`;
      agentListen = `127.0.0.1:${ports?.[2]}`;
    }
  }

  const url = () => `http://${listen}`;

  async function api(method: string, path: string, body?: unknown): Promise<Response> {
    return fetch(url() + path, {
      method,
      headers: {
        authorization: `Bearer ${token}`,
        ...(body === undefined ? {} : { "content-type": "application/json" }),
      },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
  }

  /** The answer as the contract's type; anything but success is thrown with its text. */
  async function call<T>(method: string, path: string, body?: unknown): Promise<T> {
    const response = await api(method, `/api/v1${path}`, body);
    const text = await response.text();
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${text}`);
    return z.custom<T>().parse(text === "" ? undefined : JSON.parse(text));
  }

  async function signIn(): Promise<void> {
    const { email, password } = admin.parse(
      JSON.parse(readFileSync(join(managerDir, "initial-admin.json"), "utf8")),
    );
    const response = await fetch(`${url()}/api/v1/auth/login`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ email, password }),
    });
    const cookie = response.headers.getSetCookie()[0]?.split(";")[0] ?? "";
    const made = await fetch(`${url()}/api/v1/tokens`, {
      method: "POST",
      headers: { "content-type": "application/json", cookie, origin: url() },
      body: JSON.stringify({ name: "lab" }),
    });
    token = z.object({ secret: z.string() }).parse(await made.json()).secret;
  }

  async function startAgent(): Promise<void> {
    const fresh = !existsSync(join(agentDir, "identity.json"));
    const token = fresh ? ["--token", joined.parse(await call("POST", "/join-tokens", {})).secret] : [];
    const flags = ["--manager", url(), ...token, "--data-dir", agentDir, "--scratch-size", "64m"];
    const role = launch(["agent", ...flags, "--log-level", "debug", ...(options.agent ?? [])]);
    agent = role;
    await eventually("the node is ready", async () => {
      if (role.process.exitCode !== null) throw new Error(`the agent ended:\n${role.output()}`);
      const { items } = await call<{ items: Agent[] }>("GET", "/agents");
      return items.some((node) => node.ready);
    }).catch((err: unknown) => {
      throw new Error(`${String(err)}\n${role.output()}\n${manager?.output()}`);
    });
  }

  await startManager();
  await signIn();
  await startAgent();

  const show = (name: string) => call<SessionDetail>("GET", `/sessions/${name}`);
  const create = async (body: Record<string, unknown>) => {
    const small = { slots: { cpu: 100, mem: "64m", shm: "8m" }, ...body };
    const { items } = await call<{ items: SessionDetail[] }>("POST", "/sessions", small);
    return items;
  };
  const ended = (name: string, limitMs?: number) =>
    eventually(
      `${name} has ended`,
      async () => {
        const session = await show(name);
        return isFinal(session.status) && session;
      },
      limitMs,
    );
  const running = (name: string) =>
    eventually(`${name} runs`, async () => {
      const session = await show(name);
      if (isFinal(session.status)) {
        throw new Error(`${name} is ${session.status}: ${session.statusMessage ?? ""}`);
      }
      return session.status === "RUNNING" && session;
    });
  const logs = async (name: string, query = "format=text"): Promise<string> => {
    const response = await api("GET", `/api/v1/sessions/${name}/logs?${query}`);
    return response.text();
  };
  const batch = async (
    name: string,
    command: readonly string[] | string,
    more: Record<string, unknown> = {},
  ) => {
    await create({ type: "batch", name, command, ...more });
    return ended(name);
  };

  /** Runs a command in a session over the WebSocket, as a client does: never more input than was granted. */
  function exec(name: string, argv: readonly string[], input?: string) {
    const done = Promise.withResolvers<{ code: number | string; stdout: string; stderr: string }>();
    const socket = new WebSocket(`${url().replace("http", "ws")}/api/v1/sessions/${name}/exec`, {
      headers: { authorization: `Bearer ${token}` },
    });
    socket.binaryType = "arraybuffer";
    const out: { stdout: Buffer[]; stderr: Buffer[] } = { stdout: [], stderr: [] };
    const finish = (code: number | string) =>
      done.resolve({
        code,
        stdout: Buffer.concat(out.stdout).toString(),
        stderr: Buffer.concat(out.stderr).toString(),
      });
    const send = (frame: Frame) => socket.send(encodeFrame(frame));
    let rest = Buffer.from(input ?? "");
    let open = input !== undefined;
    const feed = (credit: number) => {
      for (let left = credit; left > 0 && rest.length > 0; ) {
        const bytes = rest.subarray(0, Math.min(left, FRAME_CHUNK_BYTES));
        rest = rest.subarray(bytes.length);
        left -= bytes.length;
        send({ type: "stdin", bytes });
      }
      if (!open || rest.length > 0) return;
      open = false;
      send({ type: "stdin-eof" });
    };
    socket.onopen = () => send({ type: "open", params: { argv, stdin: input !== undefined } });
    socket.onmessage = (event) => {
      for (const frame of createFrameDecoder().push(new Uint8Array(event.data))) {
        if (frame.type === "stdout" || frame.type === "stderr")
          out[frame.type].push(Buffer.from(frame.bytes));
        if (frame.type === "window") feed(frame.credit);
        if (frame.type === "exit" || frame.type === "error") finish(frame.code);
      }
    };
    socket.onclose = () => done.reject(new Error("the socket was closed before the command ended"));
    socket.onerror = () => done.reject(new Error("the socket failed"));
    return done.promise.finally(() => socket.close());
  }

  async function engineOfAgent() {
    const file = join(agentDir, "identity.json");
    if (!existsSync(file)) return undefined;
    const ownership = identity.parse(JSON.parse(readFileSync(file, "utf8")));
    return createDockerEngine({
      socketPath: DOCKER_SOCKET,
      ownership,
      dataDir: agentDir,
      clock: systemClock,
      log: silentLogger,
    });
  }

  return {
    dir,
    managerDir,
    agentDir,
    url,
    api,
    call,
    create,
    batch,
    show,
    ended,
    running,
    logs,
    exec,
    list: async (query = "state=all&limit=200") =>
      (await call<{ items: Session[] }>("GET", `/sessions?${query}`)).items,
    history: async (name: string) =>
      (await call<{ items: HistoryEntry[] }>("GET", `/sessions/${name}/history`)).items,
    terminate: (name: string, force = false) => call("DELETE", `/sessions/${name}?force=${force}`),
    node: async () => {
      const [only] = (await call<{ items: Agent[] }>("GET", "/agents")).items;
      if (only === undefined) throw new Error("there is no node");
      return only;
    },
    startManager,
    startAgent,
    killManager: () => stopRole(manager, "SIGKILL"),
    killAgent: () => stopRole(agent, "SIGKILL"),
    stopManager: () => stopRole(manager, "SIGTERM"),
    stopAgent: () => stopRole(agent, "SIGTERM"),
    output: () => `manager:\n${manager?.output() ?? ""}\nagent:\n${agent?.output() ?? ""}`,
    engine: engineOfAgent,
    /** Kills both and removes what they have on this machine. */
    close: async () => {
      await stopRole(agent, "SIGKILL");
      await stopRole(manager, "SIGKILL");
      const engine = await engineOfAgent();
      if (engine !== undefined) await cleanUpNode(engine, agentDir);
      await rm(dir, { recursive: true, force: true });
    },
  };
}

export type Lab = Awaited<ReturnType<typeof openLab>>;
