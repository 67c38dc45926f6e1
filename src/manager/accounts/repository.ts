import { sql } from "kysely";
import type { Role } from "../../contract/permissions.ts";
import type { WallMs } from "../../kit/clock.ts";
import { isId, type TokenId, type UserId } from "../../kit/ids.ts";
import type { LoginFailureTable, TokenTable, UserTable } from "../store/schema.ts";
import type { Db, Tx } from "../store/store.ts";
import type { Failures } from "./lockout.ts";

export type UserRow = UserTable & { readonly policy: string };

const users = (db: Db | Tx) =>
  db
    .selectFrom("users")
    .innerJoin("policies", "policies.id", "users.policy_id")
    .selectAll("users")
    .select("policies.name as policy");

/** A user by id or e-mail. */
export function findUser(db: Db | Tx, key: string): Promise<UserRow | undefined> {
  const query = users(db);
  return (
    isId(key)
      ? query.where("users.id", "=", key as UserId)
      : query.where("users.email", "=", key.toLowerCase())
  ).executeTakeFirst();
}

export type UserFilter = {
  readonly q?: string | undefined;
  readonly active?: boolean | undefined;
  readonly role?: Role | undefined;
  /** (created_at, id) of the last row of the page before. */
  readonly after?: readonly [number, string] | undefined;
  readonly limit: number;
};

export function listUsers(db: Db, filter: UserFilter): Promise<UserRow[]> {
  let query = users(db).orderBy("users.created_at").orderBy("users.id").limit(filter.limit);
  if (filter.q !== undefined) {
    const pattern = `%${filter.q.replaceAll(/[\\%_]/g, "\\$&")}%`;
    query = query.where(
      sql<boolean>`(users.email like ${pattern} escape '\\' or users.name like ${pattern} escape '\\')`,
    );
  }
  if (filter.active !== undefined) query = query.where("users.active", "=", filter.active ? 1 : 0);
  if (filter.role !== undefined) query = query.where("users.role", "=", filter.role);
  if (filter.after !== undefined) {
    const [at, id] = filter.after;
    query = query.where(sql<boolean>`(users.created_at, users.id) > (${at}, ${id})`);
  }
  return query.execute();
}

export async function countUsers(db: Db | Tx): Promise<number> {
  const row = await db
    .selectFrom("users")
    .select((eb) => eb.fn.countAll().as("n"))
    .executeTakeFirstOrThrow();
  return Number(row.n);
}

export async function countActiveSuperadmins(tx: Tx): Promise<number> {
  const row = await tx
    .selectFrom("users")
    .select((eb) => eb.fn.countAll().as("n"))
    .where("role", "=", "superadmin")
    .where("active", "=", 1)
    .executeTakeFirstOrThrow();
  return Number(row.n);
}

export async function insertUser(tx: Tx, row: UserTable): Promise<void> {
  await tx.insertInto("users").values(row).execute();
}

export type UserChange = Partial<Omit<UserTable, "id" | "email" | "created_at">>;

export async function updateUser(tx: Tx, id: UserId, change: UserChange): Promise<void> {
  if (Object.keys(change).length === 0) return;
  await tx.updateTable("users").set(change).where("id", "=", id).execute();
}

export async function insertToken(tx: Tx, row: TokenTable): Promise<void> {
  await tx.insertInto("tokens").values(row).execute();
}

export function findTokenByHash(db: Db, hash: string): Promise<TokenTable | undefined> {
  return db.selectFrom("tokens").selectAll().where("hash", "=", hash).executeTakeFirst();
}

export type TokenFilter = {
  readonly userId: UserId;
  readonly now: WallMs;
  readonly after?: readonly [number, string] | undefined;
  readonly limit: number;
};

/** A user's API tokens that still work. */
export function listApiTokens(db: Db, { userId, now, after, limit }: TokenFilter): Promise<TokenTable[]> {
  let query = db
    .selectFrom("tokens")
    .selectAll()
    .where("user_id", "=", userId)
    .where("kind", "=", "api")
    .where((eb) => eb.or([eb("expires_at", "is", null), eb("expires_at", ">", now)]))
    .orderBy("created_at")
    .orderBy("id")
    .limit(limit);
  if (after !== undefined) query = query.where(sql<boolean>`(created_at, id) > (${after[0]}, ${after[1]})`);
  return query.execute();
}

