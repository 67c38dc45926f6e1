import { z } from "zod";
import { queryInteger, timestamp } from "./primitives.ts";
import { defineRoute, needs, PUBLIC } from "./route.ts";

export const version = z.object({
  version: z.string(),
  commit: z.string(),
  clusterId: z.string().nullable(),
  apiVersion: z.literal(1),
});

export const EVENT_KINDS = [
  "session.created",
  "session.status",
  "session.updated",
  "session.waiting",
  "session.pull",
  "agent.status",
  "agent.updated",
  "image.pull",
  "image.updated",
  "group.updated",
  "user.updated",
] as const;
export type EventKind = (typeof EVENT_KINDS)[number];

/** One event of the stream. `seq` orders them and is the SSE id, so that `Last-Event-ID` resumes. */
export const event = z.object({
  seq: z.int(),
  at: timestamp,
  kind: z.enum(EVENT_KINDS),
  /** Id of the session, agent, image, group or user. */
  subject: z.string(),
  data: z.record(z.string(), z.unknown()),
});
export type Event = z.infer<typeof event>;

export const systemRoutes = {
  version: defineRoute({
    id: "system.version",
    method: "GET",
    path: "/api/v1/version",
    tag: "System",
    summary: "Version of the manager",
    access: PUBLIC,
    answer: { kind: "json", status: 200, schema: version },
  }),
  health: defineRoute({
    id: "system.health",
    method: "GET",
    path: "/healthz",
    tag: "System",
    summary: "Whether the process lives",
    access: PUBLIC,
    answer: { kind: "json", status: 200, schema: z.object({ status: z.literal("ok") }) },
  }),
  ready: defineRoute({
    id: "system.ready",
    method: "GET",
    path: "/readyz",
    tag: "System",
    summary: "Whether it can serve; 503 with the reason when not",
    access: PUBLIC,
    answer: {
      kind: "json",
      status: 200,
      schema: z.object({ status: z.literal("ready"), agentsReady: z.int() }),
    },
    errors: ["not-ready"],
  }),
  metrics: defineRoute({
    id: "system.metrics",
    method: "GET",
    path: "/metrics",
    tag: "System",
    summary: "Prometheus metrics",
    access: needs("metrics.read"),
    answer: {
      kind: "stream",
      contentType: "text/plain; version=0.0.4",
      description: "Prometheus text format",
    },
  }),
  openapi: defineRoute({
    id: "system.openapi",
    method: "GET",
    path: "/api/v1/openapi.json",
    tag: "System",
    summary: "This description",
    access: PUBLIC,
    answer: { kind: "json", status: 200, schema: z.record(z.string(), z.unknown()) },
  }),
  events: defineRoute({
    id: "events.stream",
    method: "GET",
    path: "/api/v1/events",
    tag: "Events",
    summary: "Server-sent events; `Last-Event-ID` or `after` resumes. Users see what is theirs, admins all",
    access: needs("event.read"),
    query: z.strictObject({
      after: queryInteger(0).optional(),
      session: z.string().max(64).optional(),
      kind: z
        .string()
        .max(200)
        .optional()
        .meta({ description: "Kinds, comma-separated; a prefix such as `session` takes all of a family" }),
    }),
    answer: { kind: "stream", contentType: "text/event-stream", description: "Events" },
  }),
};
