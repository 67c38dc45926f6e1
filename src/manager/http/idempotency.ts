import { createHash } from "node:crypto";
import { z } from "zod";
import type { Clock } from "../../kit/clock.ts";
import { BerthError } from "../../kit/errors.ts";
import type { Store } from "../store/store.ts";

const KEY = /^[\x21-\x7e]{1,200}$/;
const KEPT_MS = 24 * 3_600_000;

/** One attempt at a create: who asks, on which route, with which key and which content. */
export type Attempt = {
  readonly user: string;
  readonly route: string;
  readonly key: string;
  readonly hash: string;
};

export type Stored = { readonly status: number; readonly body: unknown };

export type Idempotency = {
  /**
   * Claims a key. Returns the stored answer when the request was answered before, undefined when the caller shall go
   * on. Throws `idempotency-mismatch` for another content and `idempotency-in-flight` while the first is under way.
   */
  begin(attempt: Attempt): Promise<Stored | undefined>;
  /** Keeps the answer for a day. Passwords and secrets in it are not kept. */
  finish(attempt: Attempt, answer: Stored): Promise<void>;
  /** Frees the key of a request that failed, so that it may be tried again. */
  forget(attempt: Attempt): Promise<void>;
  /** Forgets answers older than a day. */
  prune(): Promise<void>;
  /** Frees the keys of requests that a stopped manager left behind. */
  recover(): Promise<void>;
};

/** Checks an `Idempotency-Key` header. Throws `invalid-request`. */
export function checkKey(key: string): string {
  if (KEY.test(key)) return key;
  throw new BerthError("invalid-request", "An Idempotency-Key has 1 to 200 visible ASCII characters.", {
    field: "Idempotency-Key",
  });
}

export function hashOf(...parts: readonly (string | Buffer)[]): string {
  const hash = createHash("sha256");
  for (const part of parts) hash.update(part).update("\0");
  return hash.digest("hex");
}

function withoutSecrets(body: unknown): unknown {
  if (typeof body !== "object" || body === null) return body;
  return Object.fromEntries(
    Object.entries(body).map(([key, value]) => [key, key === "password" || key === "secret" ? null : value]),
  );
}

const anything = z.unknown();

export function createIdempotency(deps: { readonly store: Store; readonly clock: Clock }): Idempotency {
  const { store, clock } = deps;
  const ours = ({ user, route, key }: Attempt) => ({ user_id: user, route, key });

  return {
    begin: (attempt) =>
      store.write(async (tx) => {
        const { user, route, key, hash } = attempt;
        const found = await tx
          .selectFrom("idempotency_keys")
          .selectAll()
          .where((eb) => eb.and(ours(attempt)))
          .where("created_at", ">", clock.wall() - KEPT_MS)
          .executeTakeFirst();
        if (found === undefined) {
          const row = { request_hash: hash, status: null, response: null, created_at: clock.wall() };
          await tx
            .insertInto("idempotency_keys")
            .values({ user_id: user, route, key, ...row })
            .onConflict((oc) => oc.columns(["user_id", "route", "key"]).doUpdateSet(row))
            .execute();
          return undefined;
        }
        if (found.request_hash !== hash) {
          throw new BerthError(
            "idempotency-mismatch",
            "This Idempotency-Key was used for a request with another content: take a new key.",
          );
        }
        if (found.status === null) {
          throw new BerthError(
            "idempotency-in-flight",
            "The first request with this Idempotency-Key is under way.",
          );
        }
        return { status: found.status, body: anything.parse(JSON.parse(found.response ?? "null")) };
      }),

    finish: async (attempt, { status, body }) => {
      const response = JSON.stringify(withoutSecrets(body) ?? null);
      await store.write((tx) =>
        tx
          .updateTable("idempotency_keys")
          .set({ status, response })
          .where((eb) => eb.and(ours(attempt)))
          .execute(),
      );
    },

    forget: async (attempt) => {
      await store.write((tx) =>
        tx
          .deleteFrom("idempotency_keys")
          .where((eb) => eb.and(ours(attempt)))
          .where("status", "is", null)
          .execute(),
      );
    },

    prune: async () => {
      await store.write((tx) =>
        tx
          .deleteFrom("idempotency_keys")
          .where("created_at", "<=", clock.wall() - KEPT_MS)
          .execute(),
      );
    },

    recover: async () => {
      await store.write((tx) => tx.deleteFrom("idempotency_keys").where("status", "is", null).execute());
    },
  };
}
