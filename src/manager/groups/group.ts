import { z } from "zod";
import type { Group } from "../../contract/cluster.ts";
import { SESSION_TYPES, type SessionType } from "../../contract/states.ts";
import type { ResourceSlots } from "../../kit/slots.ts";
import { NO_SLOTS } from "../../kit/slots.ts";
import { deadlinesOf, type PhaseDeadlines } from "../sessions/state-machine.ts";
import type { GroupRow } from "./repository.ts";

const types = z.array(z.enum(SESSION_TYPES));
const limit = z.int().min(0).nullable().optional();
const deadlines = z.object({
  SCHEDULED: limit,
  PREPARING: limit,
  PULLING: limit,
  CREATING: limit,
  TERMINATING: limit,
});
export type DeadlineOverrides = { -readonly [Phase in keyof PhaseDeadlines]?: number | null | undefined };

export function readTypes(text: string): readonly SessionType[] {
  return types.parse(JSON.parse(text));
}

export function readOverrides(text: string): DeadlineOverrides {
  return deadlines.parse(JSON.parse(text));
}

/** The deadlines of sessions that are queued in the group: its own, else the defaults. */
export function effectiveDeadlines(group: Pick<GroupRow, "deadlines">): PhaseDeadlines {
  const own: { -readonly [Phase in keyof PhaseDeadlines]?: number } = {};
  const overrides = readOverrides(group.deadlines);
  for (const phase of ["SCHEDULED", "PREPARING", "PULLING", "CREATING", "TERMINATING"] as const) {
    const value = overrides[phase];
    if (typeof value === "number") own[phase] = value;
  }
  return deadlinesOf(own);
}

/** What is counted of a group's nodes and sessions. */
export type GroupStats = {
  readonly agents: number;
  readonly capacity: ResourceSlots;
  readonly used: ResourceSlots;
  readonly pending: number;
};
export const NO_STATS: GroupStats = { agents: 0, capacity: NO_SLOTS, used: NO_SLOTS, pending: 0 };

export function groupView(row: GroupRow, stats: GroupStats): Group {
  const own = readOverrides(row.deadlines);
  return {
    id: row.id,
    name: row.name,
    description: row.description,
    active: row.active === 1,
    public: row.public === 1,
    isDefault: row.is_default === 1,
    scheduler: row.scheduler,
    placement: row.placement,
    allowedTypes: [...readTypes(row.allowed_types)],
    pendingTimeoutMs: row.pending_timeout_ms,
    deadlines: {
      SCHEDULED: own.SCHEDULED ?? null,
      PREPARING: own.PREPARING ?? null,
      PULLING: own.PULLING ?? null,
      CREATING: own.CREATING ?? null,
      TERMINATING: own.TERMINATING ?? null,
    },
    agents: stats.agents,
    capacity: stats.capacity,
    used: stats.used,
    pending: stats.pending,
    createdAt: new Date(row.created_at).toISOString(),
  };
}
