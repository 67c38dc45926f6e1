export type BackoffOptions = {
  /** Wait after the first failure, in ms. */
  readonly firstMs: number;
  /** Longest wait, in ms. */
  readonly maxMs: number;
  /** A number in [0, 1) that spreads the waits of many; without it the full wait is taken. */
  readonly jitter?: () => number;
};

/**
 * Milliseconds to wait after failure number `attempt` (from 1): doubles from `firstMs` up to `maxMs`.
 * With `jitter`, a value between half of the wait and all of it.
 */
export function backoffMs(attempt: number, { firstMs, maxMs, jitter }: BackoffOptions): number {
  // Beyond 2^52 the product is no longer exact, and far above any sensible maximum.
  const full = Math.min(maxMs, firstMs * 2 ** Math.min(Math.max(attempt, 1) - 1, 52));
  return jitter === undefined ? full : Math.round(full / 2 + (full / 2) * jitter());
}
