import type { Clock, MonoMs } from "../../kit/clock.ts";
import { asId, isId, type SessionId } from "../../kit/ids.ts";
import type { KernelStatus } from "../../wire/generated/berth.ts";

/** How far the pull of a session's image is; totals are 0 while they are not known. */
export type PullState = { readonly phase: string; readonly doneBytes: number; readonly totalBytes: number };

export interface Progress {
  /** Takes the pull out of a status; `before` is the status before it. */
  note(before: KernelStatus | undefined, status: KernelStatus): void;
  of(session: SessionId): PullState | null;
}

const LEAST_BETWEEN_MS = 1_000;

/** The pulls under way of sessions, in memory; `tell` is called for each session at most once a second. */
export function createProgress(clock: Clock, tell: (session: SessionId, pull: PullState) => void): Progress {
  const pulls = new Map<SessionId, { pull: PullState; told: MonoMs }>();

  return {
    note: (before, status) => {
      if (!isId(status.sessionId)) return;
      const session = asId<SessionId>(status.sessionId);
      const { pull } = status;
      if (pull === undefined || pull.finished) {
        pulls.delete(session);
        return;
      }
      const state = { phase: pull.phase, doneBytes: pull.doneBytes, totalBytes: pull.totalBytes };
      const known = pulls.get(session);
      const now = clock.mono();
      const due =
        known === undefined || now - known.told >= LEAST_BETWEEN_MS || before?.pull?.phase !== pull.phase;
      pulls.set(session, { pull: state, told: due ? now : (known?.told ?? now) });
      if (due) tell(session, state);
    },
    of: (session) => pulls.get(session)?.pull ?? null,
  };
}
