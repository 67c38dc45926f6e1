import type { TokenId, UserId } from "../../kit/ids.ts";
import type { Principal } from "./principal.ts";

/** Why something open was cut: told to the client where its protocol can. */
export type RevocationReason = "account-inactive" | "token-ended" | "role-changed";

export type Revocations = {
  /**
   * Calls `close` once when the principal's account or token ends. Returns a function that forgets it again. Everything
   * that outlives its request (event streams, followed logs, execs, terminals) registers here.
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

export function createRevocations(): Revocations {
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
      return () => open.delete(entry);
    },
    revokeToken: (tokenId, reason) => cut((entry) => entry.tokenId === tokenId, reason),
    revokeUser: (userId, reason, except) =>
      cut((entry) => entry.userId === userId && entry.tokenId !== except, reason),
    size: () => open.size,
  };
}
