import type { z } from "zod";
import type { createGroup, Group, updateGroup } from "../../contract/cluster.ts";
import type { Clock } from "../../kit/clock.ts";
import { BerthError } from "../../kit/errors.ts";
import { type AgentId, asId, type GroupId, isId, newId } from "../../kit/ids.ts";
import { may, type Principal } from "../accounts/principal.ts";
import type { EventLog } from "../events/log.ts";
import { pageOf, parseCursor } from "../http/cursor.ts";
import type { GroupSnapshot } from "../scheduling/types.ts";
import type { GroupTable } from "../store/schema.ts";
import type { Db, Store, Tx } from "../store/store.ts";
import { type GroupStats, groupView, NO_STATS, readOverrides, readTypes } from "./group.ts";
import * as repository from "./repository.ts";

export type { GroupRow } from "./repository.ts";
export const DEFAULT_GROUP = "default";

export type GroupServiceDeps = {
  readonly store: Store;
  readonly clock: Clock;
  readonly events: Pick<EventLog, "append">;
  /** What is counted of every group that has anything. */
  readonly stats: (db: Db) => Promise<ReadonlyMap<GroupId, GroupStats>>;
  /** What lives in a group: nodes, and sessions that have not ended. */
  readonly tenants: (db: Db, group: GroupId) => Promise<{ agents: number; sessions: number }>;
  readonly changed: () => void;
};

export interface GroupService {
  /** Makes the default group of a new installation. */
  ensureDefault(): Promise<void>;
  /** A group by id or name, or the default one for null, for the platform itself. Throws `group-not-found`. */
  find(db: Db, reference: string | null): Promise<repository.GroupRow>;
  /** The same among the groups that the principal may use: to others it does not exist. */
  findFor(db: Db, principal: Principal, reference: string | null): Promise<repository.GroupRow>;
  snapshots(db: Db): Promise<readonly GroupSnapshot[]>;
  setCursor(tx: Tx, group: GroupId, agent: AgentId): Promise<void>;
  list(
    principal: Principal,
    query: { cursor?: string | undefined; limit: number },
  ): Promise<{ items: Group[]; next: string | null }>;
  get(principal: Principal, reference: string): Promise<Group>;
  create(input: z.output<typeof createGroup>): Promise<Group>;
  update(reference: string, input: z.output<typeof updateGroup>): Promise<Group>;
  /** Refused (`in-use`) for the default group and while nodes or live sessions are in it. */
  remove(reference: string): Promise<void>;
}

type Fields = z.output<typeof updateGroup>;
type Columns = Partial<Omit<GroupTable, "id" | "created_at">>;

function columnsOf(input: Fields): Columns {
  const columns: Columns = {};
  if (input.name !== undefined) columns.name = input.name;
  if (input.description !== undefined) columns.description = input.description;
  if (input.active !== undefined) columns.active = input.active ? 1 : 0;
  if (input.public !== undefined) columns.public = input.public ? 1 : 0;
  if (input.scheduler !== undefined) columns.scheduler = input.scheduler;
  if (input.placement !== undefined) columns.placement = input.placement;
  if (input.allowedTypes !== undefined)
    columns.allowed_types = JSON.stringify([...new Set(input.allowedTypes)]);
  if (input.pendingTimeout !== undefined) columns.pending_timeout_ms = input.pendingTimeout;
  if (input.isDefault === true) columns.is_default = 1;
  return columns;
}

const NEW_GROUP: Omit<GroupTable, "id" | "name" | "created_at"> = {
  description: "",
  active: 1,
  public: 1,
  is_default: 0,
  scheduler: "fifo",
  placement: "dispersed",
  allowed_types: JSON.stringify(["interactive", "batch", "inference"]),
  pending_timeout_ms: null,
  deadlines: "{}",
  round_robin_cursor: null,
  removed_at: null,
};
const SCOPE = "groups";

/** Whether a person sees and uses groups that are not public: those who manage groups. */
export const seesEveryGroup = (principal: Principal): boolean => may(principal, "group.write");

function notFound(reference: string | null): BerthError {
  const sentence =
    reference === null
      ? "The default resource group is not open to you. Name one that is: berth group ls."
      : `There is no resource group "${reference}".`;
  return new BerthError("group-not-found", sentence, { field: "group" });
}

