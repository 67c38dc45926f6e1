/**
 * Resource slots of a node, a session or a limit. `cpu` counts milli-cores, `mem` bytes; any further
 * name (an accelerator, `cuda.device`) counts whole units of that slot. All values are integers ≥ 0.
 */
export type ResourceSlots = { readonly cpu: number; readonly mem: number } & Readonly<Record<string, number>>;

export const NO_SLOTS: ResourceSlots = { cpu: 0, mem: 0 };

/** Smallest share of a CPU that can be asked for, in milli-cores. */
export const MIN_CPU = 100;

function combine(a: ResourceSlots, b: ResourceSlots, op: (x: number, y: number) => number): ResourceSlots {
  const out: { cpu: number; mem: number } & Record<string, number> = { ...a };
  for (const [name, amount] of Object.entries(b)) out[name] = op(out[name] ?? 0, amount);
  return out;
}

export function addSlots(a: ResourceSlots, b: ResourceSlots): ResourceSlots {
  return combine(a, b, (x, y) => x + y);
}

/** `a − b`; a result may be negative where `b` holds more than `a`. */
export function subtractSlots(a: ResourceSlots, b: ResourceSlots): ResourceSlots {
  return combine(a, b, (x, y) => x - y);
}

export function sumSlots(all: Iterable<ResourceSlots>): ResourceSlots {
  let sum = NO_SLOTS;
  for (const slots of all) sum = addSlots(sum, slots);
  return sum;
}

/** The slots of `request` that `room` cannot give, with what is missing. Empty when it fits. */
export function missingSlots(request: ResourceSlots, room: ResourceSlots): Readonly<Record<string, number>> {
  const missing: Record<string, number> = {};
  for (const [name, amount] of Object.entries(request)) {
    const lack = amount - (room[name] ?? 0);
    if (amount > 0 && lack > 0) missing[name] = lack;
  }
  return missing;
}

export function fitsSlots(request: ResourceSlots, room: ResourceSlots): boolean {
  for (const name in request) {
    const amount = request[name] ?? 0;
    if (amount > 0 && amount > (room[name] ?? 0)) return false;
  }
  return true;
}
