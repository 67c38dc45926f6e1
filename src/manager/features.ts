import { join } from "node:path";
import { Gauge, type Registry } from "prom-client";
import type { Clock } from "../kit/clock.ts";
import type { AgentId, GroupId, UserId } from "../kit/ids.ts";
import type { Logger } from "../kit/log.ts";
import { NO_SLOTS } from "../kit/slots.ts";
import type { ByteStream } from "../wire/byte-stream.ts";
import type { Ca } from "../wire/ca.ts";
import { createDataBroker } from "../wire/data-broker.ts";
import type { AgentIdentity } from "../wire/identity.ts";
import type { JoinRequest, JoinResult } from "../wire/join-server.ts";
import type { ServerLink } from "../wire/link-server.ts";
import { createAgentHub } from "./agents/hub.ts";
import { createLinkHandler } from "./agents/link.ts";
import { agentRoutes } from "./agents/routes.ts";
import { type AgentService, createAgentService } from "./agents/service.ts";
import { createJoinTokens, type JoinTokens } from "./agents/tokens.ts";
import type { EventLog } from "./events/log.ts";
import type { GroupStats } from "./groups/group.ts";
import { groupRoutes } from "./groups/routes.ts";
import { createGroupService, type GroupService } from "./groups/service.ts";
import type { Mounted } from "./http/handle.ts";
import { imageRoutes } from "./images/routes.ts";
import { createImageService, type ImageService } from "./images/service.ts";
import { createLogService } from "./logs/service.ts";
import type { Policies } from "./policies/service.ts";
import { createScheduler, type SchedulerService } from "./scheduling/service.ts";
import { createSessions, type Sessions } from "./sessions/sessions.ts";
import type { Db, Store } from "./store/store.ts";

export type FeatureConfig = {
  readonly dataDir: string;
  /** Output kept of one kernel, in bytes; of how long, in ms; and of all together, in bytes. */
  readonly logLimit: number;
  readonly logRetention: number;
  readonly logTotal: number;
  /** How agents are to speak, and the silence after which one is lost, in ms. */
  readonly agentHeartbeat: number;
  readonly agentLostAfter: number;
  readonly agentReport: number;
  readonly agentUsage: number;
};

export type FeatureDeps = {
  readonly store: Store;
  readonly clock: Clock;
  readonly log: Logger;
  readonly events: EventLog;
  readonly ca: Ca;
  readonly policies: Policies;
  readonly registry?: Registry;
  readonly config: FeatureConfig;
  /** A user by e-mail or id. Throws `user-not-found`. */
  readonly findUser: (db: Db, reference: string) => Promise<UserId>;
  /** The port on which agents reach the manager, once it listens. */
  readonly agentPort: () => number;
  /** Destroys every connection of an agent (the listener's `cut`). */
  readonly cut: (agent: AgentId) => void;
};

/** Sessions and everything that they need: nodes, groups, images, logs, scheduling. */
export type Features = {
  readonly routes: readonly Mounted[];
  readonly sessions: Sessions;
  readonly agents: AgentService;
  readonly joinTokens: JoinTokens;
  readonly images: ImageService;
  readonly groups: GroupService;
  readonly scheduler: SchedulerService;
  /** For the agents' listener. */
  readonly onJoin: (request: JoinRequest) => Promise<JoinResult>;
  readonly onLink: (link: ServerLink) => void;
  readonly onData: (identity: AgentIdentity, stream: ByteStream) => void;
  readonly isRevoked: (identity: AgentIdentity, serial: string) => Promise<boolean>;
  readonly agentsReady: () => number;
  /** Seeds what a new installation has; before the listeners open. */
  prepare(): Promise<void>;
  /** Begins to schedule and to reconcile. */
  start(): Promise<void>;
  stop(): Promise<void>;
};

const HOUR_MS = 3_600_000;

