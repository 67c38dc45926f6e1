import { type Insertable, type Selectable, sql, type Updateable } from "kysely";
import type { SessionStatus } from "../../contract/states.ts";
import type { AgentId, GroupId, ImageId, KernelId, SessionId, UserId } from "../../kit/ids.ts";
import type { HistoryTable, KernelTable, SessionTable } from "../store/schema.ts";
import type { Db, Tx } from "../store/store.ts";

export type SessionRow = Selectable<SessionTable>;
export type KernelRow = Selectable<KernelTable>;
export type HistoryRow = Selectable<HistoryTable>;
/** A session with the names that its view shows. */
export type SessionRecord = SessionRow & {
  readonly owner_email: string;
  readonly owner_name: string;
  readonly owner_uid: number;
  readonly owner_gid: number;
  readonly group_name: string;
  readonly agent_name: string | null;
};

// As literals: only then SQLite uses the partial indexes of what lives.
const LIVE = sql<boolean>`s.status not in ('TERMINATED', 'CANCELLED', 'ERROR')`;
const ENDED = sql<boolean>`s.status in ('TERMINATED', 'CANCELLED', 'ERROR')`;
const NOT_GONE = sql<boolean>`gone = 0`;

export function recordQuery(db: Db) {
  return db
    .selectFrom("sessions as s")
    .innerJoin("users as u", "u.id", "s.owner_id")
    .innerJoin("resource_groups as g", "g.id", "s.group_id")
    .leftJoin("agents as a", "a.id", "s.agent_id")
    .selectAll("s")
    .select([
      "u.email as owner_email",
      "u.name as owner_name",
      "u.uid as owner_uid",
      "u.gid as owner_gid",
      "g.name as group_name",
      "a.name as agent_name",
    ]);
}

export function findById(db: Db, id: SessionId): Promise<SessionRecord | undefined> {
  return recordQuery(db).where("s.id", "=", id).executeTakeFirst();
}

/** The live session of that name, else the latest; of one owner, or of anybody when `owner` is null. */
export async function findByName(
  db: Db,
  name: string,
  owner: UserId | null,
): Promise<SessionRecord | undefined> {
  let query = recordQuery(db).where("s.name", "=", name);
  if (owner !== null) query = query.where("s.owner_id", "=", owner);
  return query.orderBy(sql`${LIVE}`, "desc").orderBy("s.seq", "desc").limit(1).executeTakeFirst();
}

/** The live sessions of that name, of whoever has one; newest first. */
export function liveByName(db: Db, name: string, limit: number): Promise<SessionRecord[]> {
  return recordQuery(db)
    .where("s.name", "=", name)
    .where(LIVE)
    .orderBy("s.seq", "desc")
    .limit(limit)
    .execute();
}

export async function insertSession(
  tx: Tx,
  session: Insertable<SessionTable>,
  kernel: Insertable<KernelTable>,
): Promise<void> {
  await tx.insertInto("sessions").values(session).execute();
  await tx.insertInto("kernels").values(kernel).execute();
}

/** Changes a session that still has one of the statuses; false when it has moved on meanwhile. */
export async function updateSession(
  tx: Tx,
  id: SessionId,
  from: readonly SessionStatus[],
  patch: Updateable<SessionTable>,
): Promise<boolean> {
  const result = await tx
    .updateTable("sessions")
    .set(patch)
    .where("id", "=", id)
    .where("status", "in", from)
    .executeTakeFirst();
  return result.numUpdatedRows === 1n;
}

/** Changes a kernel of that generation; false when there is none. */
export async function updateKernel(
  tx: Tx,
  id: KernelId,
  generation: number,
  patch: Updateable<KernelTable>,
): Promise<boolean> {
  const result = await tx
    .updateTable("kernels")
    .set(patch)
    .where("id", "=", id)
    .where("generation", "=", generation)
    .executeTakeFirst();
  return result.numUpdatedRows === 1n;
}

export function kernelsOf(db: Db, session: SessionId): Promise<KernelRow[]> {
  return db.selectFrom("kernels").selectAll().where("session_id", "=", session).orderBy("idx").execute();
}

