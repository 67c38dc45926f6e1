import type { WallMs } from "../../kit/clock.ts";
import type { ResourceSlots } from "../../kit/slots.ts";
import type { LiveAllocation, NodeOffer, NodeSnapshot, PendingSession, PlacementRequest } from "./types.ts";

/** Slots as a vector, so that ten thousand sessions on a hundred nodes are compared without look-ups. */
export type Vector = readonly number[];

// Small enough never to outweigh a difference that a person would call one.
const TIE_WEIGHT = 1e-6;

/** The names of the positions in every vector of one plan. */
export type SlotNames = readonly string[];

export function slotNamesOf(all: Iterable<ResourceSlots>): SlotNames {
  const names = new Set<string>(["cpu", "mem"]);
  for (const slots of all) for (const name in slots) names.add(name);
  // Sorted, so that sums do not depend on the order of the lists.
  return [...names].sort();
}

export function toVector(names: SlotNames, slots: ResourceSlots): number[] {
  return names.map((name) => slots[name] ?? 0);
}

export function toSlots(names: SlotNames, vector: Vector): Record<string, number> {
  return Object.fromEntries(names.map((name, i) => [name, vector[i] ?? 0]));
}

/** A node that may take sessions, with what is free on it while a plan grows. */
export type NodeRoom = {
  readonly node: NodeSnapshot;
  /** Capacity without what is reserved for the node itself. */
  readonly usable: Vector;
  /** May be negative where a node holds more than it has now. */
  readonly free: number[];
  readonly ends: { readonly vector: Vector; readonly end: WallMs | null }[];
};

/** What sessions of one node can have at the most. */
export function usableSlots(node: Pick<NodeOffer, "capacity" | "reserved">): ResourceSlots {
  const usable: { cpu: number; mem: number } & Record<string, number> = { cpu: 0, mem: 0 };
  for (const [name, amount] of Object.entries(node.capacity)) {
    usable[name] = Math.max(0, amount - (node.reserved[name] ?? 0));
  }
  return usable;
}

export function isReady(node: NodeSnapshot): boolean {
  return node.alive && node.reconciled && node.schedulable && node.resting !== true;
}

export function createRoom(node: NodeSnapshot, names: SlotNames, live: readonly LiveAllocation[]): NodeRoom {
  const usable = toVector(names, usableSlots(node));
  const room: NodeRoom = { node, usable, free: [...usable], ends: [] };
  for (const allocation of live) occupy(room, toVector(names, allocation.slots), allocation.estimatedEnd);
  return room;
}

export function occupy(room: NodeRoom, vector: Vector, end: WallMs | null): void {
  for (let i = 0; i < vector.length; i++) room.free[i] = (room.free[i] ?? 0) - (vector[i] ?? 0);
  room.ends.push({ vector, end });
}

/** Whether `need` fits; slots that are not asked for do not matter, even where they are overdrawn. */
export function fits(need: Vector, room: Vector): boolean {
  for (let i = 0; i < need.length; i++) {
    const amount = need[i] ?? 0;
    if (amount > 0 && amount > (room[i] ?? 0)) return false;
  }
  return true;
}

/**
 * How far `room` is from holding `need`: the missing part of the slot that is missed most, 0 to 1, and
 * between equals the sum over all slots. 0 when it fits.
 */
export function lack(need: Vector, room: Vector): number {
  let most = 0;
  let sum = 0;
  for (let i = 0; i < need.length; i++) {
    const amount = need[i] ?? 0;
    if (amount <= 0) continue;
    const missing = Math.max(0, amount - (room[i] ?? 0)) / amount;
    most = Math.max(most, missing);
    sum += missing;
  }
  return most + sum * TIE_WEIGHT;
}

/** Whether a node suits by what it is, apart from its size and load. */
export function suits(node: NodeOffer, request: PlacementRequest): boolean {
  if (request.imageNeedsHost && !node.hostEnvironment) return false;
  return request.arch === undefined || request.arch === null || request.arch === node.arch;
}

/** Sessions that are alike to the scheduler; what is found out for one holds for all. */
export type Shape = {
  readonly need: Vector;
  readonly slots: ResourceSlots;
  /** The ready nodes that could hold it when empty, in id order. */
  readonly candidates: readonly NodeRoom[];
  /** Room only shrinks while a plan grows: what found no node once finds none later. */
  exhausted: boolean;
};

/** Finds the shape of a session, making it when it is the first of its kind. */
export function createShapes(names: SlotNames, rooms: readonly NodeRoom[]): (s: PendingSession) => Shape {
  const shapes = new Map<string, Shape>();
  return (session) => {
    const need = toVector(names, session.slots);
    const avoid = session.avoidAgents?.length ? [...session.avoidAgents].sort().join(",") : "";
    const what = `${session.timeoutMs ?? ""}/${session.arch ?? ""}/${session.imageNeedsHost}/${avoid}`;
    const key = `${need.join(",")}/${what}`;
    const known = shapes.get(key);
    if (known !== undefined) return known;
    const able = rooms.filter((room) => suits(room.node, session) && fits(need, room.usable));
    const preferred = able.filter((room) => session.avoidAgents?.includes(room.node.id) !== true);
    const candidates = preferred.length > 0 ? preferred : able;
    const shape = { need, slots: session.slots, candidates, exhausted: false };
    shapes.set(key, shape);
    return shape;
  };
}
