import { z } from "zod";
import {
  cpuInput,
  durationInput,
  id,
  page,
  pageQuery,
  plainName,
  queryInteger,
  queryIntegerOr,
  sessionName,
  sizeInput,
  slotsOutput,
  tag,
  timestamp,
} from "./primitives.ts";
import { defineRoute, needs } from "./route.ts";
import { SESSION_RESULTS, SESSION_STATUSES, SESSION_TYPES } from "./states.ts";

/**
 * Names are checked by the admission rules, so that all refusals come together. One name no object of ours can hold,
 * and it would be dropped without a word.
 */
const environment = z
  .preprocess(
    (given: Record<string, string>, context) => {
      if (typeof given === "object" && given !== null && Object.hasOwn(given, "__proto__")) {
        context.addIssue({ code: "custom", message: "No environment variable can be named `__proto__`." });
      }
      return given;
    },
    z.record(z.string().max(256), z.string().max(131_072)),
  )
  .meta({ description: "Environment variables" });
const tags = z.array(tag).max(20);

export const requestedSlots = z.strictObject({
  cpu: cpuInput.optional(),
  mem: sizeInput.optional(),
  shm: sizeInput.optional(),
});

/** The system's limit counts bytes of UTF-8; that is checked where sessions are admitted and commands are run. */
const argument = z.string().max(131_071, "An argument has at most 131071 bytes; put more into a file.");
const argv = z.array(argument).min(1).max(1024);

/** What a batch session runs: an argv that is executed as it is, or one string for `/bin/sh -c`. */
export const command = z.union([argv, argument.min(1)]);

export const createSession = z.strictObject({
  type: z.enum(SESSION_TYPES).default("interactive"),
  name: sessionName.optional(),
  image: z.string().min(1).max(512).default("host"),
  group: plainName.optional(),
  slots: requestedSlots.default({}),
  environment: environment.default({}),
  command: command.optional(),
  useEntrypoint: z.boolean().default(false),
  priority: z.int().min(0).max(100).default(10),
  tags: tags.default([]),
  startsAt: timestamp.optional(),
  /** Batch: time of running after which the command is ended (exit code 124). */
  timeout: durationInput.optional(),
  preopenPorts: z
    .array(
      z.int().min(1024, "A port is between 1024 and 65535.").max(65535, "A port is between 1024 and 65535."),
    )
    .max(50)
    .default([]),
  /** Number of identical sessions; names get `-1`, `-2`, … */
  count: z.int().min(1).max(100).default(1),
});
export type CreateSession = z.infer<typeof createSession>;
export type CreateSessionInput = z.input<typeof createSession>;

export const session = z.object({
  id,
  name: z.string(),
  type: z.enum(SESSION_TYPES),
  status: z.enum(SESSION_STATUSES),
  /** Stable code of the reason of the present status, or null. */
  statusReason: z.string().nullable(),
  /** The reason in a sentence. */
  statusMessage: z.string().nullable(),
  /** 1 is next in its resource group; null when it does not wait or waits for a start time. */
  queuePosition: z.int().nullable(),
  exitCode: z.int().nullable(),
  result: z.enum(SESSION_RESULTS),
  image: z.string(),
  group: z.string(),
  /** Name of the node's agent, or null. */
  agent: z.string().nullable(),
  owner: z.object({ id, email: z.string() }),
  slots: slotsOutput,
  priority: z.int(),
  tags: z.array(z.string()),
  command: z.union([z.array(z.string()), z.string()]).nullable(),
  preopenPorts: z.array(z.int()),
  timeoutMs: z.int().nullable(),
  startsAt: timestamp.nullable(),
  createdAt: timestamp,
  startedAt: timestamp.nullable(),
  endedAt: timestamp.nullable(),
});
export type Session = z.infer<typeof session>;

export const kernelUsage = z.object({
  at: timestamp,
  cpu: z.int(),
  mem: z.int(),
  memLimit: z.int(),
  ioRead: z.int(),
  ioWrite: z.int(),
  netRx: z.int(),
  netTx: z.int(),
  pids: z.int(),
  scratchUsed: z.int(),
  scratchTotal: z.int(),
});

export const kernel = z.object({
  id,
  role: z.string(),
  index: z.int(),
  status: z.enum(SESSION_STATUSES),
  agent: z.string().nullable(),
  containerId: z.string().nullable(),
  exitCode: z.int().nullable(),
  slots: slotsOutput,
  usage: kernelUsage.nullable(),
});

export const sessionDetail = session.extend({
  kernels: z.array(kernel),
  /** Values are shown to the owner only; everybody else sees null. */
  environment: z.record(z.string(), z.string().nullable()),
  /** What admission raised or added, in sentences. */
  notices: z.array(z.string()),
  pull: z.object({ phase: z.string(), doneBytes: z.int(), totalBytes: z.int() }).nullable(),
});
export type SessionDetail = z.infer<typeof sessionDetail>;

export const historyEntry = z.object({
  seq: z.int(),
  at: timestamp,
  from: z.enum(SESSION_STATUSES).nullable(),
  to: z.enum(SESSION_STATUSES),
  reason: z.string(),
  message: z.string().nullable(),
  actor: z.string().meta({ description: "E-mail of a user, `scheduler`, `manager`, or `agent:<name>`" }),
});
export type HistoryEntry = z.infer<typeof historyEntry>;

export const sessionParam = z.object({
  session: z
    .string()
    .min(1)
    .max(64)
    .meta({ description: "Session id, or name of a live (else the latest) session; one's own comes first" }),
});

