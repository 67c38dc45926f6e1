import { type Insertable, type Selectable, sql, type Updateable } from "kysely";
import type { WallMs } from "../../kit/clock.ts";
import type { AgentId, GroupId } from "../../kit/ids.ts";
import type { GroupTable } from "../store/schema.ts";
import type { Db, Tx } from "../store/store.ts";

export type GroupRow = Selectable<GroupTable>;

const KEPT = sql<boolean>`removed_at is null`;

export function findById(db: Db, id: GroupId): Promise<GroupRow | undefined> {
  return db.selectFrom("resource_groups").selectAll().where("id", "=", id).where(KEPT).executeTakeFirst();
}

export function findByName(db: Db, name: string): Promise<GroupRow | undefined> {
  return db.selectFrom("resource_groups").selectAll().where("name", "=", name).where(KEPT).executeTakeFirst();
}

export function findDefault(db: Db): Promise<GroupRow | undefined> {
  return db.selectFrom("resource_groups").selectAll().where(sql<boolean>`is_default = 1`).executeTakeFirst();
}

export function all(db: Db): Promise<GroupRow[]> {
  return db.selectFrom("resource_groups").selectAll().where(KEPT).execute();
}

/** Groups by name after `after`. */
export function list(
  db: Db,
  page: { readonly after: string | null; readonly limit: number; readonly publicOnly: boolean },
): Promise<GroupRow[]> {
  const { after, limit, publicOnly } = page;
  let query = db.selectFrom("resource_groups").selectAll().where(KEPT);
  if (publicOnly) query = query.where("public", "=", 1);
  if (after !== null) query = query.where("name", ">", after);
  return query.orderBy("name").limit(limit).execute();
}

export async function insert(tx: Tx, row: Insertable<GroupTable>): Promise<void> {
  await tx.insertInto("resource_groups").values(row).execute();
}

export async function update(tx: Tx, id: GroupId, patch: Updateable<GroupTable>): Promise<void> {
  if (Object.keys(patch).length === 0) return;
  await tx.updateTable("resource_groups").set(patch).where("id", "=", id).execute();
}

/** Takes the default from whichever group has it. */
export async function clearDefault(tx: Tx): Promise<void> {
  await tx
    .updateTable("resource_groups")
    .set({ is_default: 0 })
    .where(sql<boolean>`is_default = 1`)
    .execute();
}

export async function remove(tx: Tx, id: GroupId, at: WallMs): Promise<void> {
  await tx.updateTable("resource_groups").set({ removed_at: at }).where("id", "=", id).execute();
}

export async function setCursor(tx: Tx, id: GroupId, agent: AgentId): Promise<void> {
  await tx.updateTable("resource_groups").set({ round_robin_cursor: agent }).where("id", "=", id).execute();
}
