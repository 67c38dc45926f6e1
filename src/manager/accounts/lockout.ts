import type { WallMs } from "../../kit/clock.ts";
import { BerthError } from "../../kit/errors.ts";

export const MAX_FAILURES = 10;
export const LOCK_MS = 20 * 60_000;
/** Failures further apart than this do not add up. */
const FORGET_MS = 60 * 60_000;

/** What is kept for one (e-mail, network of the client). */
export type Failures = {
  readonly failures: number;
  readonly lastAt: WallMs;
  readonly lockedUntil: WallMs | null;
};

/** When the lock ends, or null when there is none now. */
export function lockedUntil(kept: Failures | undefined, now: WallMs): WallMs | null {
  const until = kept?.lockedUntil ?? null;
  return until !== null && until > now ? until : null;
}

/** Throws `account-locked` with the time that is left. */
export function refuseLocked(kept: Failures | undefined, now: WallMs): void {
  const until = lockedUntil(kept, now);
  if (until === null) return;
  const seconds = Math.ceil((until - now) / 1000);
  throw new BerthError(
    "account-locked",
    `Ten sign-ins from your address failed: it is locked for this account for another ${Math.ceil(seconds / 60)} min. ` +
      "An administrator can unlock it: berth user unlock.",
    { details: { retryAfterSeconds: seconds } },
  );
}

/** The state after one more attempt, counted before its outcome is known; a success forgets it all. */
export function afterAttempt(kept: Failures | undefined, now: WallMs): Failures {
  const stale = kept === undefined || kept.lockedUntil !== null || now - kept.lastAt > FORGET_MS;
  const failures = (stale ? 0 : kept.failures) + 1;
  return { failures, lastAt: now, lockedUntil: failures >= MAX_FAILURES ? now + LOCK_MS : null };
}
