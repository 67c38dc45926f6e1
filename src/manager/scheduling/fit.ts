import { missingSlots } from "../../kit/slots.ts";
import { suits, usableSlots } from "./room.ts";
import type { NodeOffer, PlacementRequest } from "./types.ts";

export type EverFit =
  | { readonly ok: true }
  | {
      readonly ok: false;
      /** `unsuitable`: no node is of the right kind; `too-large`: none of those is large enough. */
      readonly why: "unsuitable" | "too-large";
      /** The node that comes closest; null when no node is of the right kind. */
      readonly nearest: {
        readonly node: NodeOffer;
        readonly usable: Readonly<Record<string, number>>;
        readonly missing: Readonly<Record<string, number>>;
      } | null;
    };

function lackOf(request: PlacementRequest, missing: Readonly<Record<string, number>>): number {
  return Object.entries(missing).reduce(
    (sum, [name, amount]) => sum + amount / (request.slots[name] ?? amount),
    0,
  );
}

/**
 * Whether any of the registered nodes could hold the request when empty. Lost and unschedulable nodes
 * count, because they come back; with no node registered everything may wait for one.
 */
export function couldEverFit(request: PlacementRequest, nodes: readonly NodeOffer[]): EverFit {
  if (nodes.length === 0) return { ok: true };
  const able = nodes.filter((node) => suits(node, request));
  if (able.length === 0) return { ok: false, why: "unsuitable", nearest: null };
  const options = able.map((node) => {
    const usable = usableSlots(node);
    return { node, usable, missing: missingSlots(request.slots, usable) };
  });
  if (options.some((option) => Object.keys(option.missing).length === 0)) return { ok: true };
  const nearest = options.reduce((best, option) =>
    lackOf(request, option.missing) < lackOf(request, best.missing) ? option : best,
  );
  return { ok: false, why: "too-large", nearest };
}
