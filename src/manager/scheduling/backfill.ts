import type { WallMs } from "../../kit/clock.ts";
import { fits, lack, type NodeRoom, type Shape, type Vector } from "./room.ts";
import type { PendingSession } from "./types.ts";

/**
 * The room that is kept for the first blocked session of a group. Sessions behind it may be placed on
 * any other node, and on this one only where they surely end before or where there is room for both.
 */
export type Reservation = {
  readonly holder: PendingSession;
  readonly room: NodeRoom;
  /** The latest moment at which the holder fits, by known ends; null when unknown ends stand before it. */
  readonly at: WallMs | null;
  /** What others may still take beside the holder. Slots that the holder does not ask for are infinite. */
  readonly spare: number[];
};

type Prospect = { readonly at: WallMs | null; readonly free: Vector };

/** When `need` will fit on the node by the ends that are known, and what is free at that moment. */
function prospect(need: Vector, room: NodeRoom, now: WallMs): Prospect {
  const free = [...room.free];
  const known = room.ends.flatMap((use) =>
    use.end === null ? [] : [{ ...use, end: Math.max(use.end, now) }],
  );
  known.sort((a, b) => a.end - b.end);
  for (let k = 0; k < known.length; ) {
    const at = known[k]?.end ?? now;
    for (let use = known[k]; use !== undefined && use.end === at; use = known[++k]) {
      for (let i = 0; i < free.length; i++) free[i] = (free[i] ?? 0) + (use.vector[i] ?? 0);
    }
    if (fits(need, free)) return { at, free };
  }
  return { at: null, free: room.free };
}

type Option = Prospect & { readonly room: NodeRoom; readonly lacks: number };

function isBetter(a: Option, b: Option): boolean {
  if (a.at !== b.at) return b.at === null || (a.at !== null && a.at < b.at);
  return a.lacks < b.lacks;
}

/**
 * Reserves for a session that finds no room now: on the node where it fits soonest by known ends, or,
 * with no end known, on the node that lacks least (a measure that can only fall while room is held, so
 * the session gets its turn). Null when no ready node could ever hold it: it then blocks nobody.
 */
export function reserve(holder: PendingSession, shape: Shape, now: WallMs): Reservation | null {
  let best: Option | null = null;
  for (const room of shape.candidates) {
    const option = { ...prospect(shape.need, room, now), room, lacks: lack(shape.need, room.free) };
    if (best === null || isBetter(option, best)) best = option;
  }
  if (best === null) return null;
  const { free, at, room } = best;
  const spare = shape.need.map((amount, i) =>
    amount === 0 ? Infinity : Math.max(0, (free[i] ?? 0) - amount),
  );
  return { holder, room, at, spare };
}

function endsBefore(reservation: Reservation, end: WallMs | null): boolean {
  return reservation.at !== null && end !== null && end <= reservation.at;
}

/** Whether a session that ends at `end` may be placed on `room` without touching what is reserved. */
export function mayUse(
  reservation: Reservation | null,
  room: NodeRoom,
  need: Vector,
  end: WallMs | null,
): boolean {
  if (reservation === null || reservation.room !== room) return true;
  return endsBefore(reservation, end) || fits(need, reservation.spare);
}

/** Takes from the spare room what a session placed on `room` will hold when the holder starts. */
export function useSpare(
  reservation: Reservation | null,
  room: NodeRoom,
  need: Vector,
  end: WallMs | null,
): void {
  if (reservation === null || reservation.room !== room || endsBefore(reservation, end)) return;
  for (let i = 0; i < need.length; i++) reservation.spare[i] = (reservation.spare[i] ?? 0) - (need[i] ?? 0);
}
