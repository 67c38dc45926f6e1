import type { z } from "zod";
import type { policyLimits } from "../../contract/cluster.ts";

/** The limits as the API shows and stores them. */
export type PolicyLimits = Readonly<z.infer<typeof policyLimits>>;

/**
 * A limit of a policy: `null` is no limit, 0 is zero. There is no number that means "unlimited", so a
 * limit can be compared without special cases.
 */
export type Limit = number | null;

export type ResourcePolicy = PolicyLimits & {
  readonly name: string;
  /** What a slot that `totalSlots` does not name is limited to; `unlimited` where absent. */
  readonly unspecifiedSlots?: "unlimited" | "zero";
};

/** The limits of a new installation: none. */
export const NO_LIMITS: PolicyLimits = {
  totalSlots: null,
  maxPendingSlots: null,
  maxConcurrentSessions: null,
  maxPendingSessions: null,
  maxContainersPerSession: null,
  maxPriority: null,
  maxSessionLifetimeMs: null,
};

/** The tightest of several limits; null where none limits. */
export function effectiveLimit(...limits: readonly Limit[]): Limit {
  let least: Limit = null;
  for (const limit of limits) if (limit !== null && (least === null || limit < least)) least = limit;
  return least;
}

/** Whether `held` and `adding` together stay within the limit. Adding nothing is always within. */
export function within(limit: Limit, held: number, adding: number): boolean {
  return adding <= 0 || limit === null || held + adding <= limit;
}

/** The limit that a policy sets for one slot of all that a person holds, waiting sessions included. */
export function totalSlotLimit(policy: ResourcePolicy, slot: string): Limit {
  const unspecified = policy.unspecifiedSlots === "zero" ? 0 : null;
  return policy.totalSlots?.[slot] ?? unspecified;
}

/** The limit that a policy sets for one slot of what a person's waiting sessions ask for. */
export function pendingSlotLimit(policy: ResourcePolicy, slot: string): Limit {
  return policy.maxPendingSlots?.[slot] ?? null;
}

export type ExceededSlot = {
  readonly slot: string;
  readonly limit: number;
  readonly held: number;
  readonly adding: number;
};

/** The slots in which `held` plus `adding` is beyond the limit, in the order of `adding`. */
export function exceededSlots(
  limitOf: (slot: string) => Limit,
  held: Readonly<Record<string, number>>,
  adding: Readonly<Record<string, number>>,
): readonly ExceededSlot[] {
  const exceeded: ExceededSlot[] = [];
  for (const [slot, amount] of Object.entries(adding)) {
    const limit = limitOf(slot);
    const have = held[slot] ?? 0;
    if (limit !== null && !within(limit, have, amount)) {
      exceeded.push({ slot, limit, held: have, adding: amount });
    }
  }
  return exceeded;
}
