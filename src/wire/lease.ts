/**
 * Leases tell an agent from a copy of it. Each connect rotates the lease: the manager stores the new one,
 * sends it in Welcome, the agent stores it and then acknowledges it (LeaseStored). Between the two the
 * manager cannot know which one the agent has, so it takes both: never an older one.
 */
export type LeaseState = {
  /** The lease issued last. Null where the manager knows none: a new agent, or after a restored backup. */
  readonly stored: string | null;
  /** The lease that the agent offered when `stored` was issued; null once `stored` is acknowledged. */
  readonly previous: string | null;
};

export const NO_LEASE: LeaseState = { stored: null, previous: null };

export type LeaseVerdict =
  /** Store `state` before sending its lease; cut the stream that lives, if there is one. */
  | { readonly kind: "accept"; readonly state: LeaseState }
  | {
      readonly kind: "refuse";
      readonly code: "clone" | "lease-in-doubt" | "identity-in-use";
      readonly sentence: string;
      /** Whether the agent may try again by itself. */
      readonly retry: boolean;
    };

export type LeaseOffer = LeaseState & {
  /** What the agent stored last; empty where it has stored none. */
  readonly offered: string;
  /** Whether a stream of this agent id is connected now. */
  readonly hasLiveStream: boolean;
  /** Whether the agent runs in another boot than the one that connected last; false where either is unknown. */
  readonly otherBoot: boolean;
  /** A new random text, never used before. */
  readonly newLease: string;
};

const CLONE =
  "This agent's identity is in use by another copy, which has connected since: its lease is newer. " +
  "If this machine was cloned or restored from a copy, remove its agent state and join it again.";
const IN_DOUBT =
  "The newest lease was sent to a stream that is still connected and has not acknowledged it. " +
  "The agent tries again once that stream has ended.";
const IN_USE =
  "An agent with this identity is connected from another boot of a machine. If this machine was cloned or " +
  "restored from a copy, remove its agent state and join it again. If it has only restarted, the agent " +
  "gets in by itself once its old connection counts as lost.";

/**
 * Whether an agent that connects is the one that was served last. The newest lease replaces a stream that
 * lives if it comes from the same boot; an unacknowledged rotation may be repeated with the lease before
 * it, unless its stream lives.
 */
export function evaluateLease(offer: LeaseOffer): LeaseVerdict {
  const { stored, previous, offered, hasLiveStream, otherBoot, newLease } = offer;
  const accept: LeaseVerdict = { kind: "accept", state: { stored: newLease, previous: offered } };
  if (stored === null || offered === stored) {
    // One machine is never up twice: one of the two is a copy, and nothing but time tells which one.
    const twice = hasLiveStream && otherBoot;
    return twice ? { kind: "refuse", code: "identity-in-use", sentence: IN_USE, retry: true } : accept;
  }
  if (previous === null || offered !== previous) {
    return { kind: "refuse", code: "clone", sentence: CLONE, retry: false };
  }
  if (hasLiveStream) return { kind: "refuse", code: "lease-in-doubt", sentence: IN_DOUBT, retry: true };
  return accept;
}

/** The state after LeaseStored: from now on the newest lease alone is good. Unchanged for any other lease. */
export function acknowledgeLease(state: LeaseState, lease: string): LeaseState {
  return lease === state.stored ? { stored: lease, previous: null } : state;
}
