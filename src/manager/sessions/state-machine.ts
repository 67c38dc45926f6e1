import { isFinal, SESSION_STATUSES, type SessionStatus } from "../../contract/states.ts";
import type { WallMs } from "../../kit/clock.ts";
import { BerthError } from "../../kit/errors.ts";

export type SessionState = SessionStatus;
export { isFinal };

/**
 * What happens to a session. `phase` events are what its kernel is seen to do; `stop` is a person, a
 * policy or a deadline asking for the end; `ended`, `failed` and `cancelled` close it.
 */
export type SessionEvent =
  | "schedule"
  | "unschedule"
  | "prepare"
  | "pull"
  | "create"
  | "run"
  | "degrade"
  | "pause"
  | "resume"
  | "stop"
  | "ended"
  | "failed"
  | "cancelled";

type Row = Partial<Record<SessionEvent, SessionState>>;

// A report may skip phases (an image that is there is never pulled, a quick batch is seen only when it
// has ended), so each phase allows every later one; none goes back.
const CLOSING: Row = { stop: "TERMINATING", ended: "TERMINATED", failed: "ERROR" };
const RUN: Row = { run: "RUNNING", degrade: "DEGRADED" };
// A start that failed by its node's fault waits again, for another node.
const BACK: Row = { unschedule: "PENDING" };

const TABLE: Readonly<Record<SessionState, Row>> = {
  PENDING: { schedule: "SCHEDULED", cancelled: "CANCELLED", failed: "ERROR" },
  SCHEDULED: {
    ...CLOSING,
    ...RUN,
    unschedule: "PENDING",
    prepare: "PREPARING",
    pull: "PULLING",
    create: "CREATING",
    cancelled: "CANCELLED",
  },
  PREPARING: { ...CLOSING, ...RUN, ...BACK, pull: "PULLING", create: "CREATING", cancelled: "CANCELLED" },
  PULLING: { ...CLOSING, ...RUN, ...BACK, create: "CREATING", cancelled: "CANCELLED" },
  CREATING: { ...CLOSING, ...RUN, ...BACK, cancelled: "CANCELLED" },
  RUNNING: { ...CLOSING, degrade: "DEGRADED", pause: "PAUSED" },
  DEGRADED: { ...CLOSING, run: "RUNNING", pause: "PAUSED" },
  PAUSED: { resume: "PENDING", stop: "TERMINATING", ended: "TERMINATED", failed: "ERROR" },
  TERMINATING: { ended: "TERMINATED", failed: "ERROR", cancelled: "CANCELLED" },
  TERMINATED: {},
  CANCELLED: {},
  ERROR: {},
};

/** The state after `event`, or null where the table does not allow it. */
export function nextState(from: SessionState, event: SessionEvent): SessionState | null {
  return TABLE[from][event] ?? null;
}

/** The state after `event`. Throws `invalid-transition` where the table does not allow it. */
export function transition(from: SessionState, event: SessionEvent): SessionState {
  const to = nextState(from, event);
  if (to !== null) return to;
  throw new BerthError("invalid-transition", `A session that is ${from} cannot ${event}.`, {
    details: { from, event },
  });
}

/** The states from which `event` is allowed, for the guard of an update. */
export function statesAllowing(event: SessionEvent): readonly SessionState[] {
  return SESSION_STATUSES.filter((state) => nextState(state, event) !== null);
}

/** Whether a session in this state has room on a node by right of its state. */
export function occupies(state: SessionState): boolean {
  return !isFinal(state) && state !== "PENDING" && state !== "PAUSED";
}

/** What the agent last saw of a kernel; `unknown` before its first report. */
export type KernelPhase =
  | "unknown"
  | "preparing"
  | "pulling"
  | "creating"
  | "running"
  | "exited"
  | "failed"
  | "gone";

export function isTerminalPhase(phase: KernelPhase): boolean {
  return phase === "exited" || phase === "failed" || phase === "gone";
}

const PHASE_ORDER = ["unknown", "preparing", "pulling", "creating"] as const;
const PHASE_EVENT: Readonly<Record<(typeof PHASE_ORDER)[number], SessionEvent | null>> = {
  unknown: null,
  preparing: "prepare",
  pulling: "pull",
  creating: "create",
};

/**
 * What the phases of a session's kernels mean for it: the event of the slowest kernel while they
 * start, `run` when all run, `degrade` when some run and some have ended, `end` when none is left,
 * in whatever mix they ended. Null says that nothing is known yet.
 */
export function deriveEvent(phases: readonly KernelPhase[]): SessionEvent | "end" | null {
  if (phases.length === 0) return null;
  if (phases.every(isTerminalPhase)) return "end";
  const starting = PHASE_ORDER.find((phase) => phases.includes(phase));
  if (starting !== undefined) return PHASE_EVENT[starting];
  return phases.some(isTerminalPhase) ? "degrade" : "run";
}

/** How long each phase may last, in milliseconds; null means for ever. */
export type PhaseDeadlines = {
  readonly SCHEDULED: number | null;
  readonly PREPARING: number | null;
  readonly PULLING: number | null;
  readonly CREATING: number | null;
  readonly TERMINATING: number | null;
};

const MINUTE = 60_000;
export const DEFAULT_DEADLINES: PhaseDeadlines = {
  SCHEDULED: MINUTE,
  PREPARING: 10 * MINUTE,
  PULLING: 120 * MINUTE,
  CREATING: 5 * MINUTE,
  TERMINATING: 2 * MINUTE,
};

/** The defaults with what a group sets for itself. */
export function deadlinesOf(overrides: Partial<PhaseDeadlines>): PhaseDeadlines {
  return { ...DEFAULT_DEADLINES, ...overrides };
}

/** When the phase that began at `phaseSince` is given up; null where it may last. */
export function deadlineOf(
  state: SessionState,
  phaseSince: WallMs,
  deadlines: PhaseDeadlines = DEFAULT_DEADLINES,
): WallMs | null {
  switch (state) {
    case "SCHEDULED":
    case "PREPARING":
    case "PULLING":
    case "CREATING":
    case "TERMINATING": {
      const limit = deadlines[state];
      return limit === null ? null : phaseSince + limit;
    }
    default:
      return null;
  }
}
