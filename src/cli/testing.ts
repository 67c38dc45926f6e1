import type { Server, ServerWebSocket } from "bun";
import { ALL_ROUTES } from "../contract/api.ts";
import { statusOf } from "../contract/errors.ts";
import type { Session, SessionDetail } from "../contract/sessions.ts";
import { type Clock, systemClock } from "../kit/clock.ts";
import { BerthError } from "../kit/errors.ts";
import { encodeFrame, type Frame } from "../kit/frames.ts";
import { type Io, type SignalName, writeFault } from "./io.ts";
import { runCli } from "./main.ts";

/** An `Io` for tests that collects what is written and lets a test send signals and type. */
export type TestIo = Io & {
  readonly stdout: () => string;
  readonly stderr: () => string;
  readonly stdoutBytes: () => Uint8Array;
  readonly raw: () => readonly boolean[];
  readonly signal: (name: SignalName) => void;
  /** How many listeners signals have. */
  readonly listening: () => number;
};

export type TestIoOptions = {
  readonly env?: Readonly<Record<string, string | undefined>>;
  readonly stdin?: AsyncIterable<Uint8Array> | string;
  readonly stdinTty?: boolean;
  readonly stdoutTty?: boolean;
  readonly stderrTty?: boolean;
  readonly root?: boolean;
  readonly argvIsText?: boolean;
  /** Bytes of stdout after which its reader is gone. */
  readonly closeStdoutAfter?: number;
  /** Bytes of stdout after which the disk that takes it is full. */
  readonly fullStdoutAfter?: number;
};

export function testIo(options: TestIoOptions = {}): TestIo {
  const out: Uint8Array[] = [];
  const err: Uint8Array[] = [];
  const raw: boolean[] = [];
  const listeners = new Map<SignalName, Set<() => void>>();
  let written = 0;
  const bytes = (data: string | Uint8Array) => (typeof data === "string" ? Buffer.from(data) : data.slice());
  async function* typed() {
    if (typeof options.stdin === "string") yield Buffer.from(options.stdin);
    else if (options.stdin !== undefined) yield* options.stdin;
  }
  return {
    env: { HOME: "/nowhere", ...options.env },
    stdinTty: options.stdinTty ?? false,
    stdoutTty: options.stdoutTty ?? false,
    stderrTty: options.stderrTty ?? false,
    root: options.root ?? false,
    hostname: "test-host",
    argvIsText: options.argvIsText ?? true,
    out: async (data) => {
      written += data.length;
      if (written > (options.closeStdoutAfter ?? Number.POSITIVE_INFINITY)) {
        throw new BerthError("output-closed", "Nobody reads the output any more.");
      }
      if (written > (options.fullStdoutAfter ?? Number.POSITIVE_INFINITY)) {
        throw writeFault(
          Object.assign(new Error("ENOSPC: no space left on device, write"), { code: "ENOSPC" }),
        );
      }
      out.push(bytes(data));
    },
    err: async (data) => {
      err.push(bytes(data));
    },
    stdin: typed,
    setRaw: (on) => {
      raw.push(on);
    },
    size: () => ({ cols: 100, rows: 30 }),
    onSignal: (name, fn) => {
      const set = listeners.get(name) ?? new Set();
      listeners.set(name, set.add(fn));
      return () => set.delete(fn);
    },
    stdout: () => Buffer.concat(out).toString(),
    stderr: () => Buffer.concat(err).toString(),
    stdoutBytes: () => Buffer.concat(out),
    raw: () => raw,
    signal: (name) => {
      for (const fn of listeners.get(name) ?? []) fn();
    },
    listening: () => [...listeners.values()].reduce((sum, set) => sum + set.size, 0),
  };
}

export type Call = {
  readonly route: string;
  readonly params: Readonly<Record<string, string>>;
  readonly query: Readonly<Record<string, string>>;
  readonly headers: Headers;
  readonly body: unknown;
  readonly signal: AbortSignal;
};
/** What a fake route answers: JSON with the contract's status, or a response. */
export type Handler = (call: Call) => unknown | Promise<unknown>;

type Socket = ServerWebSocket<{ readonly route: string }>;
export type SocketHandler = {
  readonly open?: (socket: Socket) => void;
  readonly message: (socket: Socket, bytes: Uint8Array) => void;
};

export type FakeManager = {
  readonly url: string;
  readonly calls: readonly Call[];
  readonly callsOf: (route: string) => readonly Call[];
  readonly stop: () => Promise<void>;
};

const PATTERNS = ALL_ROUTES.map((route) => {
  const names: string[] = [];
  const source = route.path.replace(/\{(\w+)\}/g, (_, name: string) => {
    names.push(name);
    return "([^/]+)";
  });
  return { route, names, regex: new RegExp(`^${source}$`) };
});

export function problemResponse(code: string, detail: string, extra: Record<string, unknown> = {}): Response {
  const status = statusOf(code);
  const body = {
    type: `urn:berth:error:${code}`,
    title: code,
    status,
    code,
    detail,
    requestId: "req-1",
    ...extra,
  };
  return Response.json(body, { status, headers: { "content-type": "application/problem+json" } });
}

