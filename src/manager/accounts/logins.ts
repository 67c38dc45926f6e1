import type { Me } from "../../contract/accounts.ts";
import type { Clock } from "../../kit/clock.ts";
import { BerthError } from "../../kit/errors.ts";
import { newId, type TokenId } from "../../kit/ids.ts";
import type { Logger } from "../../kit/log.ts";
import { networkOf } from "../network.ts";
import type { Store } from "../store/store.ts";
import type { Authenticator } from "./authenticator.ts";
import { afterAttempt, refuseLocked } from "./lockout.ts";
import type { Passwords } from "./passwords.ts";
import type { UserPrincipal } from "./principal.ts";
import * as repository from "./repository.ts";
import type { Revocations } from "./revocations.ts";
import { hashSecret, newSecret } from "./secrets.ts";
import { meOf } from "./shapes.ts";
import { userNotFound } from "./users.ts";

/** How long a browser stays signed in. */
export const LOGIN_MS = 7 * 24 * 3_600_000;
/** How long one is told that a token ended, rather than that it is unknown. */
const ENDED_KEPT_MS = 30 * 24 * 3_600_000;
/** Longer than failures count; whoever tries many names must not fill the disk. */
const FAILURES_KEPT_MS = 2 * 3_600_000;

export type Attempt = { readonly email: string; readonly password: string; readonly address: string };

export type Logins = {
  /** Signs in. Throws `wrong-credentials`, `account-locked`, `account-inactive`, `too-many-requests`. */
  login(attempt: Attempt): Promise<{ readonly secret: string; readonly me: Me }>;
  /** Ends the login or token that was presented. */
  logout(principal: UserPrincipal): Promise<void>;
  me(principal: UserPrincipal): Promise<Me>;
  /** Throws `wrong-credentials`; ends the person's other logins. */
  changePassword(principal: UserPrincipal, current: string, next: string): Promise<void>;
  /** Deletes what ended a month ago and failures that count no more. */
  prune(): Promise<void>;
};

const wrongCredentials = () =>
  new BerthError("wrong-credentials", "The e-mail address or the password is wrong.");

export function createLogins(deps: {
  readonly store: Store;
  readonly clock: Clock;
  readonly log: Logger;
  readonly passwords: Passwords;
  readonly authenticator: Authenticator;
  readonly revocations: Revocations;
}): Logins {
  const { store, clock, log, passwords, authenticator, revocations } = deps;

  /** Counts the attempt before its outcome is known, so that many at once cannot pass the limit together. */
  const countAttempt = ({ email, address }: Attempt) =>
    store.write(async (tx) => {
      const kept = await repository.findFailures(tx, email, networkOf(address));
      refuseLocked(kept, clock.wall());
      const next = afterAttempt(kept, clock.wall());
      await repository.putFailures(tx, email, networkOf(address), next);
      if (next.lockedUntil !== null) log.warn({ email, address }, "ten sign-ins failed: locked");
      return repository.findUser(tx, email);
    });

  const open = ({ email, address }: Attempt, user: repository.UserRow) =>
    store.write(async (tx) => {
      await repository.forgetFailures(tx, email, networkOf(address));
      const secret = newSecret("login");
      const now = clock.wall();
      await repository.insertToken(tx, {
        id: newId<TokenId>(clock),
        user_id: user.id,
        kind: "login",
        name: address,
        hash: hashSecret(secret),
        created_at: now,
        expires_at: now + LOGIN_MS,
        last_used_at: now,
      });
      await repository.updateUser(tx, user.id, { last_login_at: now });
      const row = (await repository.findUser(tx, user.id)) ?? user;
      return { secret, me: meOf(row, now + LOGIN_MS) };
    });

  const present = async (principal: UserPrincipal) => {
    const row = await store.read((db) => repository.findUser(db, principal.userId));
    if (row === undefined) throw userNotFound(principal.email);
    return row;
  };

  return {
    login: async (given) => {
      const attempt = { ...given, email: given.email.toLowerCase() };
      const user = await countAttempt(attempt);
      if (!(await passwords.verify(attempt.password, user?.password_hash)) || user === undefined) {
        throw wrongCredentials();
      }
      if (user.active === 0) {
        throw new BerthError("account-inactive", "Your account is deactivated: ask an administrator.");
      }
      log.info({ user: user.email, address: attempt.address }, "signed in");
      return open(attempt, user);
    },

    logout: (principal) =>
      store.write(async (tx) => {
        await repository.endToken(tx, principal.tokenId, clock.wall());
        tx.afterCommit(() => {
          authenticator.forgetAll();
          revocations.revokeToken(principal.tokenId, "token-ended");
        });
      }),

    me: async (principal) => meOf(await present(principal), principal.expiresAt),

    changePassword: async (principal, current, next) => {
      const row = await present(principal);
      if (!(await passwords.verify(current, row.password_hash))) {
        throw new BerthError("wrong-credentials", "The current password is wrong.", { field: "current" });
      }
      const hash = await passwords.hash(next);
      await store.write(async (tx) => {
        const userId = principal.userId;
        await repository.updateUser(tx, userId, { password_hash: hash });
        const others = { userId, kind: "login" as const, except: principal.tokenId };
        const ended = await repository.endTokens(tx, others, clock.wall());
        tx.afterCommit(() => {
          authenticator.forgetAll();
          for (const id of ended) revocations.revokeToken(id, "token-ended");
        });
      });
    },

    prune: () =>
      store.write(async (tx) => {
        await repository.deleteEndedTokens(tx, clock.wall() - ENDED_KEPT_MS);
        await repository.deleteOldFailures(tx, clock.wall() - FAILURES_KEPT_MS);
      }),
  };
}
