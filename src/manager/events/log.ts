import { sql } from "kysely";
import { z } from "zod";
import type { EventKind } from "../../contract/system.ts";
import type { Clock, WallMs } from "../../kit/clock.ts";
import type { UserId } from "../../kit/ids.ts";
import type { Logger } from "../../kit/log.ts";
import type { Store, Tx } from "../store/store.ts";

/** What a feature tells. */
export type NewEvent = {
  readonly kind: EventKind;
  /** Id of the session, agent, image, group or user that it is about. */
  readonly subject: string;
  /** Whose it is: that user and administrators see it. Null: administrators alone, unless `everyone`. */
  readonly ownerId: UserId | null;
  readonly everyone?: boolean;
  /** Plain JSON, never secrets. */
  readonly data: Readonly<Record<string, unknown>>;
};

export type StoredEvent = {
  /** Grows with each event and is never used again. */
  readonly seq: number;
  readonly at: WallMs;
  readonly kind: string;
  readonly subject: string;
  readonly ownerId: UserId | null;
  readonly everyone: boolean;
  readonly data: Readonly<Record<string, unknown>>;
};

/** Which events a reader wants; `ownerId` undefined means all that there are. */
export type EventFilter = {
  readonly ownerId?: UserId | undefined;
  readonly subject?: string | undefined;
  /** `session` takes `session.created` and its like; empty takes all. */
  readonly kinds?: readonly string[] | undefined;
};

export type EventLog = {
  /** Writes an event within the caller's transaction; subscribers hear of it after the commit. */
  append(tx: Tx, event: NewEvent): Promise<void>;
  /** Calls `fn` for each event after its commit, in order. `fn` must be quick and must not throw. */
  subscribe(fn: (event: StoredEvent) => void): () => void;
  /** The events after `seq` that the filter takes, oldest first, at most `limit`. */
  after(seq: number, filter: EventFilter, limit: number): Promise<readonly StoredEvent[]>;
  /** The first and last sequence number that is kept; both 0 when there was never an event. */
  bounds(): Promise<{ readonly first: number; readonly last: number }>;
  /** Deletes events older than `maxAgeMs` and, oldest first, those beyond `maxRows`. Returns how many. */
  prune(limits: { readonly maxAgeMs: number; readonly maxRows: number }): Promise<number>;
};

const data = z.record(z.string(), z.unknown());

export function takes(filter: EventFilter, event: StoredEvent): boolean {
  const { ownerId, subject, kinds = [] } = filter;
  if (ownerId !== undefined && event.ownerId !== ownerId && !event.everyone) return false;
  if (subject !== undefined && event.subject !== subject) return false;
  return kinds.length === 0 || kinds.some((kind) => event.kind === kind || event.kind.startsWith(`${kind}.`));
}

/** The log of events: a bounded table that streams resume from, and a bell for those who listen now. */
export function createEventLog(deps: {
  readonly store: Store;
  readonly clock: Clock;
  readonly log: Logger;
}): EventLog {
  const { store, clock, log } = deps;
  const subscribers = new Set<(event: StoredEvent) => void>();

  function publish(event: StoredEvent): void {
    for (const subscriber of [...subscribers]) {
      try {
        subscriber(event);
      } catch (err) {
        log.error({ err, kind: event.kind }, "a listener for events failed");
      }
    }
  }

  return {
    append: async (tx, event) => {
      const row = {
        at: clock.wall(),
        kind: event.kind,
        subject: event.subject,
        owner_id: event.ownerId,
        everyone: event.everyone === true ? (1 as const) : (0 as const),
        data: JSON.stringify(event.data),
      };
      const { seq } = await tx.insertInto("events").values(row).returning("seq").executeTakeFirstOrThrow();
      const { kind, subject, ownerId } = event;
      const stored = {
        seq,
        at: row.at,
        kind,
        subject,
        ownerId,
        everyone: row.everyone === 1,
        data: event.data,
      };
      tx.afterCommit(() => publish(stored));
    },

    subscribe: (fn) => {
      subscribers.add(fn);
      return () => subscribers.delete(fn);
    },

    after: (seq, { ownerId, subject, kinds = [] }, limit) =>
      store.read(async (db) => {
        let query = db.selectFrom("events").selectAll().where("seq", ">", seq).orderBy("seq").limit(limit);
        if (ownerId !== undefined) {
          query = query.where((eb) => eb.or([eb("owner_id", "=", ownerId), eb("everyone", "=", 1)]));
        }
        if (subject !== undefined) query = query.where("subject", "=", subject);
        if (kinds.length > 0) {
          query = query.where((eb) =>
            eb.or(
              kinds.flatMap((kind) => [
                eb("kind", "=", kind),
                // What begins with `kind.`: "/" is the character behind ".".
                eb.and([eb("kind", ">=", `${kind}.`), eb("kind", "<", `${kind}/`)]),
              ]),
            ),
          );
        }
        return (await query.execute()).map((row) => ({
          seq: row.seq,
          at: row.at,
          kind: row.kind,
          subject: row.subject,
          ownerId: row.owner_id,
          everyone: row.everyone === 1,
          data: data.parse(JSON.parse(row.data)),
        }));
      }),

    bounds: () =>
      store.read(async (db) => {
        const kept = await db
          .selectFrom("events")
          .select((eb) => [eb.fn.min("seq").as("first"), eb.fn.max("seq").as("last")])
          .executeTakeFirstOrThrow();
        return { first: Number(kept.first ?? 0), last: Number(kept.last ?? 0) };
      }),

    prune: ({ maxAgeMs, maxRows }) =>
      store.write(async (tx) => {
        const result = await tx
          .deleteFrom("events")
          .where((eb) =>
            eb.or([
              eb("at", "<", clock.wall() - maxAgeMs),
              eb("seq", "<=", sql<number>`(select coalesce(max(seq), 0) from events) - ${maxRows}`),
            ]),
          )
          .executeTakeFirst();
        return Number(result.numDeletedRows);
      }),
  };
}