export const listSessionsQuery = z.strictObject({
  ...pageQuery,
  /** `live` (default): not ended; `all`; `ended`. */
  state: z.enum(["live", "ended", "all"]).default("live"),
  status: z.enum(SESSION_STATUSES).optional(),
  type: z.enum(SESSION_TYPES).optional(),
  group: plainName.optional(),
  agent: z.string().max(100).optional(),
  tag: z.string().max(64).optional(),
  q: z.string().max(64).optional().meta({ description: "Part of the name" }),
  owner: z
    .string()
    .max(254)
    .optional()
    .meta({ description: "E-mail or id; `me` is the default for users, `all` needs session.read-any" }),
  sort: z.enum(["-created", "created", "name", "-name", "-ended"]).default("-created"),
});

export const sessionRoutes = {
  create: defineRoute({
    id: "sessions.create",
    method: "POST",
    path: "/api/v1/sessions",
    tag: "Sessions",
    summary: "Queue a session, or `count` identical ones: all of them or none",
    access: needs("session.create"),
    body: createSession,
    answer: { kind: "json", status: 201, schema: z.object({ items: z.array(sessionDetail) }) },
    idempotent: true,
    errors: ["admission-refused", "session-name-in-use", "image-not-found", "group-not-found"],
  }),
  list: defineRoute({
    id: "sessions.list",
    method: "GET",
    path: "/api/v1/sessions",
    tag: "Sessions",
    summary: "List sessions",
    access: needs("session.read"),
    query: listSessionsQuery,
    answer: { kind: "json", status: 200, schema: page(session) },
  }),
  get: defineRoute({
    id: "sessions.get",
    method: "GET",
    path: "/api/v1/sessions/{session}",
    tag: "Sessions",
    summary: "Show a session",
    access: needs("session.read"),
    params: sessionParam,
    answer: { kind: "json", status: 200, schema: sessionDetail },
  }),
  update: defineRoute({
    id: "sessions.update",
    method: "PATCH",
    path: "/api/v1/sessions/{session}",
    tag: "Sessions",
    summary: "Rename a session, change its tags or, while it waits, its priority",
    access: needs("session.write"),
    params: sessionParam,
    body: z.strictObject({
      name: sessionName.optional(),
      tags: tags.optional(),
      priority: z.int().min(0).max(100).optional(),
    }),
    answer: { kind: "json", status: 200, schema: sessionDetail },
    errors: ["session-name-in-use"],
  }),
  terminate: defineRoute({
    id: "sessions.terminate",
    method: "DELETE",
    path: "/api/v1/sessions/{session}",
    tag: "Sessions",
    summary:
      "Terminate a session; again changes nothing. `force` ends it at once, also when its node is lost",
    access: needs("session.write"),
    params: sessionParam,
    query: z.strictObject({ force: z.enum(["true", "false"]).default("false") }),
    answer: { kind: "json", status: 202, schema: session },
  }),
  history: defineRoute({
    id: "sessions.history",
    method: "GET",
    path: "/api/v1/sessions/{session}/history",
    tag: "Sessions",
    summary: "Every transition with time, reason and actor",
    access: needs("session.read"),
    params: sessionParam,
    answer: { kind: "json", status: 200, schema: z.object({ items: z.array(historyEntry) }) },
  }),
  logs: defineRoute({
    id: "sessions.logs",
    method: "GET",
    path: "/api/v1/sessions/{session}/logs",
    tag: "Sessions",
    summary: "Output of a session",
    description:
      "Frames of the container's output (docs/api.md: LOG, LOG_GAP, LOG_END) as application/vnd.berth.frames; with `format=text` the plain bytes of both streams. `follow=true` goes on until the session ends.",
    access: needs("session.read"),
    params: sessionParam,
    query: z.strictObject({
      follow: z.enum(["true", "false"]).default("false"),
      offset: queryIntegerOr(0, 0),
      tail: queryInteger(0, 1_000_000)
        .optional()
        .meta({ description: "Only the last N lines; not with `offset`" }),
      format: z.enum(["frames", "text"]).default("frames"),
      kernel: z.string().max(64).optional(),
    }),
    answer: { kind: "stream", contentType: "application/vnd.berth.frames", description: "Frames" },
  }),
  exec: defineRoute({
    id: "sessions.exec",
    method: "GET",
    path: "/api/v1/sessions/{session}/exec",
    tag: "Sessions",
    summary: "Run a command in a running session over a WebSocket",
    description:
      "The first message is an OPEN frame with execOpen as JSON; then STDIN, STDIN_EOF, RESIZE and SIGNAL go in, STDOUT, STDERR, WINDOW, EXIT and ERROR come out. One frame a message. The client sends at most as many STDIN bytes as WINDOW frames have granted.",
    access: needs("session.exec"),
    params: sessionParam,
    answer: { kind: "websocket", description: "Frames" },
  }),
  attach: defineRoute({
    id: "sessions.attach",
    method: "GET",
    path: "/api/v1/sessions/{session}/attach",
    tag: "Sessions",
    summary: "Watch the output of the main process from now on, over a WebSocket",
    access: needs("session.exec"),
    params: sessionParam,
    answer: { kind: "websocket", description: "Frames" },
  }),
};

export const execOpen = z.strictObject({
  argv,
  tty: z.boolean().default(false),
  cols: z.int().min(1).max(1000).default(80),
  rows: z.int().min(1).max(1000).default(24),
  environment: environment.default({}),
  workdir: z.string().max(4096).optional(),
  stdin: z.boolean().default(false),
});
export type ExecOpen = z.infer<typeof execOpen>;
