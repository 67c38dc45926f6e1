import type { WallMs } from "../../kit/clock.ts";
import { formatDuration } from "../../kit/duration.ts";
import type { AgentId, GroupId } from "../../kit/ids.ts";
import { mayUse, type Reservation, reserve, useSpare } from "./backfill.ts";
import { orderPending } from "./order.ts";
import { chooseNode } from "./placement.ts";
import { createRoomReasons, type Reason, ruleReason, UNEXPLAINED, UNKNOWN_GROUP } from "./reasons.ts";
import {
  createRoom,
  createShapes,
  isReady,
  type NodeRoom,
  occupy,
  type Shape,
  type SlotNames,
  slotNamesOf,
} from "./room.ts";
import type {
  GroupSnapshot,
  LiveAllocation,
  NodeSnapshot,
  PendingSession,
  PendingTimeout,
  Placement,
  Plan,
  SchedulingSnapshot,
  Wait,
} from "./types.ts";
import { LAST_MOMENT } from "./words.ts";

/**
 * What is added to a run time to estimate an end before the run has begun: taking up, creating and
 * stopping the container take time too. Estimates of live allocations should count it as well.
 */
export const START_ALLOWANCE_MS = 60_000;

/**
 * When a session that starts at `startAt` will have ended at the latest; null when nothing says so, or
 * nothing that is a date.
 */
export function estimateEnd(startAt: WallMs, runTimeMs: number | null): WallMs | null {
  const end = runTimeMs === null ? null : startAt + runTimeMs + START_ALLOWANCE_MS;
  return end !== null && end <= LAST_MOMENT ? end : null;
}

type Draft = {
  readonly placements: Placement[];
  readonly waits: Wait[];
  readonly timeouts: PendingTimeout[];
  readonly cursors: Map<GroupId, AgentId>;
  readonly faults: unknown[];
  nextChangeAt: WallMs | null;
};

type GroupInput = {
  readonly group: GroupSnapshot;
  readonly names: SlotNames;
  readonly nodes: readonly NodeSnapshot[];
  readonly nodesInAll: number;
  readonly rooms: readonly NodeRoom[];
  readonly pending: readonly PendingSession[];
  readonly now: WallMs;
};

/** A session that was not placed: by a rule, or for want of room (then `reason` is found at the end). */
type Left = { readonly session: PendingSession; readonly reason: Reason | null };

function noteChange(draft: Draft, at: WallMs): void {
  if (draft.nextChangeAt === null || at < draft.nextChangeAt) draft.nextChangeAt = at;
}

function pendingTimeoutOf(session: PendingSession, group: GroupSnapshot): number | null {
  return session.pendingTimeoutMs === undefined ? group.pendingTimeoutMs : session.pendingTimeoutMs;
}

/** When the session will have waited longer than it may; null when it may wait for ever. */
function giveUpAt(session: PendingSession, group: GroupSnapshot): WallMs | null {
  const limit = pendingTimeoutOf(session, group);
  return limit === null ? null : Math.max(session.enqueuedAt, session.startsAt ?? 0) + limit;
}

function timeoutOf(session: PendingSession, group: GroupSnapshot): PendingTimeout {
  const limit = formatDuration(pendingTimeoutOf(session, group) ?? 0);
  const allowed = `the longest that the resource group ${group.name} allows`;
  const sentence = `It waited for ${limit} without finding room, ${allowed}.`;
  return { sessionId: session.sessionId, sentence };
}

/** Places what can be placed, in order; returns what is left and the reservation of the first blocked. */
function placeGroup(input: GroupInput, shapeOf: (s: PendingSession) => Shape, draft: Draft) {
  const { group, now } = input;
  const left: Left[] = [];
  let reservation: Reservation | null = null;
  let cursor = group.roundRobinCursor;

  const place = (session: PendingSession, shape: Shape): boolean => {
    if (shape.exhausted) return false;
    const end = estimateEnd(now, session.timeoutMs);
    const allowed = (room: NodeRoom) => mayUse(reservation, room, shape.need, end);
    const room = chooseNode(group.placement, shape.need, shape.candidates, cursor, allowed);
    if (room === null) {
      shape.exhausted = true;
      return false;
    }
    useSpare(reservation, room, shape.need, end);
    occupy(room, shape.need, end);
    draft.placements.push({ sessionId: session.sessionId, agentId: room.node.id });
    if (group.placement === "round-robin") cursor = room.node.id;
    return true;
  };

  for (const session of orderPending(input.pending, group.scheduler)) {
    const reason = ruleReason(session, group, now);
    const shape = reason === null ? shapeOf(session) : null;
    if (shape !== null && place(session, shape)) continue;
    const giveUp = giveUpAt(session, group);
    // Tried before it is given up: a session that finds room in the last moment gets it.
    if (giveUp !== null && giveUp <= now) {
      draft.timeouts.push(timeoutOf(session, group));
      continue;
    }
    if (giveUp !== null) noteChange(draft, giveUp);
    if (shape !== null) reservation ??= reserve(session, shape, now);
    left.push({ session, reason });
  }
  if (cursor !== null && cursor !== group.roundRobinCursor) draft.cursors.set(group.id, cursor);
  return { left, reservation };
}

