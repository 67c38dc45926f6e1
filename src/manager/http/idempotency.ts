import { createHash } from "node:crypto";
import { z } from "zod";
import type { Clock } from "../../kit/clock.ts";
import { BerthError } from "../../kit/errors.ts";
import type { Store, Tx } from "../store/store.ts";

const KEY = /^[\x21-\x7e]{1,200}$/;
const KEPT_MS = 24 * 3_600_000;

/** One attempt at a create: who asks, on which route, with which key and which content. */
export type Attempt = {
  readonly user: string;
  readonly route: string;
  readonly key: string;
  readonly hash: string;
};

export type Replayable = { readonly replayed: boolean; readonly body: unknown };
export type Stored = { readonly status: number; readonly body: unknown };

export type Idempotency = {
  /**
   * Runs a create and keeps its answer in one transaction with it: whatever happens, the request is carried out once. For
   * creates that wait for nothing but the store. Throws `idempotency-mismatch` and what `run` throws, which frees the key.
   */
  whole(attempt: Attempt, status: number, run: () => Promise<unknown>): Promise<Replayable>;
  /**
   * Claims a key. Returns the stored answer when the request was answered before, undefined when the caller shall go
   * on. Throws `idempotency-mismatch` for another content and `idempotency-in-flight` while the first is under way.
   */
  begin(attempt: Attempt): Promise<Stored | undefined>;
  /** Keeps the answer for a day. Passwords, secrets and values of environment variables in it are not kept. */
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

const CLEARED = ["password", "secret"];

const isObject = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/** Names of variables without their values, at whatever depth an environment is: lists of sessions have several. */
function withoutEnvironments(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(withoutEnvironments);
  if (!isObject(value)) return value;
  const shown = ([key, inner]: [string, unknown]) => {
    if (key !== "environment" || !isObject(inner)) return [key, withoutEnvironments(inner)];
    return [key, Object.fromEntries(Object.keys(inner).map((name) => [name, null]))];
  };
  return Object.fromEntries(Object.entries(value).map(shown));
}

function withoutSecrets(body: unknown): unknown {
  if (!isObject(body)) return withoutEnvironments(body);
  const cleared = Object.entries(body).map(([key, value]) => [key, CLEARED.includes(key) ? null : value]);
  return withoutEnvironments(Object.fromEntries(cleared));
}

const anything = z.unknown();

export function createIdempotency(deps: { readonly store: Store; readonly clock: Clock }): Idempotency {
  const { store, clock } = deps;
  const ours = ({ user, route, key }: Attempt) => ({ user_id: user, route, key });
  const textOf = (body: unknown) => JSON.stringify(withoutSecrets(body) ?? null);

  /** The row of the attempt, unless it is a day old. Throws `idempotency-mismatch`. */
  async function find(tx: Tx, attempt: Attempt) {
    const found = await tx
      .selectFrom("idempotency_keys")
      .selectAll()
      .where((eb) => eb.and(ours(attempt)))
      .where("created_at", ">", clock.wall() - KEPT_MS)
      .executeTakeFirst();
    if (found === undefined || found.request_hash === attempt.hash) return found;
    throw new BerthError(
      "idempotency-mismatch",
      "This Idempotency-Key was used for a request with another content: take a new key.",
    );
  }

  async function put(tx: Tx, attempt: Attempt, answer: { status: number | null; response: string | null }) {
    const { user, route, key, hash } = attempt;
    const row = { request_hash: hash, ...answer, created_at: clock.wall() };
    await tx
      .insertInto("idempotency_keys")
      .values({ user_id: user, route, key, ...row })
      .onConflict((oc) => oc.columns(["user_id", "route", "key"]).doUpdateSet(row))
      .execute();
  }

  const bodyOf = (response: string | null) => anything.parse(JSON.parse(response ?? "null"));

  return {
    whole: (attempt, status, run) =>
      store.writeWhole(async (tx) => {
        const found = await find(tx, attempt);
        if (found !== undefined) return { replayed: true, body: bodyOf(found.response) };
        const body = await run();
        await put(tx, attempt, { status, response: textOf(body) });
        return { replayed: false, body };
      }),

    begin: (attempt) =>
      store.write(async (tx) => {
        const found = await find(tx, attempt);
        if (found === undefined) {
          await put(tx, attempt, { status: null, response: null });
          return undefined;
        }
        if (found.status === null) {
          throw new BerthError(
            "idempotency-in-flight",
            "The first request with this Idempotency-Key is under way.",
          );
        }
        return { status: found.status, body: bodyOf(found.response) };
      }),

    finish: async (attempt, { status, body }) => {
      await store.write((tx) => put(tx, attempt, { status, response: textOf(body) }));
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
