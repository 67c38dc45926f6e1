import type { Cancel, Clock, MonoMs } from "../../kit/clock.ts";
import type { AgentId, SessionId } from "../../kit/ids.ts";
import type { Logger } from "../../kit/log.ts";
import { createWorkQueue } from "../../kit/workqueue.ts";
import type { EventLog } from "../events/log.ts";
import type { GroupService } from "../groups/service.ts";
import type { Db, Store, Tx } from "../store/store.ts";
import { watchClockJumps } from "./jumps.ts";
import { plan } from "./plan.ts";
import type {
  LiveAllocation,
  NodeSnapshot,
  PendingSession,
  Plan,
  SchedulingSnapshot,
  Wait,
} from "./types.ts";

/** What the scheduler does with sessions; the sessions' own service carries it out. */
export type SchedulingDeps = {
  readonly store: Store;
  readonly clock: Clock;
  readonly log: Logger;
  readonly events: Pick<EventLog, "append">;
  readonly groups: Pick<GroupService, "snapshots" | "setCursor">;
  readonly nodes: (db: Db) => Promise<readonly NodeSnapshot[]>;
  readonly pending: (db: Db) => Promise<readonly PendingSession[]>;
  readonly live: (db: Db) => Promise<readonly LiveAllocation[]>;
  /** Whether the agent can still take something; looked at when the plan is applied. */
  readonly agentReady: (agent: AgentId) => boolean;
  /** Puts a waiting session on a node; false when it does not wait any more. */
  readonly place: (tx: Tx, session: SessionId, agent: AgentId) => Promise<boolean>;
  /** Gives up on a session that waited too long; false when it does not wait any more. */
  readonly giveUp: (tx: Tx, session: SessionId, sentence: string) => Promise<boolean>;
  readonly placed: (session: SessionId) => void;
};

export interface SchedulerService {
  /** Something changed that may let a session start; many calls in a row are one look. */
  wake(): void;
  /** Why a session waits, as the last look found it. */
  waitOf(session: SessionId): Wait | undefined;
  /** Nodes on which a session failed are taken for it only when nothing else could ever hold it. */
  avoid(session: SessionId, agent: AgentId): void;
  /** A node that just failed by its own fault takes nothing new for half a minute, of any session. */
  rest(agent: AgentId): void;
  start(): void;
  idle(): Promise<void>;
  close(): Promise<void>;
}

/** However little happens, the queue is looked at this often. */
const EVERY_MS = 10_000;
/** The most changes that one transaction makes, so that it holds nobody up for long. */
const BATCH = 100;
/** After the first placements in a look, others follow in a moment: many sessions queued at once are one look. */
const COALESCE_MS = 20;
/** The front of the queue, of which every move is told. */
const TOLD_PLACES = 10;
/** Sessions of which it is remembered where they failed. */
const MAX_AVOIDED = 1000;
/** How long a node takes nothing new after a start failed there by its fault. */
const REST_MS = 30_000;
const KEY = "queue";

