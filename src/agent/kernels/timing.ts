import type { Cancel, Clock } from "../../kit/clock.ts";
import type { Logger } from "../../kit/log.ts";
import type { Progress } from "./capture.ts";

/**
 * Waits for the task, but no longer than `ms`; `late` is aborted in any case, so that the task stops. Rejects when
 * `closing` aborts.
 */
export async function within(
  clock: Clock,
  ms: number,
  task: Promise<void>,
  { late = new AbortController(), closing }: { late?: AbortController; closing?: AbortSignal } = {},
): Promise<void> {
  const signals = closing === undefined ? [late.signal] : [late.signal, closing];
  try {
    await Promise.race([task, clock.sleep(ms, AbortSignal.any(signals)).catch(() => {})]);
    closing?.throwIfAborted();
  } finally {
    late.abort();
  }
}

/** As `within`, but the time begins anew whenever something was read meanwhile. */
export async function whileMoving(
  clock: Clock,
  stallMs: number,
  progress: Progress,
  task: Promise<void>,
  { late = new AbortController(), closing }: { late?: AbortController; closing: AbortSignal },
): Promise<void> {
  let over = false;
  const watched = task.finally(() => {
    over = true;
  });
  try {
    for (let before = -1; !over && before !== progress.chunks; ) {
      before = progress.chunks;
      await within(clock, stallMs, watched, { closing });
    }
  } finally {
    late.abort();
    // A task that is given up may still fail; nobody waits for it then.
    watched.catch(() => {});
  }
}

/** Runs `fn` every `periodMs`, never twice at the same time; a failure is logged. */
export function everyAlone(clock: Clock, periodMs: number, log: Logger, fn: () => Promise<void>): Cancel {
  let busy = false;
  return clock.every(periodMs, () => {
    if (busy) return;
    busy = true;
    fn()
      .catch((err: unknown) => log.warn({ err }, "a periodic task failed"))
      .finally(() => {
        busy = false;
      });
  });
}
