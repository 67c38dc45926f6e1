import type { Clock } from "../../kit/clock.ts";
import type { AgentId, GroupId, SessionId } from "../../kit/ids.ts";
import { addSlots, NO_SLOTS, type ResourceSlots } from "../../kit/slots.ts";
import type { Occupancy } from "../agents/agent.ts";
import type { EventSink } from "../agents/ports.ts";
import { estimateEnd } from "../scheduling/plan.ts";
import type { LiveAllocation, PendingSession } from "../scheduling/types.ts";
import type { Db, Tx } from "../store/store.ts";
import { readSlots } from "./columns.ts";
import { finishSession } from "./finish.ts";
import {
  findById,
  kernelsOf,
  occupyingKernels,
  pendingSessions as pendingRows,
  updateKernel,
} from "./repository.ts";
import { moveSession } from "./transitions.ts";

/** The sessions that wait, as the scheduler's rules take them. */
export async function pendingSessions(db: Db): Promise<readonly PendingSession[]> {
  return (await pendingRows(db)).map((row) => ({
    sessionId: row.id,
    name: row.name,
    seq: row.seq,
    ownerId: row.owner_id,
    groupId: row.group_id,
    priority: row.priority,
    type: row.type,
    slots: readSlots(row.slots),
    startsAt: row.starts_at,
    enqueuedAt: row.status_since,
    timeoutMs: row.timeout_ms,
    pendingTimeoutMs: row.pending_timeout_ms,
    imageNeedsHost: row.image_kind === "host",
    arch: row.arch,
  }));
}

/** Everything that occupies a node: what lives, and what was not seen gone. */
export async function liveAllocations(db: Db): Promise<readonly LiveAllocation[]> {
  return (await occupyingKernels(db)).flatMap((row) =>
    row.agent_id === null
      ? []
      : [
          {
            kernelId: row.kernel_id,
            sessionId: row.session_id,
            agentId: row.agent_id,
            slots: readSlots(row.slots),
            estimatedEnd: row.started_at === null ? null : estimateEnd(row.started_at, row.timeout_ms),
          },
        ],
  );
}

/** What is used of each node. */
export async function occupancy(db: Db): Promise<ReadonlyMap<AgentId, Occupancy>> {
  const nodes = new Map<AgentId, { used: ResourceSlots; sessions: Set<SessionId> }>();
  for (const { agentId, sessionId, slots } of await liveAllocations(db)) {
    const node = nodes.get(agentId) ?? { used: NO_SLOTS, sessions: new Set() };
    node.sessions.add(sessionId);
    nodes.set(agentId, { ...node, used: addSlots(node.used, slots) });
  }
  return new Map([...nodes].map(([id, { used, sessions }]) => [id, { used, sessions: sessions.size }]));
}

/** What is used and what waits in each group. */
export async function groupLoad(
  db: Db,
): Promise<ReadonlyMap<GroupId, { used: ResourceSlots; pending: number }>> {
  const groups = new Map<GroupId, { used: ResourceSlots; pending: number }>();
  const of = (id: GroupId) => groups.get(id) ?? { used: NO_SLOTS, pending: 0 };
  for (const row of await occupyingKernels(db)) {
    const load = of(row.group_id);
    groups.set(row.group_id, { ...load, used: addSlots(load.used, readSlots(row.slots)) });
  }
  for (const row of await pendingRows(db)) {
    const load = of(row.group_id);
    groups.set(row.group_id, { ...load, pending: load.pending + 1 });
  }
  return groups;
}

/** Puts a waiting session on a node. */
export async function placeSession(
  tx: Tx,
  events: EventSink,
  clock: Clock,
  session: SessionId,
  agent: { readonly id: AgentId; readonly name: string },
): Promise<boolean> {
  const row = await findById(tx, session);
  const [kernel] = row === undefined ? [] : await kernelsOf(tx, session);
  if (row === undefined || kernel === undefined || row.desired !== "run") return false;
  const moved = await moveSession(tx, events, row, {
    event: "schedule",
    reason: "placed",
    message: `Placed on ${agent.name}.`,
    actor: "scheduler",
    at: clock.wall(),
    keepReason: false,
    patch: { agent_id: agent.id },
  });
  if (moved === null) return false;
  return updateKernel(tx, kernel.id, kernel.generation, { agent_id: agent.id, status: "SCHEDULED" });
}

/** Gives up on a session that waited too long. */
export async function giveUpWaiting(
  tx: Tx,
  events: EventSink,
  clock: Clock,
  session: SessionId,
  sentence: string,
): Promise<boolean> {
  const row = await findById(tx, session);
  const [kernel] = row === undefined ? [] : await kernelsOf(tx, session);
  if (row === undefined || kernel === undefined || row.status !== "PENDING") return false;
  const result = row.type === "batch" ? ("FAILURE" as const) : ("UNDEFINED" as const);
  const end = {
    status: "CANCELLED" as const,
    result,
    exitCode: null,
    statusReason: "pending-timeout",
    sentence,
  };
  const ended = await finishSession(tx, events, row, kernel, { end, actor: "scheduler", now: clock.wall() });
  await updateKernel(tx, kernel.id, kernel.generation, { gone: 1 });
  return ended !== null;
}