export function findKernel(db: Db, id: KernelId): Promise<KernelRow | undefined> {
  return db.selectFrom("kernels").selectAll().where("id", "=", id).executeTakeFirst();
}

export async function addHistory(tx: Tx, entry: Insertable<HistoryTable>): Promise<void> {
  await tx.insertInto("session_history").values(entry).execute();
}

export function historyOf(db: Db, session: SessionId): Promise<HistoryRow[]> {
  return db
    .selectFrom("session_history")
    .selectAll()
    .where("session_id", "=", session)
    .orderBy("seq")
    .execute();
}

export type SessionFilter = {
  readonly state: "live" | "ended" | "all";
  readonly status?: SessionStatus | undefined;
  readonly type?: SessionRow["type"] | undefined;
  readonly groupId?: GroupId | undefined;
  readonly agentId?: AgentId | undefined;
  readonly tag?: string | undefined;
  readonly q?: string | undefined;
  readonly ownerId?: UserId | undefined;
};
export type SessionSort = "-created" | "created" | "name" | "-name" | "-ended";
/** The place after which a page begins: the sort key of the last row before it, and its seq. */
export type After = { readonly key: string | number; readonly seq: number };

function filtered(db: Db, filter: SessionFilter) {
  let query = recordQuery(db);
  if (filter.state === "live") query = query.where(LIVE);
  if (filter.state === "ended") query = query.where(ENDED);
  if (filter.status !== undefined) query = query.where("s.status", "=", filter.status);
  if (filter.type !== undefined) query = query.where("s.type", "=", filter.type);
  if (filter.groupId !== undefined) query = query.where("s.group_id", "=", filter.groupId);
  if (filter.agentId !== undefined) query = query.where("s.agent_id", "=", filter.agentId);
  if (filter.ownerId !== undefined) query = query.where("s.owner_id", "=", filter.ownerId);
  if (filter.q !== undefined) query = query.where(sql<boolean>`instr(lower(s.name), lower(${filter.q})) > 0`);
  if (filter.tag !== undefined) {
    const { tag } = filter;
    query = query.where(sql<boolean>`exists (select 1 from json_each(s.tags) where value = ${tag})`);
  }
  return query;
}

// What has not ended comes first in the order of ends.
const NOT_ENDED = 8_640_000_000_000_000;
const ENDED_AT = sql<number>`coalesce(s.ended_at, ${sql.lit(NOT_ENDED)})`;

/** The value by which a row is sorted, for the cursor of the next page. */
export function sortKey(row: SessionRow, sort: SessionSort): string | number {
  if (sort === "name" || sort === "-name") return row.name;
  if (sort === "-ended") return row.ended_at ?? NOT_ENDED;
  return row.seq;
}

/** A page of sessions in a total order that new sessions do not disturb. */
export function listSessions(
  db: Db,
  filter: SessionFilter,
  sort: SessionSort,
  page: { readonly after: After | null; readonly limit: number },
): Promise<SessionRecord[]> {
  const down = sort.startsWith("-");
  const direction = down ? "desc" : "asc";
  const compare = sql.raw(down ? "<" : ">");
  let query = filtered(db, filter);
  if (sort === "created" || sort === "-created") {
    if (page.after !== null) query = query.where(sql<boolean>`s.seq ${compare} ${page.after.seq}`);
    return query.orderBy("s.seq", direction).limit(page.limit).execute();
  }
  const column = sort === "-ended" ? ENDED_AT : sql<string>`s.name`;
  if (page.after !== null) {
    const { key, seq } = page.after;
    query = query.where(sql<boolean>`(${column}, s.seq) ${compare} (${key}, ${seq})`);
  }
  return query.orderBy(column, direction).orderBy("s.seq", direction).limit(page.limit).execute();
}

