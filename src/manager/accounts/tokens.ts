import type { Token } from "../../contract/accounts.ts";
import type { Clock } from "../../kit/clock.ts";
import { BerthError } from "../../kit/errors.ts";
import { newId, type TokenId } from "../../kit/ids.ts";
import { pageOf, parseCursor } from "../http/cursor.ts";
import type { Store } from "../store/store.ts";
import type { Authenticator } from "./authenticator.ts";
import type { UserPrincipal } from "./principal.ts";
import * as repository from "./repository.ts";
import type { Revocations } from "./revocations.ts";
import { hashSecret, newSecret } from "./secrets.ts";
import { tokenOf } from "./shapes.ts";

const DAY_MS = 24 * 3_600_000;
const DEFAULT_MS = 90 * DAY_MS;
const MAX_MS = 365 * DAY_MS;
const SCOPE = "tokens";

export type Tokens = {
  /** The person's API tokens that still work. */
  list(
    owner: UserPrincipal,
    page: { readonly cursor?: string | undefined; readonly limit: number },
  ): Promise<{ items: Token[]; next: string | null }>;
  /**
   * `ttlMs` is more than 0 and at most 365 days (90 by default). The secret is told this once. Throws `name-in-use`
   * when a token of the owner that still works has the name.
   */
  create(
    owner: UserPrincipal,
    name: string,
    ttlMs: number | undefined,
  ): Promise<{ token: Token; secret: string }>;
  /** Ends a token by id or name. Throws `token-not-found`, and `conflict` when several have the name. */
  end(owner: UserPrincipal, key: string): Promise<void>;
};

export function createTokens(deps: {
  readonly store: Store;
  readonly clock: Clock;
  readonly authenticator: Authenticator;
  readonly revocations: Revocations;
}): Tokens {
  const { store, clock, authenticator, revocations } = deps;

  return {
    list: (owner, { cursor, limit }) =>
      store.read(async (db) => {
        const key = cursor === undefined ? undefined : parseCursor(SCOPE, cursor, 2);
        const rows = await repository.listApiTokens(db, {
          userId: owner.userId,
          now: clock.wall(),
          after: key === undefined ? undefined : [Number(key[0]), String(key[1])],
          limit: limit + 1,
        });
        return pageOf(rows, limit, SCOPE, (row) => [row.created_at, row.id], tokenOf);
      }),

    create: async (owner, name, ttlMs = DEFAULT_MS) => {
      if (ttlMs <= 0 || ttlMs > MAX_MS) {
        throw new BerthError("invalid-request", "ttl must be more than nothing and at most 365d.", {
          field: "ttl",
        });
      }
      const secret = newSecret("api");
      const row = {
        id: newId<TokenId>(clock),
        user_id: owner.userId,
        kind: "api" as const,
        name,
        hash: hashSecret(secret),
        created_at: clock.wall(),
        expires_at: clock.wall() + ttlMs,
        last_used_at: null,
      };
      await store.write(async (tx) => {
        const [same] = await repository.findApiTokens(tx, owner.userId, name, clock.wall());
        if (same !== undefined) {
          const sentence = `You have a token "${name}" already: take another name, or end that one first.`;
          throw new BerthError("name-in-use", sentence, { field: "name" });
        }
        await repository.insertToken(tx, row);
      });
      return { token: tokenOf(row), secret };
    },

    end: (owner, key) =>
      store.write(async (tx) => {
        const found = await repository.findApiTokens(tx, owner.userId, key, clock.wall());
        const chosen = found.find((row) => row.id === key) ?? found[0];
        if (chosen === undefined) {
          throw new BerthError("token-not-found", `You have no token "${key}".`, { field: "token" });
        }
        if (chosen.id !== key && found.length > 1) {
          throw new BerthError(
            "conflict",
            `${found.length} of your tokens are named "${key}": give the id.`,
            {
              field: "token",
            },
          );
        }
        await repository.endToken(tx, chosen.id, clock.wall());
        tx.afterCommit(() => {
          authenticator.forgetAll();
          revocations.revokeToken(chosen.id, "token-ended");
        });
      }),
  };
}
