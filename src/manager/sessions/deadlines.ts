import type { Cancel, Clock, MonoMs } from "../../kit/clock.ts";
import type { SessionId } from "../../kit/ids.ts";
import { readDeadlines } from "./columns.ts";
import type { SessionRow } from "./repository.ts";
import { deadlineOf } from "./state-machine.ts";

export interface Deadlines {
  /** Keeps the timer of the session's phase; true when the phase has lasted too long. */
  expired(session: SessionRow): boolean;
  /** Forgets the timer: the session ended, waits for its node, or its phase starts anew. */
  clear(session: SessionId): void;
  close(): void;
}

/** After a restart of ours or a return of its node each phase gets at least this time. */
const LEAST_MS = 30_000;

/**
 * The timers of the sessions' phases. They run by the clock that never steps, so a jump of the wall clock
 * ends nothing. `wake` is called when one is over.
 */
export function createDeadlines(clock: Clock, wake: (session: SessionId) => void): Deadlines {
  type Timer = { status: SessionRow["status"]; since: number; due: MonoMs; cancel: Cancel };
  const timers = new Map<SessionId, Timer>();

  const clear = (id: SessionId) => {
    timers.get(id)?.cancel();
    timers.delete(id);
  };
  const leftOf = (session: SessionRow, limit: number): number => {
    const elapsed = clock.wall() - session.status_since;
    return Math.min(limit, Math.max(Math.min(LEAST_MS, limit), limit - elapsed));
  };

  return {
    expired: (session) => {
      const due = deadlineOf(session.status, session.status_since, readDeadlines(session.deadlines));
      if (due === null) {
        clear(session.id);
        return false;
      }
      const known = timers.get(session.id);
      if (known?.status === session.status && known.since === session.status_since) {
        return known.due <= clock.mono();
      }
      known?.cancel();
      const left = leftOf(session, due - session.status_since);
      timers.set(session.id, {
        status: session.status,
        since: session.status_since,
        due: clock.mono() + left,
        cancel: clock.after(left, () => wake(session.id)),
      });
      return false;
    },
    clear,
    close: () => {
      for (const id of [...timers.keys()]) clear(id);
    },
  };
}
