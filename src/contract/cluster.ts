import { z } from "zod";
import {
  cpuInput,
  DURATION_LIMIT,
  durationInput,
  id,
  MAX_DURATION_MS,
  nodeSlots,
  page,
  pageQuery,
  plainName,
  sizeInput,
  timestamp,
} from "./primitives.ts";
import { defineRoute, needs } from "./route.ts";
import { AGENT_STATUSES, PLACEMENTS, SCHEDULERS, SESSION_TYPES, SEVERITIES } from "./states.ts";

export const healthItem = z.object({
  code: z.string(),
  severity: z.enum(SEVERITIES),
  title: z.string(),
  message: z.string(),
  since: timestamp,
});
export type HealthItem = z.infer<typeof healthItem>;

export const agent = z.object({
  id,
  name: z.string(),
  group: z.string(),
  status: z.enum(AGENT_STATUSES),
  schedulable: z.boolean(),
  /** Whether its first full report since it connected is reconciled; nothing is placed before. */
  ready: z.boolean(),
  version: z.string(),
  arch: z.string(),
  os: z.string(),
  kernelVersion: z.string(),
  engine: z.string(),
  cpuModel: z.string(),
  hostEnvironment: z.boolean(),
  capacity: nodeSlots,
  reserved: nodeSlots,
  /** Derived from the kernels that occupy the node. */
  used: nodeSlots,
  free: nodeSlots,
  sessions: z.int(),
  health: z.array(healthItem),
  usage: z
    .object({
      at: timestamp,
      cpu: z.int(),
      mem: z.int(),
      diskUsed: z.int(),
      diskTotal: z.int(),
      load1: z.number(),
    })
    .nullable(),
  joinedAt: timestamp,
  lastSeenAt: timestamp.nullable(),
  certificateExpiresAt: timestamp.nullable(),
});
export type Agent = z.infer<typeof agent>;

export const group = z.object({
  id,
  name: z.string(),
  description: z.string(),
  active: z.boolean(),
  /** Off: those who manage groups alone see and use it and its nodes. */
  public: z.boolean(),
  isDefault: z.boolean(),
  scheduler: z.enum(SCHEDULERS),
  placement: z.enum(PLACEMENTS),
  allowedTypes: z.array(z.enum(SESSION_TYPES)),
  pendingTimeoutMs: z.int().nullable(),
  /** Deadlines of the phases in milliseconds; null takes the default. */
  deadlines: z.object({
    SCHEDULED: z.int().nullable(),
    PREPARING: z.int().nullable(),
    PULLING: z.int().nullable(),
    CREATING: z.int().nullable(),
    TERMINATING: z.int().nullable(),
  }),
  agents: z.int(),
  capacity: nodeSlots,
  used: nodeSlots,
  pending: z.int(),
  createdAt: timestamp,
});
export type Group = z.infer<typeof group>;

const LEAST_MS = 1000;
/** A time that a session may stay in a phase. None at all would end every session before it could go on. */
const phaseTime = durationInput.refine((ms) => ms >= LEAST_MS, "The shortest time is 1s.");
const deadlinesInput = z.strictObject({
  SCHEDULED: phaseTime.nullable().optional(),
  PREPARING: phaseTime.nullable().optional(),
  PULLING: phaseTime.nullable().optional(),
  CREATING: phaseTime.nullable().optional(),
  TERMINATING: phaseTime.nullable().optional(),
});
const groupFields = {
  description: z.string().max(500).optional(),
  active: z.boolean().optional(),
  public: z.boolean().optional(),
  scheduler: z.enum(SCHEDULERS).optional(),
  placement: z.enum(PLACEMENTS).optional(),
  allowedTypes: z.array(z.enum(SESSION_TYPES)).min(1).optional(),
  pendingTimeout: phaseTime.nullable().optional(),
  deadlines: deadlinesInput.optional(),
  isDefault: z.literal(true).optional(),
};
export const createGroup = z.strictObject({ name: plainName, ...groupFields });
export const updateGroup = z.strictObject({ name: plainName.optional(), ...groupFields });

export const joinToken = z.object({
  id,
  createdAt: timestamp,
  expiresAt: timestamp,
  usesLeft: z.int(),
  createdBy: z.string(),
});

const limit = z.int().min(0).nullable();
/** A resource policy: each limit is a number, 0 included, or null for no limit. */
export const policyLimits = z.object({
  maxConcurrentSessions: limit,
  maxContainersPerSession: limit,
  maxPendingSessions: limit,
  maxPendingSlots: z.record(z.string(), z.int().min(0)).nullable(),
  totalSlots: z.record(z.string(), z.int().min(0)).nullable(),
  maxPriority: z.int().min(0).max(100).nullable(),
  maxSessionLifetimeMs: limit,
});
/** What a policy is changed to. A life of less than a second would be none. */
export const policyChange = policyLimits
  .extend({
    maxSessionLifetimeMs: z
      .int()
      .min(LEAST_MS, "The shortest life of a session is 1s.")
      .max(MAX_DURATION_MS, DURATION_LIMIT)
      .nullable(),
  })
  .partial();
export const policy = z.object({
  id,
  name: z.string(),
  isDefault: z.boolean(),
  limits: policyLimits,
  createdAt: timestamp,
});

const agentParam = z.object({ agent: z.string().max(100).meta({ description: "Agent id or name" }) });
const groupParam = z.object({ group: z.string().max(64).meta({ description: "Group id or name" }) });

