/**
 * A limit of a policy: `null` is no limit, 0 is zero. There is no number that means "unlimited", so a
 * limit can be compared without special cases.
 */
export type Limit = number | null;

export type ResourcePolicy = {
  readonly name: string;
  /** The most that all unfinished sessions of a person may hold together, by slot. */
  readonly totalSlots: Readonly<Record<string, Limit>>;
  /** The most that waiting sessions may ask for together, by slot. */
  readonly pendingSlots: Readonly<Record<string, Limit>>;
  /** What a slot that `totalSlots` does not name is limited to. */
  readonly unspecifiedSlots: "unlimited" | "zero";
  /** Sessions of a person that have not ended, waiting ones included. */
  readonly maxConcurrentSessions: Limit;
  readonly maxPendingSessions: Limit;
  readonly maxContainersPerSession: Limit;
  readonly maxPriority: Limit;
  /** The longest that a session may run, in milliseconds. */
  readonly maxSessionLifetimeMs: Limit;
  /** How long a session may be idle, in milliseconds. */
  readonly idleTimeoutMs: Limit;
};

/** The policy of a new installation: it limits nothing. */
export const UNLIMITED_POLICY: ResourcePolicy = {
  name: "default",
  totalSlots: {},
  pendingSlots: {},
  unspecifiedSlots: "unlimited",
  maxConcurrentSessions: null,
  maxPendingSessions: null,
  maxContainersPerSession: null,
  maxPriority: null,
  maxSessionLifetimeMs: null,
  idleTimeoutMs: null,
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

/** The limit that a policy sets for one slot of what a person holds in all. */
export function totalSlotLimit(policy: ResourcePolicy, slot: string): Limit {
  const named = policy.totalSlots[slot];
  if (named !== undefined) return named;
  return policy.unspecifiedSlots === "zero" ? 0 : null;
}

/** The limit that a policy sets for one slot of what waiting sessions ask for; unnamed slots are free. */
export function pendingSlotLimit(policy: ResourcePolicy, slot: string): Limit {
  return policy.pendingSlots[slot] ?? null;
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
