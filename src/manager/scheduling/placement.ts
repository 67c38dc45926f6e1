import type { AgentId } from "../../kit/ids.ts";
import { fits, type NodeRoom, type Vector } from "./room.ts";
import type { PlacementName } from "./types.ts";

/** How many slot types are free on the node that the request does not ask for. */
function idleTypes(need: Vector, room: NodeRoom): number {
  let count = 0;
  for (let i = 0; i < need.length; i++) if (need[i] === 0 && (room.free[i] ?? 0) > 0) count++;
  return count;
}

/**
 * The share of its scarcest asked-for slot that the node would have left after taking the request, so
 * that nodes of different sizes can be compared.
 */
function shareLeft(need: Vector, room: NodeRoom): number {
  let least = 1;
  for (let i = 0; i < need.length; i++) {
    const amount = need[i] ?? 0;
    const usable = room.usable[i] ?? 0;
    if (amount > 0 && usable > 0) least = Math.min(least, ((room.free[i] ?? 0) - amount) / usable);
  }
  return least;
}

/** Fewest idle slot types first (accelerators stay free for who needs them), then by share left. */
function pickByShare(rooms: Iterable<NodeRoom>, need: Vector, most: boolean): NodeRoom | null {
  let best: NodeRoom | null = null;
  let bestIdle = 0;
  let bestShare = 0;
  for (const room of rooms) {
    const idle = idleTypes(need, room);
    const share = shareLeft(need, room);
    const closer = most ? share > bestShare : share < bestShare;
    if (best === null || idle < bestIdle || (idle === bestIdle && closer)) {
      best = room;
      bestIdle = idle;
      bestShare = share;
    }
  }
  return best;
}

function pickNext(rooms: readonly NodeRoom[], cursor: AgentId | null): NodeRoom | null {
  const after = cursor === null ? undefined : rooms.find((room) => room.node.id > cursor);
  return after ?? rooms[0] ?? null;
}

/**
 * The node for a request among `candidates` (in id order), or null when none of them has room or may
 * be used. Ties go to the smaller id. Dispersed takes the node with the largest share left,
 * concentrated the one with the smallest, round-robin the next id after `cursor`.
 */
export function chooseNode(
  placement: PlacementName,
  need: Vector,
  candidates: readonly NodeRoom[],
  cursor: AgentId | null,
  allowed: (room: NodeRoom) => boolean,
): NodeRoom | null {
  const open = candidates.filter((room) => fits(need, room.free) && allowed(room));
  if (placement === "round-robin") return pickNext(open, cursor);
  return pickByShare(open, need, placement === "dispersed");
}