/** A server that answers the contract's routes as a test says. */
export function fakeManager(
  handlers: Readonly<Record<string, Handler>>,
  options: {
    readonly sockets?: Readonly<Record<string, SocketHandler>>;
    readonly tls?: { readonly cert: string; readonly key: string };
    readonly unix?: string;
  } = {},
): FakeManager {
  const calls: Call[] = [];
  const sockets = options.sockets ?? {};

  async function answer(request: Request, server: Server<{ readonly route: string }>) {
    const url = new URL(request.url);
    const found = PATTERNS.map((pattern) => ({ ...pattern, match: pattern.regex.exec(url.pathname) })).find(
      ({ route, match }) => match !== null && route.method === request.method,
    );
    if (found === undefined)
      return problemResponse("not-found", `no route ${request.method} ${url.pathname}`);
    const { route, names, match } = found;
    const params = names.map((name, index) => [name, decodeURIComponent(match?.[index + 1] ?? "")] as const);
    const text = await request.text();
    const call: Call = {
      route: route.id,
      params: Object.fromEntries(params),
      query: Object.fromEntries(url.searchParams),
      headers: request.headers,
      body: text === "" ? undefined : JSON.parse(text),
      signal: request.signal,
    };
    calls.push(call);
    if (sockets[route.id] !== undefined && server.upgrade(request, { data: { route: route.id } }))
      return undefined;
    const handler = handlers[route.id];
    if (handler === undefined) return problemResponse("not-found", `${route.id} is not part of this test`);
    const value = await handler(call);
    if (value instanceof Response) return value;
    if (route.answer.kind === "empty") return new Response(null, { status: 204 });
    return Response.json(value, { status: route.answer.kind === "json" ? route.answer.status : 200 });
  }

  const common = {
    fetch: answer,
    websocket: {
      open: (socket: Socket) => sockets[socket.data.route]?.open?.(socket),
      message: (socket: Socket, message: string | Buffer) =>
        sockets[socket.data.route]?.message(socket, Buffer.from(message)),
    },
  };
  const server =
    options.unix === undefined
      ? Bun.serve({ ...common, port: 0, idleTimeout: 0, ...(options.tls && { tls: options.tls }) })
      : Bun.serve({ ...common, unix: options.unix });
  return {
    url:
      options.unix === undefined
        ? `${options.tls ? "https" : "http"}://127.0.0.1:${server.port}`
        : "http://localhost",
    calls,
    callsOf: (route) => calls.filter((call) => call.route === route),
    stop: () => server.stop(true),
  };
}

export const SESSION: Session = {
  id: "01930000-0000-7000-8000-000000000001",
  name: "calm-otter-1",
  type: "batch",
  status: "RUNNING",
  statusReason: null,
  statusMessage: null,
  queuePosition: null,
  exitCode: null,
  result: "UNDEFINED",
  image: "host",
  group: "default",
  agent: "node-a",
  owner: { id: "01930000-0000-7000-8000-0000000000aa", email: "kim@lab.example" },
  slots: { cpu: 1000, mem: 1_073_741_824, shm: 67_108_864 },
  priority: 10,
  tags: [],
  command: ["hostname"],
  preopenPorts: [],
  timeoutMs: null,
  startsAt: null,
  createdAt: "2026-11-30T10:00:00.000Z",
  startedAt: null,
  endedAt: null,
};

/** A session as the manager shows it, with what differs. */
export function detail(changes: Partial<SessionDetail> = {}): SessionDetail {
  return { ...SESSION, kernels: [], environment: {}, notices: [], pull: null, ...changes };
}

export const ENDED = detail({
  status: "TERMINATED",
  statusReason: "task-finished",
  statusMessage: "The command finished.",
  exitCode: 0,
  result: "SUCCESS",
  endedAt: "2026-11-30T10:01:00.000Z",
});

/** An answer of frames. */
export function framesResponse(frames: readonly Frame[]): Response {
  const all = Buffer.concat(frames.map((frame) => encodeFrame(frame)));
  return new Response(all, { headers: { "content-type": "application/vnd.berth.frames" } });
}

export const logFrame = (offset: number, text: string, stream: "stdout" | "stderr" = "stdout"): Frame => ({
  type: "log",
  offset,
  stream,
  bytes: Buffer.from(text),
});

/** A clock whose waits pass at once, so that no test waits for a retry or the next look. */
export const PROMPT_CLOCK: Clock = { ...systemClock, sleep: async () => {} };

/** Runs the client against a manager at `url` and gives its exit code with what it wrote. */
export async function cli(url: string, argv: readonly string[], options: TestIoOptions = {}) {
  const io = testIo({ ...options, env: { BERTH_URL: url, BERTH_TOKEN: "berth_test", ...options.env } });
  const code = await runCli(argv, {}, io, PROMPT_CLOCK);
  return { code, io, stdout: io.stdout(), stderr: io.stderr() };
}