/** Words are for people: that they cannot be found must not keep anybody's session from its place. */
function explained(find: () => Reason, draft: Draft): Reason {
  try {
    return find();
  } catch (error) {
    draft.faults.push(error);
    return UNEXPLAINED;
  }
}

function explainGroup(
  input: GroupInput,
  shapeOf: (s: PendingSession) => Shape,
  result: { readonly left: readonly Left[]; readonly reservation: Reservation | null },
  draft: Draft,
): void {
  const { left, reservation } = result;
  const positions = new Map<PendingSession, number>();
  for (const { session, reason } of left) {
    if (reason?.code !== "starts-later") positions.set(session, positions.size + 1);
  }
  const holderPosition = reservation === null ? 0 : (positions.get(reservation.holder) ?? 0);
  const roomReason = createRoomReasons({ ...input, reservation, holderPosition });
  for (const { session, reason } of left) {
    if (reason?.code === "starts-later" && session.startsAt !== null) noteChange(draft, session.startsAt);
    const why = reason ?? explained(() => roomReason(session, shapeOf(session)), draft);
    draft.waits.push({ sessionId: session.sessionId, position: positions.get(session) ?? null, ...why });
  }
}

function groupBy<K, V>(values: readonly V[], keyOf: (value: V) => K): Map<K, V[]> {
  const groups = new Map<K, V[]>();
  for (const value of values) {
    const key = keyOf(value);
    const list = groups.get(key);
    if (list === undefined) groups.set(key, [value]);
    else list.push(value);
  }
  return groups;
}

const byId = (a: NodeSnapshot, b: NodeSnapshot) => (a.id < b.id ? -1 : a.id > b.id ? 1 : 0);

function roomsOf(nodes: readonly NodeSnapshot[], names: SlotNames, live: Map<AgentId, LiveAllocation[]>) {
  return nodes.filter(isReady).map((node) => createRoom(node, names, live.get(node.id) ?? []));
}

/**
 * Decides what starts where, and tells of everything else why it waits. Pure and deterministic: the
 * order of the snapshot's lists does not matter.
 *
 * Each group is planned for itself: priority bands, in each the group's order; the first session that
 * finds no room gets a reservation, and later ones are placed only where that is not touched.
 */
export function plan(snapshot: SchedulingSnapshot, now: WallMs): Plan {
  const draft: Draft = {
    placements: [],
    waits: [],
    timeouts: [],
    cursors: new Map(),
    faults: [],
    nextChangeAt: null,
  };
  const { nodes, live, pending } = snapshot;
  const names = slotNamesOf([
    ...nodes.map((node) => node.capacity),
    ...live.map((use) => use.slots),
    ...pending.map((session) => session.slots),
  ]);
  const nodesByGroup = groupBy(nodes, (node) => node.groupId);
  const pendingByGroup = groupBy(pending, (session) => session.groupId);
  const liveByAgent = groupBy(live, (use) => use.agentId);

  for (const group of snapshot.groups) {
    const mine = (nodesByGroup.get(group.id) ?? []).sort(byId);
    const rooms = roomsOf(mine, names, liveByAgent);
    const waiting = pendingByGroup.get(group.id) ?? [];
    pendingByGroup.delete(group.id);
    const input = { group, names, nodes: mine, nodesInAll: nodes.length, rooms, pending: waiting, now };
    const shapeOf = createShapes(names, rooms);
    explainGroup(input, shapeOf, placeGroup(input, shapeOf, draft), draft);
  }
  for (const { sessionId } of orderPending([...pendingByGroup.values()].flat(), "fifo")) {
    draft.waits.push({ sessionId, position: null, ...UNKNOWN_GROUP });
  }
  return draft;
}
