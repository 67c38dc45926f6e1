import type { WallMs } from "../../kit/clock.ts";
import type { ErrorDetails } from "../../kit/errors.ts";
import type { Reservation } from "./backfill.ts";
import {
  fits,
  isReady,
  lack,
  type NodeRoom,
  type Shape,
  type SlotNames,
  suits,
  toSlots,
  usableSlots,
} from "./room.ts";
import type { GroupSnapshot, NodeSnapshot, PendingSession, WaitCode } from "./types.ts";
import { joinWords, momentInWords, slotsInWords } from "./words.ts";

export type Reason = {
  readonly code: WaitCode;
  readonly sentence: string;
  readonly details: ErrorDetails;
};

/** What a reason is told from: one group at the end of a plan. */
export type GroupView = {
  readonly group: GroupSnapshot;
  readonly names: SlotNames;
  /** Every node of the group. */
  readonly nodes: readonly NodeSnapshot[];
  /** How many nodes there are in all groups. */
  readonly nodesInAll: number;
  /** The ready ones, with what is free on them. */
  readonly rooms: readonly NodeRoom[];
  readonly reservation: Reservation | null;
  /** The place of the reservation's holder in the queue. */
  readonly holderPosition: number;
};

const reason = (code: WaitCode, sentence: string, details: ErrorDetails = {}): Reason => ({
  code,
  sentence,
  details,
});

/** Why a session may not start whatever is free; null when only room is in question. */
export function ruleReason(session: PendingSession, group: GroupSnapshot, now: WallMs): Reason | null {
  if (session.startsAt !== null && session.startsAt > now) {
    const at = momentInWords(session.startsAt);
    return reason("starts-later", `It starts at ${at} at the earliest.`, { startsAt: at });
  }
  if (!group.active) {
    const sentence = `The resource group ${group.name} is set inactive and starts nothing.`;
    return reason("group-inactive", sentence, { group: group.name });
  }
  if (!group.allowedTypes.includes(session.type)) {
    const allowed = joinWords(group.allowedTypes);
    const sentence = `The resource group ${group.name} now takes only ${allowed || "no"} sessions.`;
    return reason("type-not-allowed", sentence, { group: group.name, allowed: [...group.allowedTypes] });
  }
  return null;
}

/** A pending session whose group is gone. */
export const UNKNOWN_GROUP: Reason = reason("unknown-group", "Its resource group no longer exists.");

/** A fault of ours; the session takes part in every plan like any other. */
export const UNEXPLAINED: Reason = reason(
  "unexplained",
  "It waits, and the reason could not be put into words. The manager's log has the fault.",
);

function notReadyReason(view: GroupView): Reason {
  const { group, nodes } = view;
  if (nodes.length === 0) {
    const where =
      view.nodesInAll === 0 ? "No node is registered yet" : `No node has joined the group ${group.name} yet`;
    return reason("no-node", `${where}.`, { group: group.name, nodes: 0 });
  }
  const lost = nodes.filter((node) => !node.alive).length;
  const unreported = nodes.filter((node) => node.alive && !node.reconciled).length;
  const resting = nodes.filter(
    (node) => node.alive && node.reconciled && node.schedulable && node.resting === true,
  ).length;
  const off = nodes.length - lost - unreported - resting;
  const details = { group: group.name, nodes: nodes.length, lost, unreported, resting, unschedulable: off };
  if (off === nodes.length) {
    const sentence = `All nodes of the group ${group.name} are set unschedulable.`;
    return reason("nodes-unschedulable", sentence, details);
  }
  const parts: string[] = [];
  if (lost > 0) parts.push(lost === 1 ? "1 is lost" : `${lost} are lost`);
  if (unreported > 0) parts.push(`${unreported} ${unreported === 1 ? "has" : "have"} not reported yet`);
  if (resting > 0) {
    parts.push(
      `${resting} could not start a session a moment ago and ${resting === 1 ? "is" : "are"} tried again soon`,
    );
  }
  if (off > 0) parts.push(`${off} ${off === 1 ? "is" : "are"} set unschedulable`);
  return reason(
    "no-ready-node",
    `No node of the group ${group.name} is ready: ${joinWords(parts)}.`,
    details,
  );
}

function unsuitableReason(session: PendingSession, view: GroupView): Reason {
  const parts: string[] = [];
  if (session.arch) parts.push(`runs ${session.arch} images`);
  if (session.imageNeedsHost) parts.push("offers the host environment");
  const sentence = `No ready node of the group ${view.group.name} ${joinWords(parts)}.`;
  const details = { group: view.group.name, arch: session.arch ?? null, host: session.imageNeedsHost };
  return reason("no-matching-node", sentence, details);
}

