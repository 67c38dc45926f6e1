import type { Agent } from "../../contract/cluster.ts";
import type { AgentStatus } from "../../contract/states.ts";
import type { Clock } from "../../kit/clock.ts";
import { BerthError } from "../../kit/errors.ts";
import { type AgentId, asId, type GroupId, isId } from "../../kit/ids.ts";
import type { Logger } from "../../kit/log.ts";
import type { ResourceSlots } from "../../kit/slots.ts";
import { addSlots, NO_SLOTS } from "../../kit/slots.ts";
import type { Principal } from "../accounts/principal.ts";
import type { EventLog } from "../events/log.ts";
import { type GroupService, seesEveryGroup } from "../groups/service.ts";
import { pageOf, parseCursor } from "../http/cursor.ts";
import type { ImageNode } from "../images/image.ts";
import type { NodeSnapshot } from "../scheduling/types.ts";
import type { Db, Store, Tx } from "../store/store.ts";
import {
  agentView,
  archOf,
  capacityOf,
  NO_OCCUPANCY,
  type Occupancy,
  ownHealth,
  readHealth,
  readNode,
  reservedOf,
} from "./agent.ts";
import type { AgentHub } from "./hub.ts";
import { agentEvent } from "./link.ts";
import type { KernelSink } from "./ports.ts";
import * as repository from "./repository.ts";

export type AgentServiceDeps = {
  readonly store: Store;
  readonly clock: Clock;
  readonly log: Logger;
  readonly events: Pick<EventLog, "append">;
  readonly hub: AgentHub;
  readonly groups: Pick<GroupService, "find" | "findFor">;
  readonly kernels: Pick<KernelSink, "lost">;
  /** What occupies each node that has anything. */
  readonly occupancy: (db: Db) => Promise<ReadonlyMap<AgentId, Occupancy>>;
  /**
   * Ends the sessions of an agent that is removed; without `force` it throws `in-use` when there are any. Gives
   * what has the agent's containers ended too, as far as it can be reached; that never throws.
   */
  readonly evict: (
    tx: Tx,
    agent: { id: AgentId; name: string },
    force: boolean,
    actor: string,
  ) => Promise<() => Promise<void>>;
  /** Something that placement looks at has changed. */
  readonly changed: () => void;
};

export type AgentChange = {
  readonly name?: string | undefined;
  readonly schedulable?: boolean | undefined;
  readonly group?: string | undefined;
  readonly reserved?: { readonly cpu?: number | undefined; readonly mem?: number | undefined } | undefined;
};

export interface AgentService {
  /** Begins to watch for agents that stay away after a restart of the manager. */
  start(): Promise<void>;
  /** An agent by id or name. Throws `agent-not-found`. */
  find(db: Db, reference: string): Promise<repository.AgentRecord>;
  /** The nodes of the groups that the principal may use. */
  list(
    principal: Principal,
    query: {
      cursor?: string | undefined;
      limit: number;
      status?: AgentStatus | undefined;
      group?: string | undefined;
    },
  ): Promise<{ items: Agent[]; next: string | null }>;
  /** Throws `agent-not-found`, also for a node of a group that the principal may not use. */
  get(principal: Principal, reference: string): Promise<Agent>;
  update(reference: string, change: AgentChange): Promise<Agent>;
  remove(reference: string, force: boolean, actor: string): Promise<void>;
  isRevoked(agent: AgentId): Promise<boolean>;
  /** Its heartbeat stayed away. */
  markLost(agent: AgentId): Promise<void>;
  nodes(db: Db): Promise<readonly NodeSnapshot[]>;
  imageNodes(db: Db): Promise<readonly ImageNode[]>;
  /** Number and capacity of the nodes of each group. */
  groupCapacity(db: Db): Promise<ReadonlyMap<GroupId, { agents: number; capacity: ResourceSlots }>>;
  inGroup(db: Db, group: GroupId): Promise<number>;
  countByStatus(): Promise<ReadonlyMap<AgentStatus, number>>;
}

const SCOPE = "agents";

function notFound(reference: string): BerthError {
  return new BerthError("agent-not-found", `There is no node "${reference}".`, { field: "agent" });
}

