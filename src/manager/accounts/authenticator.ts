import type { Clock, WallMs } from "../../kit/clock.ts";
import { BerthError } from "../../kit/errors.ts";
import type { TokenId } from "../../kit/ids.ts";
import type { Logger } from "../../kit/log.ts";
import type { Store } from "../store/store.ts";
import type { UserPrincipal } from "./principal.ts";
import * as repository from "./repository.ts";
import { hashSecret } from "./secrets.ts";

export type Authenticator = {
  /** The person behind a secret. Throws `token-ended` or `account-inactive`. Costs neither a write nor a slow hash. */
  authenticate(secret: string): Promise<UserPrincipal>;
  /** To be called after every change of users or tokens: nothing that was known counts any more. */
  forgetAll(): void;
  /** Writes down when tokens were used last; to be called about once a minute and at the end. */
  flush(): Promise<void>;
};

const MAX_KNOWN = 10_000;

const tokenEnded = () =>
  new BerthError(
    "token-ended",
    "This sign-in or token is not valid: it ended or was removed. Sign in again.",
  );

export function createAuthenticator(deps: {
  readonly store: Store;
  readonly clock: Clock;
  readonly log: Logger;
}): Authenticator {
  const { store, clock, log } = deps;
  const known = new Map<string, UserPrincipal>();
  let used = new Map<TokenId, WallMs>();
  // What was read before a change must not be remembered after it.
  let generation = 0;

  async function lookUp(hash: string): Promise<UserPrincipal> {
    const before = generation;
    const found = await store.read(async (db) => {
      const token = await repository.findTokenByHash(db, hash);
      const user = token === undefined ? undefined : await repository.findUser(db, token.user_id);
      return token === undefined || user === undefined ? undefined : { token, user };
    });
    if (found === undefined) throw tokenEnded();
    const { token, user } = found;
    if (user.active === 0) {
      throw new BerthError("account-inactive", "Your account is deactivated: ask an administrator.");
    }
    const principal: UserPrincipal = {
      kind: "user",
      userId: user.id,
      email: user.email,
      name: user.name,
      role: user.role,
      uid: user.uid,
      gid: user.gid,
      policyId: user.policy_id,
      tokenId: token.id,
      tokenKind: token.kind,
      expiresAt: token.expires_at,
    };
    if (before === generation) {
      if (known.size >= MAX_KNOWN) known.clear();
      known.set(hash, principal);
    }
    return principal;
  }

  return {
    authenticate: async (secret) => {
      const hash = hashSecret(secret);
      const principal = known.get(hash) ?? (await lookUp(hash));
      if (principal.expiresAt !== null && principal.expiresAt <= clock.wall()) throw tokenEnded();
      used.set(principal.tokenId, clock.wall());
      return principal;
    },
    forgetAll: () => {
      generation++;
      known.clear();
    },
    flush: async () => {
      if (used.size === 0) return;
      const batch = used;
      used = new Map();
      await store
        .write((tx) => repository.markUsed(tx, batch))
        .catch((err: unknown) => log.warn({ err }, "could not write down when tokens were used"));
    },
  };
}
