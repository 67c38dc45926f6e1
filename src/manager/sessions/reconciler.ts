import { isFinal } from "../../contract/states.ts";
import type { Clock } from "../../kit/clock.ts";
import type { AgentId, SessionId } from "../../kit/ids.ts";
import type { Logger } from "../../kit/log.ts";
import { type Again, createWorkQueue } from "../../kit/workqueue.ts";
import type { AgentPort, EventSink } from "../agents/ports.ts";
import type { Store } from "../store/store.ts";
import type { Deadlines } from "./deadlines.ts";
import { createDeadlines } from "./deadlines.ts";
import { deadlineReason, describeEnd } from "./end.ts";
import { endFacts, endUnseen, failedByNode, mayRetry } from "./facts.ts";
import { finishSession } from "./finish.ts";
import type { Observation, Observations } from "./observed.ts";
import {
  findById,
  type KernelRow,
  kernelsOf,
  type SessionRecord,
  unsettledSessions,
  updateKernel,
} from "./repository.ts";
import { createLogSettler, type StoreLog } from "./settle.ts";
import { kernelSpec } from "./spec.ts";
import { isTerminalPhase } from "./state-machine.ts";
import { moveSession } from "./transitions.ts";

/** Time between SIGTERM and SIGKILL. */
const STOP_GRACE_MS = 10_000;
/** A command that shows no effect is sent again after this time. */
const RESEND_MS = 10_000;
/** How long the end of a session waits for its output before it is told without. */
const LOG_WAIT_MS = 60_000;
/** Attempts to fetch the output of an ended session before the node may delete it. */
const LOG_ATTEMPTS = 12;
const OUTPUT_MISSING = "Its output could not be fetched from the node yet.";
/** Another log of the same node is being fetched: look again after this time. */
const BUSY_MS = 500;
const CONCURRENCY = 16;

export type ReconcilerDeps = {
  readonly store: Store;
  readonly clock: Clock;
  readonly log: Logger;
  readonly events: EventSink;
  readonly agents: AgentPort;
  readonly observed: Observations;
  readonly storeLog: StoreLog;
  /** Names of environment variables that an image wants set to the core count. */
  readonly corecountNames: (session: SessionRecord) => Promise<readonly string[]>;
  /** Room became free, or a session waits again. */
  readonly wakeScheduler: () => void;
  /** A session was put back to wait, and is to avoid that node. */
  readonly avoid: (session: SessionId, agent: AgentId) => void;
  /** A node failed to start something: it is to get nothing new for a while. */
  readonly restNode: (agent: AgentId) => void;
};

export interface Reconciler {
  add(session: SessionId): void;
  /** Looks after everything that is unsettled, of one agent or of all. */
  addUnsettled(agent: AgentId | null): Promise<void>;
  /** Deadlines of phases rest until the session is looked at again. */
  suspendDeadline(session: SessionId): void;
  idle(): Promise<void>;
  close(): Promise<void>;
}

type Subject = {
  readonly session: SessionRecord;
  readonly kernel: KernelRow;
  readonly agent: AgentId;
  /** What the agent says of the kernel's present generation. */
  readonly seen: Observation | undefined;
  /** Whether the agent is there to be asked. */
  readonly ready: boolean;
  readonly signal: AbortSignal;
};

