import { sql } from "kysely";
import type { PolicyId } from "../../kit/ids.ts";
import type { PolicyTable } from "../store/schema.ts";
import type { Db, Tx } from "../store/store.ts";

export function listPolicies(
  db: Db,
  page: { readonly after?: readonly [number, string] | undefined; readonly limit: number },
): Promise<PolicyTable[]> {
  let query = db.selectFrom("policies").selectAll().orderBy("created_at").orderBy("id").limit(page.limit);
  if (page.after !== undefined) {
    query = query.where(sql<boolean>`(created_at, id) > (${page.after[0]}, ${page.after[1]})`);
  }
  return query.execute();
}

export function findPolicy(db: Db | Tx, id: PolicyId): Promise<PolicyTable | undefined> {
  return db.selectFrom("policies").selectAll().where("id", "=", id).executeTakeFirst();
}

export function findPolicyByName(db: Db | Tx, name: string): Promise<PolicyTable | undefined> {
  return db.selectFrom("policies").selectAll().where("name", "=", name).executeTakeFirst();
}

export function findDefault(db: Db | Tx): Promise<PolicyTable | undefined> {
  return db.selectFrom("policies").selectAll().where("is_default", "=", 1).executeTakeFirst();
}

export async function insertPolicy(tx: Tx, row: PolicyTable): Promise<void> {
  await tx.insertInto("policies").values(row).execute();
}

export async function setLimits(tx: Tx, id: PolicyId, limits: string): Promise<void> {
  await tx.updateTable("policies").set({ limits }).where("id", "=", id).execute();
}