export function createGroupService(deps: GroupServiceDeps): GroupService {
  const { store, clock, events, changed } = deps;

  async function find(db: Db, reference: string | null): Promise<repository.GroupRow> {
    const row =
      reference === null
        ? await repository.findDefault(db)
        : ((await repository.findByName(db, reference)) ??
          (isId(reference) ? await repository.findById(db, asId<GroupId>(reference)) : undefined));
    if (row !== undefined) return row;
    throw notFound(reference ?? DEFAULT_GROUP);
  }

  async function findFor(
    db: Db,
    principal: Principal,
    reference: string | null,
  ): Promise<repository.GroupRow> {
    const row = await find(db, reference);
    if (row.public === 1 || seesEveryGroup(principal)) return row;
    throw notFound(reference);
  }

  async function refuseTaken(tx: Tx, name: string, own: GroupId | null): Promise<void> {
    const other = await repository.findByName(tx, name);
    if (other === undefined || other.id === own) return;
    throw new BerthError("name-in-use", `There is a resource group named "${name}" already.`, {
      field: "name",
    });
  }

  async function tell(
    tx: Tx,
    row: Pick<repository.GroupRow, "id" | "name" | "public">,
    change: string,
  ): Promise<void> {
    const data = { name: row.name, change };
    const everyone = row.public === 1;
    await events.append(tx, { kind: "group.updated", subject: row.id, ownerId: null, everyone, data });
    tx.afterCommit(changed);
  }

  async function view(db: Db, row: repository.GroupRow): Promise<Group> {
    return groupView(row, (await deps.stats(db)).get(row.id) ?? NO_STATS);
  }

  return {
    find,
    findFor,
    ensureDefault: () =>
      store.write(async (tx) => {
        if ((await repository.findDefault(tx)) !== undefined) return;
        const named = await repository.findByName(tx, DEFAULT_GROUP);
        if (named !== undefined) return repository.update(tx, named.id, { is_default: 1 });
        const id = newId<GroupId>(clock);
        const fixed = { id, name: DEFAULT_GROUP, is_default: 1 as const, created_at: clock.wall() };
        await repository.insert(tx, { ...NEW_GROUP, ...fixed });
      }),
    snapshots: async (db) =>
      (await repository.all(db)).map((row) => ({
        id: row.id,
        name: row.name,
        scheduler: row.scheduler,
        placement: row.placement,
        pendingTimeoutMs: row.pending_timeout_ms,
        allowedTypes: readTypes(row.allowed_types),
        active: row.active === 1,
        roundRobinCursor: row.round_robin_cursor === null ? null : asId<AgentId>(row.round_robin_cursor),
      })),
    setCursor: repository.setCursor,
    list: (principal, { cursor, limit }) =>
      store.read(async (db) => {
        const after = cursor === undefined ? null : String(parseCursor(SCOPE, cursor, 1)[0]);
        const rows = await repository.list(db, {
          after,
          limit: limit + 1,
          publicOnly: !seesEveryGroup(principal),
        });
        const stats = await deps.stats(db);
        return pageOf(
          rows,
          limit,
          SCOPE,
          (row) => [row.name],
          (row) => groupView(row, stats.get(row.id) ?? NO_STATS),
        );
      }),
    get: (principal, reference) =>
      store.read(async (db) => view(db, await findFor(db, principal, reference))),
    create: async ({ name, ...input }) => {
      const id = newId<GroupId>(clock);
      await store.write(async (tx) => {
        await refuseTaken(tx, name, null);
        if (input.isDefault === true) await repository.clearDefault(tx);
        const deadlines = JSON.stringify(input.deadlines ?? {});
        const row = { ...NEW_GROUP, ...columnsOf(input), id, name, deadlines, created_at: clock.wall() };
        await repository.insert(tx, row);
        await tell(tx, row, "created");
      });
      return store.read(async (db) => view(db, await find(db, id)));
    },
    update: async (reference, input) => {
      const id = await store.write(async (tx) => {
        const row = await find(tx, reference);
        if (input.name !== undefined) await refuseTaken(tx, input.name, row.id);
        if (input.isDefault === true) await repository.clearDefault(tx);
        const deadlines =
          input.deadlines === undefined
            ? row.deadlines
            : JSON.stringify({ ...readOverrides(row.deadlines), ...input.deadlines });
        const columns = columnsOf(input);
        await repository.update(tx, row.id, { ...columns, deadlines });
        const { name, public: isPublic } = { ...row, ...columns };
        await tell(tx, { id: row.id, name, public: isPublic }, "updated");
        return row.id;
      });
      return store.read(async (db) => view(db, await find(db, id)));
    },
    remove: (reference) =>
      store.write(async (tx) => {
        const row = await find(tx, reference);
        const refuse = (why: string) => {
          throw new BerthError("in-use", `The resource group ${row.name} cannot be removed: ${why}`);
        };
        if (row.is_default === 1) refuse("it is the default one. Make another the default first.");
        const { agents, sessions } = await deps.tenants(tx, row.id);
        if (agents > 0) refuse(`it has ${agents} node(s). Move them to another group first.`);
        if (sessions > 0) refuse(`${sessions} session(s) in it have not ended.`);
        await repository.remove(tx, row.id, clock.wall());
        await tell(tx, row, "removed");
      }),
  };
}
