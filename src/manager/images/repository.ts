import { type Insertable, type Selectable, sql, type Updateable } from "kysely";
import type { AgentId, ImageId } from "../../kit/ids.ts";
import type { ImageNodeTable, ImageTable } from "../store/schema.ts";
import type { Db, Tx } from "../store/store.ts";

export type ImageRow = Selectable<ImageTable>;
export type ImageNodeRow = Selectable<ImageNodeTable>;

const KEPT = sql<boolean>`removed_at is null`;

export function findById(db: Db, id: ImageId): Promise<ImageRow | undefined> {
  return db.selectFrom("images").selectAll().where("id", "=", id).where(KEPT).executeTakeFirst();
}

/** An image even if it was removed from the list, for sessions that still use it. */
export function findAny(db: Db, id: ImageId): Promise<ImageRow | undefined> {
  return db.selectFrom("images").selectAll().where("id", "=", id).executeTakeFirst();
}

export function findByReference(db: Db, reference: string): Promise<ImageRow | undefined> {
  return db
    .selectFrom("images")
    .selectAll()
    .where("reference", "=", reference)
    .where(KEPT)
    .executeTakeFirst();
}

export async function catalogueReferences(db: Db): Promise<ReadonlySet<string>> {
  const rows = await db.selectFrom("images").select("reference").where("catalogue", "=", 1).execute();
  return new Set(rows.map((row) => row.reference));
}

export type ImageFilter = { readonly q?: string | undefined; readonly pulled?: boolean | undefined };

/** Images in the order in which they were added; the built-in one first. */
export function list(
  db: Db,
  filter: ImageFilter,
  page: { readonly after: readonly [number, string] | null; readonly limit: number },
): Promise<ImageRow[]> {
  let query = db.selectFrom("images").selectAll().where(KEPT);
  if (filter.q !== undefined) {
    const { q } = filter;
    query = query.where(sql<boolean>`instr(lower(reference || ' ' || title), lower(${q})) > 0`);
  }
  if (filter.pulled !== undefined) {
    const present = sql<boolean>`(kind = 'host' or exists (select 1 from image_nodes n where n.image_id = images.id))`;
    query = query.where(filter.pulled ? present : sql<boolean>`not ${present}`);
  }
  if (page.after !== null) {
    const [at, id] = page.after;
    query = query.where(sql<boolean>`(created_at, id) > (${at}, ${id})`);
  }
  return query.orderBy("created_at").orderBy("id").limit(page.limit).execute();
}

export function kept(db: Db): Promise<ImageRow[]> {
  return db.selectFrom("images").selectAll().where(KEPT).execute();
}

export function nodesOf(db: Db, images: readonly ImageId[]): Promise<ImageNodeRow[]> {
  return db.selectFrom("image_nodes").selectAll().where("image_id", "in", images).execute();
}

export async function insert(tx: Tx, row: Insertable<ImageTable>): Promise<void> {
  await tx.insertInto("images").values(row).execute();
}

export async function update(tx: Tx, id: ImageId, patch: Updateable<ImageTable>): Promise<void> {
  await tx.updateTable("images").set(patch).where("id", "=", id).execute();
}

/** Sets which images a node has; those that are not named are not there any more. */
export async function setNode(tx: Tx, agent: AgentId, rows: readonly ImageNodeRow[]): Promise<void> {
  await tx.deleteFrom("image_nodes").where("agent_id", "=", agent).execute();
  if (rows.length > 0) await tx.insertInto("image_nodes").values(rows).execute();
}

export async function addNode(tx: Tx, row: Insertable<ImageNodeTable>): Promise<void> {
  await tx
    .insertInto("image_nodes")
    .values(row)
    .onConflict((conflict) => conflict.doUpdateSet({ digest: row.digest, size_bytes: row.size_bytes }))
    .execute();
}

export async function removeNode(tx: Tx, image: ImageId, agent: AgentId): Promise<void> {
  await tx.deleteFrom("image_nodes").where("image_id", "=", image).where("agent_id", "=", agent).execute();
}