export function createAgentService(deps: AgentServiceDeps): AgentService {
  const { store, clock, log, events, hub, groups } = deps;

  async function find(db: Db, reference: string): Promise<repository.AgentRecord> {
    const row =
      (await repository.findByName(db, reference)) ??
      (isId(reference) ? await repository.findById(db, asId<AgentId>(reference)) : undefined);
    if (row !== undefined) return row;
    throw notFound(reference);
  }

  function view(row: repository.AgentRecord, occupancy: ReadonlyMap<AgentId, Occupancy>): Agent {
    const live = hub.view(row.id);
    const { lostSince, skewMs } = live;
    const own = ownHealth({ row, lostSince, skewMs, now: clock.wall() });
    // Both sides look at the clock; the manager's word comes first.
    const told = readHealth(row.health).filter((item) => !own.some((mine) => mine.code === item.code));
    return agentView(row, { ...live, health: [...own, ...told] }, occupancy.get(row.id) ?? NO_OCCUPANCY);
  }

  async function shown(id: AgentId): Promise<Agent> {
    return store.read(async (db) => view(await find(db, id), await deps.occupancy(db)));
  }

  async function refuseTaken(tx: Tx, name: string, own: AgentId): Promise<void> {
    const other = await repository.findByName(tx, name);
    if (other === undefined || other.id === own) return;
    throw new BerthError("name-in-use", `There is a node named "${name}" already.`, { field: "name" });
  }

  function refuseTooMuch(
    row: repository.AgentRow,
    reserved: { cpu?: number | undefined; mem?: number | undefined },
  ) {
    for (const slot of ["cpu", "mem"] as const) {
      const asked = reserved[slot];
      const capacity = capacityOf(row)[slot];
      if (asked === undefined || row.cap_cpu === 0 || asked <= capacity) continue;
      throw new BerthError("invalid-request", `${row.name} has less ${slot} than is to be reserved of it.`, {
        field: `reserved.${slot}`,
        details: { limit: capacity, asked },
      });
    }
  }

  async function markLost(agent: AgentId): Promise<void> {
    const lost = await store.write(async (tx) => {
      const row = await repository.findById(tx, agent);
      if (row === undefined || row.status !== "ALIVE") return false;
      const lastSeen = hub.view(agent).lastSeen ?? row.last_seen_at;
      await repository.update(tx, agent, { status: "LOST", last_seen_at: lastSeen });
      await events.append(tx, agentEvent({ ...row, status: "LOST" }, "agent.status", { ready: false }));
      return true;
    });
    if (!lost) return;
    log.warn({ agent }, "an agent is lost: nothing was heard of it for too long");
    await deps.kernels.lost(agent);
    deps.changed();
  }

  return {
    find,
    get: (principal, reference) =>
      store.read(async (db) => {
        const row = await find(db, reference);
        if (row.group_public === 0 && !seesEveryGroup(principal)) throw notFound(reference);
        return view(row, await deps.occupancy(db));
      }),
    markLost,
    start: async () => {
      for (const row of await store.read(repository.all)) if (row.status === "ALIVE") hub.watch(row.id);
    },
    list: (principal, { cursor, limit, status, group }) =>
      store.read(async (db) => {
        const after = cursor === undefined ? null : String(parseCursor(SCOPE, cursor, 1)[0]);
        const groupId = group === undefined ? undefined : (await groups.findFor(db, principal, group)).id;
        const filter = { status, groupId, publicOnly: !seesEveryGroup(principal) };
        const rows = await repository.list(db, filter, { after, limit: limit + 1 });
        const occupancy = await deps.occupancy(db);
        const keyOf = (row: repository.AgentRow) => [`${row.name}\0${row.id}`];
        return pageOf(rows, limit, SCOPE, keyOf, (row) => view(row, occupancy));
      }),
    update: async (reference, change) => {
      const id = await store.write(async (tx) => {
        const row = await find(tx, reference);
        const { name, schedulable, group, reserved } = change;
        if (name !== undefined) await refuseTaken(tx, name, row.id);
        if (reserved !== undefined) refuseTooMuch(row, reserved);
        await repository.update(tx, row.id, {
          name: name ?? row.name,
          schedulable: schedulable === undefined ? row.schedulable : schedulable ? 1 : 0,
          group_id: group === undefined ? row.group_id : (await groups.find(tx, group)).id,
          reserved_cpu: reserved?.cpu ?? row.reserved_cpu,
          reserved_mem: reserved?.mem ?? row.reserved_mem,
          reserved_by_admin: reserved === undefined ? row.reserved_by_admin : 1,
        });
        await events.append(tx, agentEvent({ ...row, name: name ?? row.name }, "agent.updated"));
        tx.afterCommit(deps.changed);
        return row.id;
      });
      return shown(id);
    },
    remove: async (reference, force, actor) => {
      const { id, vacate } = await store.write(async (tx) => {
        const row = await find(tx, reference);
        const vacate = await deps.evict(tx, row, force, actor);
        await repository.update(tx, row.id, { status: "REMOVED", removed_at: clock.wall(), schedulable: 0 });
        await events.append(tx, agentEvent({ ...row, status: "REMOVED" }, "agent.status", { ready: false }));
        tx.afterCommit(deps.changed);
        return { id: row.id, vacate };
      });
      log.info({ agent: id, actor, force }, "a node was removed");
      if (force) await vacate();
      await hub.expel(id);
    },
    isRevoked: async (agent) => (await store.read((db) => repository.findById(db, agent))) === undefined,
    nodes: async (db) =>
      // A node that joined and was never heard of has no known size: nothing is judged by it.
      (await repository.all(db))
        .filter((row) => row.cap_cpu > 0)
        .map((row) => {
          const node = readNode(row.node);
          return {
            id: row.id,
            name: row.name,
            groupId: row.group_id,
            capacity: capacityOf(row),
            reserved: reservedOf(row),
            hostEnvironment: node.hostEnvironment,
            arch: archOf(node.arch),
            schedulable: row.schedulable === 1,
            // Without its engine a node could only fail what is placed on it.
            reconciled: hub.ready(row.id) && hub.view(row.id).engineReachable,
            alive: row.status === "ALIVE",
          };
        }),
    imageNodes: async (db) =>
      (await repository.all(db)).map((row) => ({
        id: row.id,
        name: row.name,
        hostEnvironment: readNode(row.node).hostEnvironment,
      })),
    groupCapacity: async (db) => {
      const groupsOf = new Map<GroupId, { agents: number; capacity: ResourceSlots }>();
      for (const row of await repository.all(db)) {
        const known = groupsOf.get(row.group_id) ?? { agents: 0, capacity: NO_SLOTS };
        const capacity = addSlots(known.capacity, capacityOf(row));
        groupsOf.set(row.group_id, { agents: known.agents + 1, capacity });
      }
      return groupsOf;
    },
    inGroup: repository.inGroup,
    countByStatus: async () => {
      const counts = new Map<AgentStatus, number>();
      for (const row of await store.read(repository.all))
        counts.set(row.status, (counts.get(row.status) ?? 0) + 1);
      return counts;
    },
  };
}