/** Kernels that hold room on a node: placed and not seen gone. */
export function occupyingKernels(db: Db) {
  return db
    .selectFrom("kernels as k")
    .innerJoin("sessions as s", "s.id", "k.session_id")
    .select([
      "k.id as kernel_id",
      "k.session_id",
      "k.agent_id",
      "k.slots",
      "k.shm",
      "s.group_id",
      "s.status",
      "s.started_at",
      "s.timeout_ms",
    ])
    .where("k.agent_id", "is not", null)
    .where(sql<boolean>`k.gone = 0`)
    .execute();
}

/** All sessions that wait, with only what the scheduler looks at. */
export function pendingSessions(db: Db) {
  return db
    .selectFrom("sessions as s")
    .leftJoin("images as i", "i.id", "s.image_id")
    .select([
      "s.id",
      "s.name",
      "s.seq",
      "s.owner_id",
      "s.group_id",
      "s.priority",
      "s.type",
      "s.slots",
      "s.starts_at",
      "s.created_at",
      "s.status_since",
      "s.timeout_ms",
      "s.pending_timeout_ms",
      "s.image_kind",
      "i.arch",
    ])
    .where(sql<boolean>`s.status = 'PENDING'`)
    .execute();
}

export type OwnerSession = Pick<SessionRow, "name" | "status" | "slots">;

/** Sessions of an owner that have not ended, for the rules of admission. */
export function liveOfOwner(db: Db, owner: UserId): Promise<OwnerSession[]> {
  return db
    .selectFrom("sessions as s")
    .select(["s.name", "s.status", "s.slots"])
    .where("s.owner_id", "=", owner)
    .where(LIVE)
    .execute();
}

/** Sessions that the reconciler must look after: live and placed, or ended with a kernel not seen gone. */
export async function unsettledSessions(db: Db, agent: AgentId | null): Promise<SessionId[]> {
  let live = db.selectFrom("sessions as s").select("s.id").where(LIVE).where("s.agent_id", "is not", null);
  let left = db.selectFrom("kernels").select("session_id as id").where(NOT_GONE);
  left = agent === null ? left.where("agent_id", "is not", null) : left.where("agent_id", "=", agent);
  if (agent !== null) live = live.where("s.agent_id", "=", agent);
  const rows = await live.union(left).execute();
  return rows.map((row) => row.id);
}

/** Live sessions that are placed on an agent. */
export function liveOnAgent(db: Db, agent: AgentId): Promise<SessionRecord[]> {
  return recordQuery(db).where("s.agent_id", "=", agent).where(LIVE).execute();
}

/** Kernels that the agent should have something of. */
export function kernelsOnAgent(db: Db, agent: AgentId): Promise<KernelRow[]> {
  return db.selectFrom("kernels").selectAll().where("agent_id", "=", agent).where(NOT_GONE).execute();
}

/** Marks every kernel of a removed agent as gone. */
export async function releaseAgent(tx: Tx, agent: AgentId): Promise<void> {
  await tx.updateTable("kernels").set({ gone: 1 }).where("agent_id", "=", agent).where(NOT_GONE).execute();
}

export async function countByStatus(db: Db): Promise<ReadonlyMap<SessionStatus, number>> {
  const rows = await db
    .selectFrom("sessions")
    .select(["status", (eb) => eb.fn.countAll<number>().as("count")])
    .groupBy("status")
    .execute();
  return new Map(rows.map((row) => [row.status, Number(row.count)]));
}

/** Whether any session that has not ended uses the group. */
export async function liveInGroup(db: Db, group: GroupId): Promise<number> {
  const row = await db
    .selectFrom("sessions as s")
    .select((eb) => eb.fn.countAll<number>().as("count"))
    .where("s.group_id", "=", group)
    .where(LIVE)
    .executeTakeFirst();
  return Number(row?.count ?? 0);
}

/** How many sessions that have not ended use the image. */
export async function liveWithImage(db: Db, image: ImageId): Promise<number> {
  const row = await db
    .selectFrom("sessions as s")
    .select((eb) => eb.fn.countAll<number>().as("count"))
    .where("s.image_id", "=", image)
    .where(LIVE)
    .executeTakeFirst();
  return Number(row?.count ?? 0);
}
