import { join } from "node:path";
import type { Clock } from "../kit/clock.ts";
import type { AgentId, GroupId, SessionId } from "../kit/ids.ts";
import type { Logger } from "../kit/log.ts";
import { addSlots, NO_SLOTS } from "../kit/slots.ts";
import type { Ca } from "../wire/ca.ts";
import { createDataBroker } from "../wire/data-broker.ts";
import type { AgentListener, AgentListenerOptions } from "../wire/listener.ts";
import type { Accounts } from "./accounts/accounts.ts";
import type { Principal } from "./accounts/principal.ts";
import { createAgentHub } from "./agents/hub.ts";
import { createLinkHandler } from "./agents/link.ts";
import { agentRoutes } from "./agents/routes.ts";
import { type AgentService, createAgentService } from "./agents/service.ts";
import { createJoinTokens } from "./agents/tokens.ts";
import type { ManagerConfig } from "./config.ts";
import type { EventLog } from "./events/log.ts";
import { type GroupStats, NO_STATS } from "./groups/group.ts";
import { groupRoutes } from "./groups/routes.ts";
import { createGroupService, type GroupService } from "./groups/service.ts";
import type { Mounted } from "./http/handle.ts";
import { gaugeOf, type Metrics } from "./http/metrics.ts";
import { imageRoutes } from "./images/routes.ts";
import { createImageService, servicePortsOf } from "./images/service.ts";
import { createLogService } from "./logs/service.ts";
import type { Policies } from "./policies/service.ts";
import { createScheduler, type SchedulerService } from "./scheduling/service.ts";
import { createEnqueue } from "./sessions/create.ts";
import { createKernelSink } from "./sessions/kernels.ts";
import { createObservations } from "./sessions/observed.ts";
import { createProgress } from "./sessions/progress.ts";
import {
  giveUpWaiting,
  groupLoad,
  liveAllocations,
  occupancy,
  pendingSessions,
  placeSession,
} from "./sessions/queue.ts";
import { createReconciler, type Reconciler } from "./sessions/reconciler.ts";
import { countByStatus, findById, liveInGroup, liveWithImage } from "./sessions/repository.ts";
import { sessionRoutes } from "./sessions/routes.ts";
import { createSessionService } from "./sessions/service.ts";
import { evictAgent } from "./sessions/stop.ts";
import { createStrays } from "./sessions/strays.ts";
import { createSessionStreams } from "./sessions/streams.ts";
import { createVacate } from "./sessions/vacate.ts";
import type { Db, Store } from "./store/store.ts";

export type ClusterDeps = {
  readonly store: Store;
  readonly clock: Clock;
  readonly log: Logger;
  readonly events: EventLog;
  readonly policies: Policies;
  readonly accounts: Pick<Accounts, "users">;
  readonly ca: Ca;
  readonly config: ManagerConfig;
  readonly metrics: Metrics;
};

/** Sessions, the nodes that run them, and everything between: one whole, because each part wakes the others. */
export type Cluster = {
  readonly routes: readonly Mounted[];
  /** What the port of the agents is served with. */
  readonly wire: Pick<AgentListenerOptions, "onJoin" | "onLink" | "onData" | "isRevoked">;
  /** The port of the agents is open. */
  listening(listener: Pick<AgentListener, "port" | "cut">): void;
  start(): Promise<void>;
  stop(): Promise<void>;
  agentsReady(): number;
  createJoinToken(): Promise<string>;
  /** Id of a session that the person may see. Throws `session-not-found`. */
  sessionId(principal: Principal, key: string): Promise<string>;
  /** Deletes what is older or more than is kept. */
  prune(): Promise<void>;
};

async function groupStats(db: Db, agents: AgentService): Promise<ReadonlyMap<GroupId, GroupStats>> {
  const capacity = await agents.groupCapacity(db);
  const load = await groupLoad(db);
  const stats = new Map<GroupId, GroupStats>();
  for (const id of new Set([...capacity.keys(), ...load.keys()])) {
    stats.set(id, { ...NO_STATS, ...capacity.get(id), ...load.get(id) });
  }
  return stats;
}

function registerMetrics(
  { registry }: Metrics,
  { store, agents, ready }: { store: Store; agents: AgentService; ready: () => number },
): void {
  gaugeOf(
    registry,
    { name: "berth_sessions", help: "Sessions by status; PENDING is the queue.", labels: ["status"] },
    async () => [...(await store.read(countByStatus))].map(([status, count]) => [{ status }, count] as const),
  );
  gaugeOf(registry, { name: "berth_agents", help: "Agents by status.", labels: ["status"] }, async () =>
    [...(await agents.countByStatus())].map(([status, count]) => [{ status }, count] as const),
  );
  gaugeOf(
    registry,
    { name: "berth_agents_ready", help: "Agents that take sessions.", labels: [] },
    async () => [[{}, ready()]],
  );
  gaugeOf(
    registry,
    { name: "berth_slots_used", help: "Slots in use: cpu in milli-cores, mem in bytes.", labels: ["slot"] },
    async () => {
      const nodes = await store.read(occupancy);
      const used = [...nodes.values()].reduce((sum, node) => addSlots(sum, node.used), NO_SLOTS);
      return Object.entries(used).map(([slot, amount]) => [{ slot }, Number(amount)] as const);
    },
  );
}