/** A user's working API tokens of that id or name. */
export function findApiTokens(tx: Tx, userId: UserId, key: string, now: WallMs): Promise<TokenTable[]> {
  return tx
    .selectFrom("tokens")
    .selectAll()
    .where("user_id", "=", userId)
    .where("kind", "=", "api")
    .where((eb) => eb.or([eb("expires_at", "is", null), eb("expires_at", ">", now)]))
    .where((eb) => eb.or([eb("name", "=", key), eb("id", "=", key as TokenId)]))
    .execute();
}

/** Ends tokens by time rather than deleting them, so that their holders are told what happened. */
export async function endTokens(
  tx: Tx,
  which: {
    readonly userId: UserId;
    readonly kind?: TokenTable["kind"];
    readonly except?: TokenId | undefined;
  },
  now: WallMs,
): Promise<readonly TokenId[]> {
  let query = tx
    .updateTable("tokens")
    .set({ expires_at: now })
    .where("user_id", "=", which.userId)
    .where((eb) => eb.or([eb("expires_at", "is", null), eb("expires_at", ">", now)]));
  if (which.kind !== undefined) query = query.where("kind", "=", which.kind);
  if (which.except !== undefined) query = query.where("id", "!=", which.except);
  return (await query.returning("id").execute()).map((row) => row.id);
}

export async function endToken(tx: Tx, id: TokenId, now: WallMs): Promise<void> {
  await tx.updateTable("tokens").set({ expires_at: now }).where("id", "=", id).execute();
}

export async function markUsed(tx: Tx, used: ReadonlyMap<TokenId, WallMs>): Promise<void> {
  for (const [id, at] of used) {
    await tx.updateTable("tokens").set({ last_used_at: at }).where("id", "=", id).execute();
  }
}

export async function deleteEndedTokens(tx: Tx, before: WallMs): Promise<void> {
  await tx.deleteFrom("tokens").where("expires_at", "<", before).execute();
}

const failuresOf = (row: LoginFailureTable | undefined): Failures | undefined =>
  row === undefined
    ? undefined
    : { failures: row.failures, lastAt: row.last_at, lockedUntil: row.locked_until };

export async function findFailures(tx: Tx, email: string, address: string): Promise<Failures | undefined> {
  const row = await tx
    .selectFrom("login_failures")
    .selectAll()
    .where("email", "=", email)
    .where("address", "=", address)
    .executeTakeFirst();
  return failuresOf(row);
}

export async function putFailures(tx: Tx, email: string, address: string, kept: Failures): Promise<void> {
  const change = { failures: kept.failures, last_at: kept.lastAt, locked_until: kept.lockedUntil };
  await tx
    .insertInto("login_failures")
    .values({ email, address, ...change })
    .onConflict((oc) => oc.columns(["email", "address"]).doUpdateSet(change))
    .execute();
}

/** Forgets failures of an e-mail, from one address or from all. Returns how many addresses there were. */
export async function forgetFailures(tx: Tx, email: string, address?: string): Promise<number> {
  let query = tx.deleteFrom("login_failures").where("email", "=", email);
  if (address !== undefined) query = query.where("address", "=", address);
  return Number((await query.executeTakeFirst()).numDeletedRows);
}

/** The latest end of a lock for each of the e-mails that has one after `now`. */
export async function locksOf(
  db: Db | Tx,
  emails: readonly string[],
  now: WallMs,
): Promise<ReadonlyMap<string, WallMs>> {
  if (emails.length === 0) return new Map();
  const rows = await db
    .selectFrom("login_failures")
    .select(["email", (eb) => eb.fn.max("locked_until").as("until")])
    .where("email", "in", emails)
    .where("locked_until", ">", now)
    .groupBy("email")
    .execute();
  return new Map(rows.map((row) => [row.email, Number(row.until)]));
}

export async function deleteOldFailures(tx: Tx, before: WallMs): Promise<void> {
  await tx.deleteFrom("login_failures").where("last_at", "<", before).execute();
}