export const clusterRoutes = {
  listAgents: defineRoute({
    id: "agents.list",
    method: "GET",
    path: "/api/v1/agents",
    tag: "Nodes",
    summary: "List agents, one for each node",
    access: needs("agent.read"),
    query: z.strictObject({
      ...pageQuery,
      status: z.enum(AGENT_STATUSES).optional(),
      group: plainName.optional(),
    }),
    answer: { kind: "json", status: 200, schema: page(agent) },
  }),
  getAgent: defineRoute({
    id: "agents.get",
    method: "GET",
    path: "/api/v1/agents/{agent}",
    tag: "Nodes",
    summary: "Show an agent",
    access: needs("agent.read"),
    params: agentParam,
    answer: { kind: "json", status: 200, schema: agent },
  }),
  updateAgent: defineRoute({
    id: "agents.update",
    method: "PATCH",
    path: "/api/v1/agents/{agent}",
    tag: "Nodes",
    summary: "Set schedulable, resource group, name or what is reserved for the node itself",
    access: needs("agent.write"),
    params: agentParam,
    body: z.strictObject({
      name: plainName.optional(),
      schedulable: z.boolean().optional(),
      group: plainName.optional(),
      reserved: z.strictObject({ cpu: cpuInput.optional(), mem: sizeInput.optional() }).optional(),
    }),
    answer: { kind: "json", status: 200, schema: agent },
  }),
  removeAgent: defineRoute({
    id: "agents.remove",
    method: "DELETE",
    path: "/api/v1/agents/{agent}",
    tag: "Nodes",
    summary:
      "Remove an agent: its certificate is dead from then on. Refused while sessions run there, unless forced",
    access: needs("agent.remove"),
    params: agentParam,
    query: z.strictObject({ force: z.enum(["true", "false"]).default("false") }),
    answer: { kind: "empty", status: 204 },
    errors: ["in-use"],
  }),
  listGroups: defineRoute({
    id: "groups.list",
    method: "GET",
    path: "/api/v1/groups",
    tag: "Resource groups",
    summary: "List resource groups",
    access: needs("group.read"),
    query: z.strictObject(pageQuery),
    answer: { kind: "json", status: 200, schema: page(group) },
  }),
  createGroup: defineRoute({
    id: "groups.create",
    method: "POST",
    path: "/api/v1/groups",
    tag: "Resource groups",
    summary: "Create a resource group",
    access: needs("group.write"),
    body: createGroup,
    answer: { kind: "json", status: 201, schema: group },
    idempotent: true,
    errors: ["name-in-use"],
  }),
  getGroup: defineRoute({
    id: "groups.get",
    method: "GET",
    path: "/api/v1/groups/{group}",
    tag: "Resource groups",
    summary: "Show a resource group",
    access: needs("group.read"),
    params: groupParam,
    answer: { kind: "json", status: 200, schema: group },
  }),
  updateGroup: defineRoute({
    id: "groups.update",
    method: "PATCH",
    path: "/api/v1/groups/{group}",
    tag: "Resource groups",
    summary: "Change a resource group",
    access: needs("group.write"),
    params: groupParam,
    body: updateGroup,
    answer: { kind: "json", status: 200, schema: group },
  }),
  removeGroup: defineRoute({
    id: "groups.remove",
    method: "DELETE",
    path: "/api/v1/groups/{group}",
    tag: "Resource groups",
    summary: "Remove a resource group that holds no agents and no live sessions",
    access: needs("group.write"),
    params: groupParam,
    answer: { kind: "empty", status: 204 },
    errors: ["in-use"],
  }),
  listJoinTokens: defineRoute({
    id: "join-tokens.list",
    method: "GET",
    path: "/api/v1/join-tokens",
    tag: "Nodes",
    summary: "List join tokens that still work",
    access: needs("join-token.write"),
    query: z.strictObject(pageQuery),
    answer: { kind: "json", status: 200, schema: page(joinToken) },
  }),
  createJoinToken: defineRoute({
    id: "join-tokens.create",
    method: "POST",
    path: "/api/v1/join-tokens",
    tag: "Nodes",
    summary: "Create a token with which a new node joins; its text is shown once",
    access: needs("join-token.write"),
    body: z.strictObject({
      ttl: durationInput.optional().meta({ description: "Default 1 h, at most 30 d" }),
      uses: z.int().min(1).max(1000).default(1),
      group: plainName.optional(),
    }),
    answer: { kind: "json", status: 201, schema: z.object({ joinToken, secret: z.string() }) },
  }),
  deleteJoinToken: defineRoute({
    id: "join-tokens.delete",
    method: "DELETE",
    path: "/api/v1/join-tokens/{joinToken}",
    tag: "Nodes",
    summary: "End a join token",
    access: needs("join-token.write"),
    params: z.object({ joinToken: id }),
    answer: { kind: "empty", status: 204 },
  }),
  listPolicies: defineRoute({
    id: "policies.list",
    method: "GET",
    path: "/api/v1/policies",
    tag: "Resource policies",
    summary: "List resource policies",
    access: needs("policy.read"),
    query: z.strictObject(pageQuery),
    answer: { kind: "json", status: 200, schema: page(policy) },
  }),
  updatePolicy: defineRoute({
    id: "policies.update",
    method: "PATCH",
    path: "/api/v1/policies/{policy}",
    tag: "Resource policies",
    summary: "Change a resource policy's limits",
    access: needs("policy.write"),
    params: z.object({ policy: plainName }),
    body: z.strictObject({ limits: policyChange }),
    answer: { kind: "json", status: 200, schema: policy },
  }),
};