/** Brings what the nodes have into line with what the store wants, one session at a time. */
export function createReconciler(deps: ReconcilerDeps): Reconciler {
  const { store, clock, log, events, agents, observed, wakeScheduler } = deps;
  const settler = createLogSettler({ clock, log, storeLog: deps.storeLog });
  const deadlines: Deadlines = createDeadlines(clock, (id) => queue.add(id));

  const actorOf = (session: SessionRecord) =>
    session.agent_name === null ? "manager" : `agent:${session.agent_name}`;

  /** Tries again elsewhere what failed by its node's fault before it ever ran. */
  async function retryElsewhere({ session, kernel, agent }: Subject): Promise<void> {
    const why = kernel.failure_message ?? kernel.failure_code ?? "";
    const moved = await store.write(async (tx) => {
      const row = await moveSession(tx, events, session, {
        event: "unschedule",
        reason: "node-failed",
        message: `It could not be started on ${session.agent_name ?? "its node"} and waits again: ${why}`,
        actor: actorOf(session),
        at: clock.wall(),
        keepReason: false,
        patch: { agent_id: null },
      });
      if (row === null) return false;
      return updateKernel(tx, kernel.id, kernel.generation, {
        generation: kernel.generation + 1,
        agent_id: null,
        status: "PENDING",
        container_id: null,
        failure_code: null,
        failure_message: null,
        ended_at: null,
        end_reason: null,
      });
    });
    if (!moved) return;
    deps.avoid(session.id, agent);
    observed.forget(kernel.id);
    await sendForget(agent, kernel);
    wakeScheduler();
  }

  function sendForget(agent: AgentId, kernel: KernelRow): Promise<void> {
    const value = { kernelId: kernel.id, generation: kernel.generation };
    return agents.send(agent, { $case: "forgetKernel", value });
  }

  function sendStop(agent: AgentId, kernel: KernelRow, force: boolean): Promise<void> {
    const value = {
      kernelId: kernel.id,
      sessionId: kernel.session_id,
      generation: kernel.generation,
      graceMs: force ? 0 : STOP_GRACE_MS,
      force,
    };
    return agents.send(agent, { $case: "stopKernel", value });
  }

  /** Fetches the output, when that is still to be done. */
  async function settleLog(subject: Subject): Promise<"done" | "busy" | "wait" | "given-up"> {
    const { session, kernel, agent, seen, signal } = subject;
    if (kernel.log_stored === 1) return "done";
    const empty = kernel.started_at === null && (seen?.status.logBytes ?? 0) === 0;
    const outcome = empty
      ? { kind: "nothing" as const }
      : subject.ready
        ? await settler.attempt(session.id, kernel, agent, signal)
        : settler.unreachable(session.id);
    if (outcome.kind === "busy") return "busy";
    if (outcome.kind === "failed") {
      if (isFinal(session.status)) return outcome.attempts >= LOG_ATTEMPTS ? "given-up" : "wait";
      return outcome.sinceMs >= LOG_WAIT_MS ? "given-up" : "wait";
    }
    const bytes = outcome.kind === "stored" ? outcome.bytes : 0;
    await store.write((tx) =>
      updateKernel(tx, kernel.id, kernel.generation, {
        log_stored: 1,
        log_bytes: Math.max(kernel.log_bytes, bytes),
      }),
    );
    return "done";
  }

  /** The kernel has ended: store its output, tell how it ended, and let the node remove it. */
  async function finish(subject: Subject): Promise<Again | undefined> {
    const { session, kernel, agent, seen } = subject;
    if (failedByNode(kernel)) deps.restNode(agent);
    if (mayRetry(session, kernel, seen)) {
      await retryElsewhere(subject);
      return undefined;
    }
    const output = await settleLog(subject);
    if (output === "busy") return { again: BUSY_MS };
    if (output === "wait") return { again: 2_000 };
    const end = describeEnd(
      endFacts(session, kernel, seen?.status.stopRequested ?? session.desired !== "run"),
    );
    const note = output === "given-up" ? OUTPUT_MISSING : undefined;
    await store.write((tx) =>
      finishSession(tx, events, session, kernel, { end, actor: actorOf(session), now: clock.wall(), note }),
    );
    deadlines.clear(session.id);
    if (output === "done" && subject.ready) await sendForget(agent, kernel);
    return { again: RESEND_MS };
  }

  /** The session is over and its node still has something of it. */
  async function cleanUp(subject: Subject): Promise<Again | undefined> {
    const { session, kernel, agent, seen } = subject;
    // Also where its node says nothing of it: it may have been told to make it a moment ago. The tombstone
    // that a stop leaves is how it is seen gone.
    if (seen === undefined || !isTerminalPhase(seen.phase)) {
      await sendStop(agent, kernel, true);
      return { again: RESEND_MS };
    }
    const output = await settleLog(subject);
    if (output === "busy") return { again: BUSY_MS };
    if (output === "wait") return { again: RESEND_MS };
    if (output === "given-up") {
      log.error(
        { session: session.id, kernel: kernel.id },
        "the output of a session was never fetched and is lost",
      );
      settler.forget(session.id);
    }
    await sendForget(agent, kernel);
    if (kernel.gone === 1) return undefined;
    return { again: RESEND_MS };
  }

  /** A phase lasted too long. What never started is stopped; what does not stop is told to be over. */
  async function expire({ session, kernel, agent, ready }: Subject): Promise<Again | undefined> {
    const reason = deadlineReason(session.status);
    const now = clock.wall();
    if (session.status !== "TERMINATING") {
      const end = endUnseen(session, kernel, reason);
      await store.write((tx) =>
        moveSession(tx, events, session, {
          event: "stop",
          reason,
          message: end.sentence,
          actor: "manager",
          at: now,
          keepReason: true,
          patch: { desired: "stop", stop_reason: reason, stop_actor: "manager" },
        }),
      );
      if (ready) await sendStop(agent, kernel, false);
      return { again: RESEND_MS };
    }
    const why = session.stop_reason?.endsWith("-timeout") ? session.stop_reason : reason;
    await store.write((tx) =>
      finishSession(tx, events, session, kernel, {
        end: endUnseen(session, kernel, why),
        actor: "manager",
        now,
        note:
          why === reason
            ? undefined
            : "Its container did not end in time; it is removed once its node answers.",
      }),
    );
    deadlines.clear(session.id);
    if (ready) await sendStop(agent, kernel, true);
    return { again: RESEND_MS };
  }

  /** A live session whose kernel has not ended. */
  async function drive(subject: Subject): Promise<Again | undefined> {
    const { session, kernel, agent, seen } = subject;
    if (session.status === "TERMINATING") {
      await sendStop(agent, kernel, false);
      return { again: RESEND_MS };
    }
    if (seen !== undefined) return undefined;
    // Started once and unknown to its node now: two full reports decide, never a second start.
    if (kernel.started_at !== null) return undefined;
    const spec = kernelSpec(session, kernel, await deps.corecountNames(session));
    await agents.send(agent, { $case: "ensureKernel", value: { spec } });
    return { again: RESEND_MS };
  }

  async function load(id: SessionId, signal: AbortSignal): Promise<Subject | undefined> {
    return store.read(async (db) => {
      const session = await findById(db, id);
      const [kernel] = session === undefined ? [] : await kernelsOf(db, id);
      const agent = kernel?.agent_id ?? null;
      if (session === undefined || kernel === undefined || agent === null) return undefined;
      const latest = observed.get(kernel.id);
      const seen = latest?.status.generation === kernel.generation ? latest : undefined;
      return { session, kernel, agent, seen, ready: agents.ready(agent), signal };
    });
  }

  async function run(id: SessionId, signal: AbortSignal): Promise<Again | undefined> {
    const subject = await load(id, signal);
    if (subject === undefined) {
      deadlines.clear(id);
      return undefined;
    }
    const { session, kernel, seen, ready } = subject;
    if (isFinal(session.status)) {
      deadlines.clear(id);
      if (kernel.gone === 0 || seen !== undefined) return ready ? cleanUp(subject) : undefined;
      settler.forget(id);
      return undefined;
    }
    // By the row alone: what was seen a moment ago may be newer than the row that was read.
    if (kernel.ended_at !== null || kernel.gone === 1) return finish(subject);
    // While its node is away only what a person asked to end has a deadline.
    if (!ready && session.status !== "TERMINATING") {
      deadlines.clear(id);
      return undefined;
    }
    if (deadlines.expired(session)) return expire(subject);
    return ready ? drive(subject) : undefined;
  }

  const queue = createWorkQueue<SessionId>({
    clock,
    run: async (id, signal) => (await run(id, signal)) ?? undefined,
    concurrency: CONCURRENCY,
    backoff: { firstMs: 500, maxMs: 30_000 },
    log,
  });

  return {
    add: queue.add,
    addUnsettled: async (agent) => {
      for (const id of await store.read((db) => unsettledSessions(db, agent))) queue.add(id);
    },
    suspendDeadline: deadlines.clear,
    idle: queue.idle,
    close: async () => {
      deadlines.close();
      await queue.close();
    },
  };
}