/** Wires the features of the cluster. What they need of each other in a circle is looked up when it is used. */
export async function createCluster(deps: ClusterDeps): Promise<Cluster> {
  const { store, clock, log, events, policies, accounts, ca, config, metrics } = deps;
  let port = config.agentListen?.port ?? config.listen.port + 1;
  let cut: (agent: AgentId) => void = () => {};
  const later: { agents?: AgentService; scheduler?: SchedulerService; reconciler?: Reconciler } = {};
  const wakeScheduler = () => later.scheduler?.wake();
  const common = { store, clock, log, events };

  const broker = createDataBroker({ clock, log });
  const hub = createAgentHub({
    clock,
    broker,
    lostAfterMs: config.agentLostAfter,
    cut: (agent) => cut(agent),
    onLost: (agent) => {
      later.agents
        ?.markLost(agent)
        .catch((err: unknown) => log.error({ err, agent }, "could not mark an agent lost"));
    },
  });
  const groups: GroupService = createGroupService({
    ...common,
    stats: (db) => groupStats(db, agents),
    tenants: async (db, group) => ({
      agents: await agents.inGroup(db, group),
      sessions: await liveInGroup(db, group),
    }),
    changed: wakeScheduler,
  });
  const agents: AgentService = createAgentService({
    ...common,
    hub,
    groups,
    kernels: { lost: (agent) => kernels.lost(agent) },
    occupancy,
    evict: async (tx, agent, force, actor) => {
      const kernels = await evictAgent(tx, events, agent, { force, actor, now: clock.wall() });
      return () => vacate(agent.id, kernels);
    },
    changed: wakeScheduler,
  });
  later.agents = agents;
  const images = createImageService({
    ...common,
    agents: hub,
    nodes: agents.imageNodes,
    findNode: agents.find,
    liveSessions: liveWithImage,
  });
  const logs = createLogService({
    dir: join(config.dataDir, "logs"),
    clock,
    log,
    agents: hub,
    limitBytes: config.logLimit,
    keepMs: config.logRetention,
    keepBytes: config.logTotal,
    events,
  });
  const scheduler = createScheduler({
    ...common,
    groups,
    nodes: agents.nodes,
    pending: pendingSessions,
    live: liveAllocations,
    agentReady: hub.ready,
    place: async (tx, session, agent) => {
      const { id, name } = await agents.find(tx, agent);
      return placeSession(tx, events, clock, session, { id, name });
    },
    giveUp: (tx, session, sentence) => giveUpWaiting(tx, events, clock, session, sentence),
    placed: (session) => later.reconciler?.add(session),
  });
  later.scheduler = scheduler;
  const observed = createObservations();
  const vacate = createVacate({ clock, log, agents: hub, observed });
  const reconciler = createReconciler({
    ...common,
    agents: hub,
    observed,
    storeLog: logs.store,
    corecountNames: async (session) => (await images.labels(session.image_id)).corecountNames,
    wakeScheduler,
    avoid: scheduler.avoid,
    restNode: scheduler.rest,
  });
  later.reconciler = reconciler;
  const tellPull = (
    session: SessionId,
    pull: { readonly phase: string; doneBytes: number; totalBytes: number },
  ) =>
    store.write(async (tx) => {
      const row = await findById(tx, session);
      if (row === undefined) return;
      await events.append(tx, {
        kind: "session.pull",
        subject: session,
        ownerId: row.owner_id,
        data: { name: row.name, ...pull },
      });
    });
  const progress = createProgress(clock, (session, pull) => {
    tellPull(session, pull).catch((err: unknown) => log.warn({ err, session }, "could not tell of a pull"));
  });
  const strays = createStrays({ clock, log, agents: hub });
  const kernels = createKernelSink({
    ...common,
    agents: hub,
    observed,
    reconciler,
    progress,
    strays,
    wakeScheduler,
  });
  const enqueue = createEnqueue({
    store,
    clock,
    events,
    groups,
    images,
    servicePorts: servicePortsOf,
    agents,
    policies,
    queued: wakeScheduler,
  });
  const sessions = createSessionService({
    store,
    clock,
    events,
    enqueue,
    reconciler,
    progress,
    hub,
    agents,
    groups,
    policies,
    findUser: accounts.users.idOf,
    waitOf: scheduler.waitOf,
    wakeScheduler,
  });
  const streams = createSessionStreams({ store, clock, log, agents: hub, sessions });
  const joinTokens = createJoinTokens({ ...common, ca, groups, agentPort: () => port });
  const onLink = createLinkHandler({
    ...common,
    hub,
    broker,
    ca,
    times: {
      heartbeatMs: config.agentHeartbeat,
      reportMs: config.agentReport,
      usageMs: config.agentUsage,
    },
    kernels,
    images,
  });
  registerMetrics(metrics, { store, agents, ready: hub.readyCount });
  await groups.ensureDefault();
  await images.seed();

  return {
    routes: [
      ...sessionRoutes({ store, sessions, streams, logs, agents: hub }),
      ...imageRoutes(images),
      ...groupRoutes(groups),
      ...agentRoutes(agents, joinTokens),
    ],
    wire: {
      onJoin: joinTokens.join,
      onLink,
      onData: broker.accept,
      isRevoked: ({ agentId }) => agents.isRevoked(agentId),
    },
    listening: (listener) => {
      port = listener.port;
      cut = listener.cut;
    },
    start: async () => {
      await agents.start();
      await reconciler.addUnsettled(null);
      scheduler.start();
    },
    stop: async () => {
      await scheduler.close();
      await reconciler.close();
      hub.close();
    },
    agentsReady: hub.readyCount,
    createJoinToken: async () => {
      const { secret } = await joinTokens.create({
        ttl: undefined,
        uses: 1,
        group: null,
        actor: "local root",
      });
      return secret;
    },
    sessionId: async (principal, key) =>
      (await store.read((db) => sessions.reach(db, principal, key, "session.read-any"))).id,
    prune: async () => {
      await logs.prune();
    },
  };
}