/** Builds the features. Where two need each other, one is reached through a function that is called later. */
export function createFeatures(deps: FeatureDeps): Features {
  const { store, clock, log, events, ca, policies, config } = deps;
  const broker = createDataBroker({ clock, log });
  const wake = () => scheduler.wake();

  const hub = createAgentHub({
    clock,
    broker,
    lostAfterMs: config.agentLostAfter,
    cut: deps.cut,
    onLost: (agent) => {
      agents
        .markLost(agent)
        .catch((err: unknown) => log.error({ err, agent }, "a lost agent was not marked"));
    },
  });

  const groups: GroupService = createGroupService({
    store,
    clock,
    events,
    stats: async (db) => {
      const capacity = await agents.groupCapacity(db);
      const load = await sessions.groupLoad(db);
      const ids = new Set<GroupId>([...capacity.keys(), ...load.keys()]);
      const of = (id: GroupId): GroupStats => ({
        agents: capacity.get(id)?.agents ?? 0,
        capacity: capacity.get(id)?.capacity ?? NO_SLOTS,
        used: load.get(id)?.used ?? NO_SLOTS,
        pending: load.get(id)?.pending ?? 0,
      });
      return new Map([...ids].map((id) => [id, of(id)]));
    },
    tenants: async (db, group) => ({
      agents: await agents.inGroup(db, group),
      sessions: await sessions.liveInGroup(db, group),
    }),
    changed: wake,
  });

  const agents: AgentService = createAgentService({
    store,
    clock,
    log,
    events,
    hub,
    groups,
    kernels: { lost: (agent) => sessions.kernels.lost(agent) },
    occupancy: (db) => sessions.occupancy(db),
    evict: (tx, agent, force, actor) => sessions.evict(tx, agent, force, actor),
    changed: wake,
  });

  const images: ImageService = createImageService({
    store,
    clock,
    log,
    events,
    agents: hub,
    nodes: agents.imageNodes,
    findNode: agents.find,
    liveSessions: (db, image) => sessions.liveWithImage(db, image),
  });

  const logs = createLogService({
    dir: join(config.dataDir, "logs"),
    clock,
    log,
    agents: hub,
    events,
    limitBytes: config.logLimit,
    keepMs: config.logRetention,
    keepBytes: config.logTotal,
  });

  const sessions: Sessions = createSessions({
    store,
    clock,
    log,
    events,
    hub,
    agents,
    groups,
    images,
    policies,
    logs,
    findUser: deps.findUser,
    scheduler: {
      wake,
      waitOf: (session) => scheduler.waitOf(session),
      avoid: (session, agent) => scheduler.avoid(session, agent),
    },
  });

  const scheduler: SchedulerService = createScheduler({
    store,
    clock,
    log,
    events,
    groups,
    nodes: agents.nodes,
    agentReady: hub.ready,
    ...sessions.forScheduler,
  });

  const tokens = createJoinTokens({ store, clock, log, events, ca, groups, agentPort: deps.agentPort });
  const onLink = createLinkHandler({
    store,
    clock,
    log,
    events,
    hub,
    broker,
    ca,
    times: {
      heartbeatMs: config.agentHeartbeat,
      reportMs: config.agentReport,
      usageMs: config.agentUsage,
    },
    kernels: sessions.kernels,
    images,
  });
  if (deps.registry !== undefined) registerMetrics(deps.registry, { agents, sessions });

  const prune = () => {
    logs.prune().catch((err: unknown) => log.warn({ err }, "old logs could not be removed"));
  };
  let cancelPrune = () => {};

  return {
    routes: [
      ...sessions.routes,
      ...agentRoutes(agents, tokens),
      ...imageRoutes(images),
      ...groupRoutes(groups),
    ],
    sessions,
    agents,
    joinTokens: tokens,
    images,
    groups,
    scheduler,
    onJoin: tokens.join,
    onLink,
    onData: broker.accept,
    isRevoked: (identity) => agents.isRevoked(identity.agentId),
    agentsReady: hub.readyCount,
    prepare: async () => {
      await groups.ensureDefault();
      await images.seed();
    },
    start: async () => {
      await agents.start();
      await sessions.start();
      scheduler.start();
      cancelPrune = clock.every(HOUR_MS, prune);
      prune();
    },
    stop: async () => {
      cancelPrune();
      await scheduler.close();
      await sessions.stop();
      hub.close();
    },
  };
}

function registerMetrics(registry: Registry, parts: { agents: AgentService; sessions: Sessions }): void {
  const gauge = <Label extends string>(
    name: string,
    help: string,
    label: Label,
    read: () => Promise<ReadonlyMap<string, number>>,
  ): void => {
    const metric: Gauge = new Gauge({
      name,
      help,
      labelNames: [label],
      registers: [registry],
      collect: async () => {
        const values = await read();
        metric.reset();
        for (const [value, count] of values) metric.set({ [label]: value }, count);
      },
    });
  };
  gauge("berth_sessions", "Sessions by status.", "status", parts.sessions.countByStatus);
  gauge("berth_agents", "Agents by status.", "status", parts.agents.countByStatus);
}
