import type { PendingSession, SchedulerName } from "./types.ts";

/** The order of the queue of one group: priority bands first, then the group's scheduler inside each. */
export function comparePending(
  scheduler: SchedulerName,
): (a: Pick<PendingSession, "priority" | "seq">, b: Pick<PendingSession, "priority" | "seq">) => number {
  const direction = scheduler === "lifo" ? -1 : 1;
  return (a, b) => b.priority - a.priority || direction * (a.seq - b.seq);
}

export function orderPending<S extends Pick<PendingSession, "priority" | "seq">>(
  pending: readonly S[],
  scheduler: SchedulerName,
): S[] {
  return [...pending].sort(comparePending(scheduler));
}
