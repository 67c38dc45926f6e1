import type { Clock, WallMs } from "../../kit/clock.ts";
import type { TokenId, UserId } from "../../kit/ids.ts";
import type { Principal } from "./principal.ts";

/** Why something open was cut: told to the client where its protocol can. */
export type RevocationReason = "account-inactive" | "token-ended" | "role-changed";

export type Revocations = {
  /**
   * Calls `close` once when the principal's account or token ends, also when the token expires. Returns a function that
   * forgets it again. Everything that outlives its request (event streams, followed logs, execs, terminals) registers here.
   */
  onRevoked(principal: Principal, close: (reason: RevocationReason) => void): () => void;
  /** Cuts everything that was opened with one token. */
  revokeToken(tokenId: TokenId, reason: RevocationReason): void;
  /** Cuts everything that a user has open, but for what the excepted token opened. */
  revokeUser(userId: UserId, reason: RevocationReason, except?: TokenId): void;
  /** What is open now. */
  size(): number;
};

type Entry = {
  readonly userId: UserId;
  readonly tokenId: TokenId;
  readonly close: (reason: RevocationReason) => void;
};

/** Timers do not follow a wall clock that is set or a machine that slept, so it is looked at again this often. */
const LOOK_MS = 60_000;

/** Runs `fn` once when the wall clock has reached `at`. */
function whenReached(clock: Clock, at: WallMs, fn: () => void): () => void {
  let cancel = () => {};
  const look = () => {
    const left = at - clock.wall();
    cancel = clock.after(Math.min(left, LOOK_MS), () => (at <= clock.wall() ? fn() : look()));
  };
  look();
  return () => cancel();
}

export function createRevocations({ clock }: { readonly clock: Clock }): Revocations {
  const open = new Set<Entry>();

  function cut(matches: (entry: Entry) => boolean, reason: RevocationReason): void {
    for (const entry of [...open].filter(matches)) {
      open.delete(entry);
      entry.close(reason);
    }
  }

  return {
    onRevoked: (principal, close) => {
      if (principal.kind === "local") return () => {};
      const entry = { userId: principal.userId, tokenId: principal.tokenId, close };
      open.add(entry);
      const { expiresAt } = principal;
      const rest =
        expiresAt === null
          ? () => {}
          : whenReached(clock, expiresAt, () => cut((each) => each === entry, "token-ended"));
      return () => {
        rest();
        open.delete(entry);
      };
    },
    revokeToken: (tokenId, reason) => cut((entry) => entry.tokenId === tokenId, reason),
    revokeUser: (userId, reason, except) =>
      cut((entry) => entry.userId === userId && entry.tokenId !== except, reason),
    size: () => open.size,
  };
}