export function createScheduler(deps: SchedulingDeps): SchedulerService {
  const { store, clock, log, events, groups } = deps;
  const jumps = watchClockJumps(clock);
  const avoided = new Map<SessionId, Set<AgentId>>();
  const resting = new Map<AgentId, MonoMs>();
  let waits: ReadonlyMap<SessionId, Wait> = new Map();
  let timer: Cancel = () => {};
  let ticker: Cancel = () => {};

  function rests(agent: AgentId): boolean {
    const until = resting.get(agent);
    if (until === undefined) return false;
    if (clock.mono() < until) return true;
    resting.delete(agent);
    return false;
  }

  async function snapshot(): Promise<SchedulingSnapshot> {
    jumps.look();
    return store.read(async (db) => {
      const pending = await deps.pending(db);
      return {
        groups: await groups.snapshots(db),
        nodes: (await deps.nodes(db)).map((node) => ({ ...node, resting: rests(node.id) })),
        live: await deps.live(db),
        pending: pending.map((session) => ({
          ...session,
          enqueuedAt: jumps.shifted(session.enqueuedAt),
          avoidAgents: [...(avoided.get(session.sessionId) ?? [])],
        })),
      };
    });
  }

  /** Applies what is decided; a session that changed meanwhile is left alone. */
  async function apply(decided: Plan): Promise<void> {
    const { placements, timeouts } = decided;
    for (let at = 0; at < placements.length; at += BATCH) {
      await store.write(async (tx) => {
        for (const { sessionId, agentId } of placements.slice(at, at + BATCH)) {
          if (!deps.agentReady(agentId) || rests(agentId)) continue;
          if (await deps.place(tx, sessionId, agentId)) tx.afterCommit(() => deps.placed(sessionId));
        }
      });
    }
    if (timeouts.length === 0 && decided.cursors.size === 0) return;
    await store.write(async (tx) => {
      for (const { sessionId, sentence } of timeouts) await deps.giveUp(tx, sessionId, sentence);
      for (const [group, agent] of decided.cursors) await groups.setCursor(tx, group, agent);
    });
  }

  /** Tells once for all whose reason or place changed, so that ten thousand waiting are not ten thousand rows. */
  async function tellWaits(
    before: ReadonlyMap<SessionId, Wait>,
    owners: ReadonlyMap<SessionId, PendingSession>,
  ) {
    const changed = [...waits.values()].filter((wait) => {
      const old = before.get(wait.sessionId);
      if (old?.code !== wait.code) return true;
      // Places move with every start; who is far back does not need to hear of each step.
      return old.position !== wait.position && (wait.position ?? 0) <= TOLD_PLACES;
    });
    if (changed.length === 0) return;
    await store.write(async (tx) => {
      // The front of the queue is what people watch; of the rest a look at the list tells.
      for (const wait of changed.slice(0, BATCH)) {
        const session = owners.get(wait.sessionId);
        if (session === undefined) continue;
        const { code, sentence, position } = wait;
        await events.append(tx, {
          kind: "session.waiting",
          subject: wait.sessionId,
          ownerId: session.ownerId,
          data: { name: session.name, code, message: sentence, queuePosition: position },
        });
      }
    });
  }

  function armNextChange(at: number | null): void {
    timer();
    timer = at === null ? () => {} : clock.after(Math.max(0, at - clock.wall()) + 1, () => queue.add(KEY));
  }

  async function look(): Promise<void> {
    const seen = await snapshot();
    const decided = plan(seen, clock.wall());
    for (const err of decided.faults) log.error({ err }, "why a session waits could not be told");
    await apply(decided);
    const before = waits;
    waits = new Map(decided.waits.map((wait) => [wait.sessionId, wait]));
    const byId = new Map(seen.pending.map((session) => [session.sessionId, session]));
    armNextChange(decided.nextChangeAt);
    await tellWaits(before, byId);
    if (decided.placements.length > 0) {
      log.debug({ placed: decided.placements.length, waiting: decided.waits.length }, "sessions were placed");
    }
  }

  const queue = createWorkQueue<typeof KEY>({
    clock,
    run: look,
    concurrency: 1,
    backoff: { firstMs: 500, maxMs: 10_000 },
    log,
  });

  return {
    wake: () => queue.addAfter(KEY, COALESCE_MS),
    waitOf: (session) => waits.get(session),
    avoid: (session, agent) => {
      const known = avoided.get(session) ?? new Set();
      avoided.set(session, known.add(agent));
      const [oldest] = avoided.keys();
      if (avoided.size > MAX_AVOIDED && oldest !== undefined) avoided.delete(oldest);
    },
    rest: (agent) => {
      resting.set(agent, clock.mono() + REST_MS);
    },
    start: () => {
      ticker = clock.every(EVERY_MS, () => queue.add(KEY));
      queue.add(KEY);
    },
    idle: queue.idle,
    close: async () => {
      ticker();
      timer();
      await queue.close();
    },
  };
}