function nearest(rooms: readonly NodeRoom[], measure: (room: NodeRoom) => number): NodeRoom | undefined {
  let best: NodeRoom | undefined;
  let least = Infinity;
  for (const room of rooms) {
    const value = measure(room);
    if (value < least) {
      least = value;
      best = room;
    }
  }
  return best;
}

function tooLargeReason(session: PendingSession, shape: Shape, view: GroupView): Reason {
  const able = view.rooms.filter((room) => suits(room.node, session));
  const closest = nearest(able, (room) => lack(shape.need, room.usable));
  const names = Object.keys(session.slots).filter((name) => (session.slots[name] ?? 0) > 0);
  const most = closest === undefined ? {} : toSlots(view.names, closest.usable);
  const waitsFor = view.nodes.filter(
    (node) =>
      !isReady(node) &&
      suits(node, session) &&
      names.every((name) => (session.slots[name] ?? 0) <= (usableSlots(node)[name] ?? 0)),
  );
  const hope = waitsFor.slice(0, 3).map((node) => `${node.name} is ${node.alive ? "not ready" : "lost"}`);
  if (waitsFor.length > 3) hope.push(`${waitsFor.length - 3} more are not ready`);
  const sentence =
    `It needs ${slotsInWords(session.slots)}; the largest ready node of the group ${view.group.name}, ` +
    `${closest?.node.name}, gives ${slotsInWords(most, names)} at the most` +
    `${hope.length > 0 ? `, and ${joinWords(hope)}` : ""}.`;
  return reason("too-large", sentence, { ...session.slots, node: closest?.node.name ?? null });
}

function noRoomReason(session: PendingSession, shape: Shape, view: GroupView): Reason {
  const closest = nearest(shape.candidates, (room) => lack(shape.need, room.free));
  const names = Object.keys(session.slots).filter((name) => (session.slots[name] ?? 0) > 0);
  const free = closest === undefined ? {} : toSlots(view.names, closest.free);
  const sentence =
    `It needs ${slotsInWords(session.slots)}; the most that any ready node of the group ${view.group.name} ` +
    `has free is ${slotsInWords(free, names)} (${closest?.node.name}).`;
  return reason("no-room", sentence, { ...session.slots, node: closest?.node.name ?? null });
}

/** Adds to the holder's reason where it will start, and when if that is known. */
function withReservation(base: Reason, reservation: Reservation): Reason {
  const node = reservation.room.node.name;
  const at = reservation.at === null ? null : momentInWords(reservation.at);
  const when = at === null ? `Room is held for it on ${node}` : `It will find room on ${node} by ${at}`;
  return {
    code: base.code,
    sentence: `${base.sentence} ${when}.`,
    details: { ...base.details, reservedNode: node, expectedBy: at },
  };
}

function heldBackReason(session: PendingSession, reservation: Reservation, position: number): Reason {
  // A name is told to its owner only: lists of one's own sessions must not show those of others.
  const own = reservation.holder.ownerId === session.ownerId;
  const who = own
    ? `${reservation.holder.name} (position ${position})`
    : `the session at position ${position}`;
  const sentence = `It is held back so that ${who} can start on ${reservation.room.node.name}.`;
  return reason("held-back", sentence, { node: reservation.room.node.name, behindPosition: position });
}

type Finding = { readonly reason: Reason } | { readonly heldBy: Reservation };

function findReason(session: PendingSession, shape: Shape, view: GroupView): Finding {
  const { rooms, reservation } = view;
  if (rooms.length === 0) return { reason: notReadyReason(view) };
  if (!rooms.some((room) => suits(room.node, session))) return { reason: unsuitableReason(session, view) };
  if (shape.candidates.length === 0) return { reason: tooLargeReason(session, shape, view) };
  // It fits and yet was not placed: only what is reserved can stand in its way.
  const open = shape.candidates.some((room) => fits(shape.need, room.free));
  return open && reservation !== null
    ? { heldBy: reservation }
    : { reason: noRoomReason(session, shape, view) };
}

/** Tells why sessions of one group find no room, remembering what holds for all of the same shape. */
export function createRoomReasons(view: GroupView): (session: PendingSession, shape: Shape) => Reason {
  const findings = new Map<Shape, Finding>();
  return (session, shape) => {
    const finding = findings.get(shape) ?? findReason(session, shape, view);
    findings.set(shape, finding);
    if ("heldBy" in finding) return heldBackReason(session, finding.heldBy, view.holderPosition);
    const { reservation } = view;
    return reservation?.holder === session ? withReservation(finding.reason, reservation) : finding.reason;
  };
}
