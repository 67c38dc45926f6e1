import {
  type ExceededSlot,
  effectiveLimit,
  exceededSlots,
  pendingSlotLimit,
  totalSlotLimit,
  within,
} from "../policies/limits.ts";
import { plural, slotInWords } from "../scheduling/words.ts";
import { expandNames, FORM_RULES, MAX_COUNT } from "./admission-rules.ts";
import { resolveSlots } from "./admission-slots.ts";
import type { Adjusted, Admission, AdmissionFacts, AdmissionRequest, Refusal } from "./admission-types.ts";
import { checkEnvironment } from "./environment.ts";
import { checkMountPaths } from "./mount-paths.ts";

/** What a session gets that states no priority. */
export const DEFAULT_PRIORITY = 10;
export const MAX_PRIORITY = 100;
/** The right without which nobody goes above `DEFAULT_PRIORITY`. */
export const PRIORITY_RIGHT = "session.priority";

function refusal(code: string, field: string, sentence: string, details: Refusal["details"] = {}): Refusal {
  return { code, field, sentence, details };
}

/** What is wrong with a priority; used for changing that of a waiting session as well. */
export function checkPriority(
  priority: number,
  facts: Pick<AdmissionFacts, "policy" | "rights">,
): readonly Refusal[] {
  const field = "priority";
  if (!Number.isInteger(priority) || priority < 0 || priority > MAX_PRIORITY) {
    const sentence = `A priority is a whole number from 0 to ${MAX_PRIORITY}.`;
    return [refusal("invalid-priority", field, sentence, { minimum: 0, maximum: MAX_PRIORITY })];
  }
  const refusals: Refusal[] = [];
  if (priority > DEFAULT_PRIORITY && !facts.rights.has(PRIORITY_RIGHT)) {
    const needed = `needs the right ${PRIORITY_RIGHT}, which you do not have`;
    const sentence = `A priority above ${DEFAULT_PRIORITY} ${needed}.`;
    refusals.push(refusal("priority-not-permitted", field, sentence, { limit: DEFAULT_PRIORITY }));
  }
  const limit = facts.policy.maxPriority;
  if (limit !== null && priority > limit) {
    const allowed = `allows a priority of ${limit} at the most`;
    const sentence = `Your policy ${facts.policy.name} ${allowed}; ${priority} was asked for.`;
    refusals.push(refusal("priority-above-policy", field, sentence, { limit }));
  }
  return refusals;
}

/** The default gives way to the policy silently: who states nothing must not be refused for it. */
function resolvePriority(
  request: AdmissionRequest,
  facts: AdmissionFacts,
): { priority: number; adjusted: Adjusted[] } {
  const asked = request.priority ?? DEFAULT_PRIORITY;
  const limit = facts.policy.maxPriority;
  if (asked !== DEFAULT_PRIORITY || limit === null || limit >= asked)
    return { priority: asked, adjusted: [] };
  const most = `the most that your policy ${facts.policy.name} allows`;
  const sentence = `The priority was lowered from ${asked} to ${limit}, ${most}.`;
  return { priority: limit, adjusted: [{ what: "priority", asked, given: limit, sentence }] };
}

function checkCounts(request: AdmissionRequest, facts: AdmissionFacts): readonly Refusal[] {
  const { policy, usage } = facts;
  const { count } = request;
  const containers = request.containers ?? 1;
  const refusals: Refusal[] = [];
  const check = (
    code: string,
    field: string,
    limit: number | null,
    held: number,
    adding: number,
    what: string,
  ) => {
    if (limit === null || within(limit, held, adding)) return;
    const allowed = `Your policy ${policy.name} allows ${limit} ${what}`;
    const sentence = `${allowed}; you have ${held} and asked for ${adding} more.`;
    refusals.push(refusal(code, field, sentence, { limit, held, asked: adding }));
  };
  const { maxConcurrentSessions, maxPendingSessions, maxContainersPerSession } = policy;
  const unfinished = "sessions that have not ended";
  check("too-many-sessions", "count", maxConcurrentSessions, usage.sessions, count, unfinished);
  check("too-many-pending", "count", maxPendingSessions, usage.pendingSessions, count, "waiting sessions");
  if (!Number.isInteger(containers) || containers < 1) {
    refusals.push(refusal("invalid-containers", "containers", "A session has at least one container."));
  } else if (maxContainersPerSession !== null && containers > maxContainersPerSession) {
    const allowed = `${plural(maxContainersPerSession, "container")} per session`;
    const sentence = `Your policy ${policy.name} allows ${allowed}; ${containers} were asked for.`;
    const details = { limit: maxContainersPerSession, asked: containers };
    refusals.push(refusal("too-many-containers", "containers", sentence, details));
  }
  return refusals;
}

function checkAmounts(
  request: AdmissionRequest,
  facts: AdmissionFacts,
  slots: Readonly<Record<string, number>>,
): readonly Refusal[] {
  const { policy, usage } = facts;
  const times = request.count * (request.containers ?? 1);
  const adding = Object.fromEntries(Object.entries(slots).map(([slot, amount]) => [slot, amount * times]));
  const tell = (code: string, what: (limit: string) => string) => (over: ExceededSlot) => {
    const { slot, limit, held, adding: asked } = over;
    const words = (amount: number) => slotInWords(slot, amount);
    const sentence =
      `Your policy ${policy.name} allows ${what(words(limit))}; ` +
      `they have ${words(held)} and ${words(asked)} more were asked for.`;
    return refusal(code, `slots.${slot}`, sentence, { slot, limit, held, asked });
  };
  const total = exceededSlots((slot) => totalSlotLimit(policy, slot), usage.slots, adding).map(
    tell("slots-exceeded", (limit) => `your unfinished sessions ${limit} together`),
  );
  const pending = exceededSlots((slot) => pendingSlotLimit(policy, slot), usage.pendingSlots, adding).map(
    tell("pending-slots-exceeded", (limit) => `your waiting sessions ${limit} together`),
  );
  return [...total, ...pending];
}

/**
 * Decides whether what a person asks for may be queued, and with what. All broken rules are told, not
 * only the first. Several sessions are admitted all together or not at all.
 */
export function admit(request: AdmissionRequest, facts: AdmissionFacts): Admission {
  const resolved = resolveSlots(request, facts);
  const { priority, adjusted } = resolvePriority(request, facts);
  const countable = Number.isInteger(request.count) && request.count >= 1 && request.count <= MAX_COUNT;
  const refusals = [
    ...FORM_RULES.flatMap((rule) => rule(request, facts)),
    ...checkPriority(priority, facts),
    ...resolved.refusals,
    ...(countable ? checkCounts(request, facts) : []),
    ...(countable ? checkAmounts(request, facts, resolved.slots) : []),
    ...checkEnvironment(request.env),
    ...checkMountPaths(request.mountPaths ?? []),
  ];
  if (refusals.length > 0) return { ok: false, refusals };
  return {
    ok: true,
    names: expandNames(request.name, request.count),
    slots: resolved.slots,
    shm: resolved.shm,
    priority,
    lifetimeMs: effectiveLimit(request.timeoutMs, facts.policy.maxSessionLifetimeMs),
    adjusted: [...resolved.adjusted, ...adjusted],
  };
}
