import { type Insertable, type Selectable, sql, type Updateable } from "kysely";
import type { AgentStatus } from "../../contract/states.ts";
import type { WallMs } from "../../kit/clock.ts";
import type { AgentId, GroupId, JoinTokenId } from "../../kit/ids.ts";
import type { AgentTable, Flag, JoinTokenTable } from "../store/schema.ts";
import type { Db, Tx } from "../store/store.ts";

export type AgentRow = Selectable<AgentTable>;
export type AgentRecord = AgentRow & { readonly group_name: string; readonly group_public: Flag };
export type JoinTokenRow = Selectable<JoinTokenTable>;

const KEPT = sql<boolean>`a.removed_at is null`;

function records(db: Db) {
  return db
    .selectFrom("agents as a")
    .innerJoin("resource_groups as g", "g.id", "a.group_id")
    .selectAll("a")
    .select(["g.name as group_name", "g.public as group_public"]);
}

/** An agent, also one that was removed. */
export function findAny(db: Db, id: AgentId): Promise<AgentRow | undefined> {
  return db.selectFrom("agents").selectAll().where("id", "=", id).executeTakeFirst();
}

export function findById(db: Db, id: AgentId): Promise<AgentRecord | undefined> {
  return records(db).where("a.id", "=", id).where(KEPT).executeTakeFirst();
}

export function findByName(db: Db, name: string): Promise<AgentRecord | undefined> {
  return records(db).where("a.name", "=", name).where(KEPT).executeTakeFirst();
}

export function all(db: Db): Promise<AgentRecord[]> {
  return records(db).where(KEPT).execute();
}

export type AgentFilter = {
  readonly status?: AgentStatus | undefined;
  readonly groupId?: GroupId | undefined;
  /** Only nodes of public groups. */
  readonly publicOnly: boolean;
};

/** Agents by name after `after`. */
export function list(
  db: Db,
  filter: AgentFilter,
  page: { readonly after: string | null; readonly limit: number },
): Promise<AgentRecord[]> {
  let query =
    filter.status === "REMOVED" ? records(db).where("a.removed_at", "is not", null) : records(db).where(KEPT);
  if (filter.status !== undefined) query = query.where("a.status", "=", filter.status);
  if (filter.groupId !== undefined) query = query.where("a.group_id", "=", filter.groupId);
  if (filter.publicOnly) query = query.where("g.public", "=", 1);
  if (page.after !== null) query = query.where(sql<boolean>`a.name || char(0) || a.id > ${page.after}`);
  return query.orderBy(sql`a.name || char(0) || a.id`).limit(page.limit).execute();
}

export async function insert(tx: Tx, row: Insertable<AgentTable>): Promise<void> {
  await tx.insertInto("agents").values(row).execute();
}

/** Changes an agent that was not removed; false when it was. */
export async function update(tx: Tx, id: AgentId, patch: Updateable<AgentTable>): Promise<boolean> {
  const result = await tx
    .updateTable("agents")
    .set(patch)
    .where("id", "=", id)
    .where("removed_at", "is", null)
    .executeTakeFirst();
  return result.numUpdatedRows === 1n;
}

export async function inGroup(db: Db, group: GroupId): Promise<number> {
  const row = await db
    .selectFrom("agents as a")
    .select((eb) => eb.fn.countAll<number>().as("count"))
    .where("a.group_id", "=", group)
    .where(KEPT)
    .executeTakeFirst();
  return Number(row?.count ?? 0);
}

export async function insertToken(tx: Tx, row: Insertable<JoinTokenTable>): Promise<void> {
  await tx.insertInto("join_tokens").values(row).execute();
}

export function findToken(db: Db, id: JoinTokenId): Promise<JoinTokenRow | undefined> {
  return db.selectFrom("join_tokens").selectAll().where("id", "=", id).executeTakeFirst();
}

/** Takes one use of a token; false when none is left or its time is over. */
export async function useToken(tx: Tx, id: JoinTokenId, now: WallMs): Promise<boolean> {
  const result = await tx
    .updateTable("join_tokens")
    .set((eb) => ({ uses_left: eb("uses_left", "-", 1) }))
    .where("id", "=", id)
    .where("uses_left", ">", 0)
    .where("expires_at", ">", now)
    .executeTakeFirst();
  return result.numUpdatedRows === 1n;
}

/** Tokens that still work, newest first. */
export function listTokens(
  db: Db,
  now: WallMs,
  page: { readonly after: readonly [number, string] | null; readonly limit: number },
): Promise<JoinTokenRow[]> {
  let query = db
    .selectFrom("join_tokens")
    .selectAll()
    .where("uses_left", ">", 0)
    .where("expires_at", ">", now);
  if (page.after !== null) {
    const [at, id] = page.after;
    query = query.where(sql<boolean>`(created_at, id) < (${at}, ${id})`);
  }
  return query.orderBy("created_at", "desc").orderBy("id", "desc").limit(page.limit).execute();
}

export async function deleteToken(tx: Tx, id: JoinTokenId): Promise<boolean> {
  const result = await tx.deleteFrom("join_tokens").where("id", "=", id).executeTakeFirst();
  return result.numDeletedRows === 1n;
}

/** Forgets tokens that ended before `before`. */
export async function pruneTokens(tx: Tx, before: WallMs): Promise<void> {
  await tx.deleteFrom("join_tokens").where("expires_at", "<", before).execute();
}
