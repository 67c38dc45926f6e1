import type { SessionStatus } from "../../contract/states.ts";
import type { Clock } from "../../kit/clock.ts";
import type { AgentId, GroupId, ImageId, SessionId, UserId } from "../../kit/ids.ts";
import type { Logger } from "../../kit/log.ts";
import type { AgentHub } from "../agents/hub.ts";
import type { KernelSink } from "../agents/ports.ts";
import type { AgentService } from "../agents/service.ts";
import type { EventLog } from "../events/log.ts";
import type { GroupService } from "../groups/service.ts";
import type { Mounted } from "../http/handle.ts";
import type { ImageService } from "../images/service.ts";
import { servicePortsOf } from "../images/service.ts";
import type { LogService } from "../logs/service.ts";
import type { Policies } from "../policies/service.ts";
import type { SchedulingDeps } from "../scheduling/service.ts";
import type { Db, Store, Tx } from "../store/store.ts";
import { createEnqueue } from "./create.ts";
import { createKernelSink } from "./kernels.ts";
import { createObservations } from "./observed.ts";
import { createProgress } from "./progress.ts";
import {
  giveUpWaiting,
  groupLoad,
  liveAllocations,
  occupancy,
  pendingSessions,
  placeSession,
} from "./queue.ts";
import { createReconciler } from "./reconciler.ts";
import { countByStatus, findById, liveInGroup, liveWithImage } from "./repository.ts";
import { sessionRoutes } from "./routes.ts";
import { createSessionService, type SessionService } from "./service.ts";
import { evictAgent } from "./stop.ts";
import { createStrays, type Unclaimed } from "./strays.ts";
import { createSessionStreams } from "./streams.ts";
import type { WaitView } from "./view.ts";

export type SessionsDeps = {
  readonly store: Store;
  readonly clock: Clock;
  readonly log: Logger;
  readonly events: Pick<EventLog, "append">;
  readonly hub: AgentHub;
  readonly agents: AgentService;
  readonly groups: GroupService;
  readonly images: ImageService;
  readonly policies: Policies;
  readonly logs: LogService;
  readonly findUser: (db: Db, reference: string) => Promise<UserId>;
  readonly scheduler: {
    wake(): void;
    waitOf(session: SessionId): WaitView | undefined;
    avoid(session: SessionId, agent: AgentId): void;
  };
};

/** The feature as a whole: what routes, agents and the scheduler need of it. */
export type Sessions = {
  readonly service: SessionService;
  readonly routes: readonly Mounted[];
  readonly kernels: KernelSink;
  readonly forScheduler: Pick<SchedulingDeps, "pending" | "live" | "place" | "giveUp" | "placed">;
  readonly occupancy: typeof occupancy;
  readonly groupLoad: typeof groupLoad;
  readonly liveInGroup: (db: Db, group: GroupId) => Promise<number>;
  readonly liveWithImage: (db: Db, image: ImageId) => Promise<number>;
  readonly evict: (
    tx: Tx,
    agent: { id: AgentId; name: string },
    force: boolean,
    actor: string,
  ) => Promise<void>;
  readonly countByStatus: () => Promise<ReadonlyMap<SessionStatus, number>>;
  /** Containers that agents have and nobody here knows. */
  readonly unclaimed: () => readonly Unclaimed[];
  /** Takes up what a stopped manager left. */
  start(): Promise<void>;
  /** For tests: everything that is under way is done. */
  idle(): Promise<void>;
  stop(): Promise<void>;
};

export function createSessions(deps: SessionsDeps): Sessions {
  const { store, clock, log, events, hub, agents, groups, images, policies, logs, scheduler } = deps;
  const observed = createObservations();
  const strays = createStrays({ clock, log, agents: hub });

  const tellPull = async (
    session: SessionId,
    pull: { phase: string; doneBytes: number; totalBytes: number },
  ) => {
    await store.write(async (tx) => {
      const row = await findById(tx, session);
      if (row === undefined) return;
      const data = { name: row.name, ...pull };
      await events.append(tx, { kind: "session.pull", subject: session, ownerId: row.owner_id, data });
    });
  };
  const progress = createProgress(clock, (session, pull) => {
    tellPull(session, pull).catch((err: unknown) =>
      log.warn({ err, session }, "a pull's progress was not told"),
    );
  });

  const reconciler = createReconciler({
    store,
    clock,
    log,
    events,
    agents: hub,
    observed,
    storeLog: logs.store,
    corecountNames: async (session) => (await images.labels(session.image_id)).corecountNames,
    wakeScheduler: scheduler.wake,
    avoid: scheduler.avoid,
  });

  const kernels = createKernelSink({
    store,
    clock,
    log,
    events,
    agents: hub,
    observed,
    reconciler,
    progress,
    strays,
    wakeScheduler: scheduler.wake,
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
    queued: scheduler.wake,
  });

  const service = createSessionService({
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
    findUser: deps.findUser,
    waitOf: scheduler.waitOf,
    wakeScheduler: scheduler.wake,
  });
  const streams = createSessionStreams({ store, log, agents: hub, sessions: service });

  return {
    service,
    kernels,
    occupancy,
    groupLoad,
    liveInGroup,
    liveWithImage,
    routes: sessionRoutes({ store, sessions: service, streams, logs, agents: hub }),
    forScheduler: {
      pending: pendingSessions,
      live: liveAllocations,
      place: async (tx, session, agent) =>
        placeSession(tx, events, clock, session, await agents.find(tx, agent)),
      giveUp: (tx, session, sentence) => giveUpWaiting(tx, events, clock, session, sentence),
      placed: reconciler.add,
    },
    evict: (tx, agent, force, actor) => evictAgent(tx, events, agent, { force, actor, now: clock.wall() }),
    countByStatus: () => store.read(countByStatus),
    unclaimed: strays.unclaimed,
    start: () => reconciler.addUnsettled(null),
    idle: reconciler.idle,
    stop: reconciler.close,
  };
}
