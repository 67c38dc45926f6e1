import { formatSize } from "../../kit/size.ts";
import { MIN_CPU, type ResourceSlots } from "../../kit/slots.ts";
import { couldEverFit } from "../scheduling/fit.ts";
import { slotInWords, slotsInWords } from "../scheduling/words.ts";
import type { Adjusted, AdmissionFacts, AdmissionRequest, Refusal } from "./admission-types.ts";

const MIB = 2 ** 20;
/** Less memory than this no container gets, whatever its image says. */
export const MIN_MEM = 32 * MIB;
const MIN_SHM = MIB;

export type ResolvedSlots = {
  readonly slots: ResourceSlots;
  readonly shm: number;
  readonly adjusted: readonly Adjusted[];
  readonly refusals: readonly Refusal[];
};

function refusal(code: string, field: string, sentence: string, details: Refusal["details"] = {}): Refusal {
  return { code, field, sentence, details };
}

function checkAmounts(request: AdmissionRequest): readonly Refusal[] {
  const refusals: Refusal[] = [];
  for (const [slot, amount] of [...Object.entries(request.slots), ["shm", request.shm] as const]) {
    if (amount === null || amount === undefined) continue;
    const field = `slots.${slot}`;
    if (!Number.isSafeInteger(amount) || amount < 0) {
      refusals.push(refusal("invalid-slot", field, `${slot}: ${amount} is not a whole number of 0 or more.`));
    } else if (slot === "cpu" && amount < MIN_CPU) {
      const least = slotInWords("cpu", MIN_CPU);
      const sentence = `A session needs at least ${least}; ${slotInWords("cpu", amount)} were asked for.`;
      refusals.push(refusal("invalid-cpu", field, sentence, { minimum: MIN_CPU, asked: amount }));
    } else if (slot === "mem" && amount === 0) {
      refusals.push(refusal("invalid-mem", field, "A session needs memory; 0 bytes were asked for."));
    } else if (slot === "shm" && amount < MIN_SHM) {
      const least = formatSize(MIN_SHM);
      const sentence = `Shared memory is at least ${least}; ${formatSize(amount)} was asked for.`;
      refusals.push(refusal("invalid-shm", field, sentence, { minimum: MIN_SHM, asked: amount }));
    }
  }
  return refusals;
}

/** The slots that nodes of the group have; null while no node says. */
function servedSlots(facts: AdmissionFacts): ReadonlySet<string> | null {
  if (facts.nodes.length === 0) return null;
  const served = new Set(["cpu", "mem"]);
  for (const node of facts.nodes) {
    for (const [slot, amount] of Object.entries(node.capacity)) if (amount > 0) served.add(slot);
  }
  return served;
}

function checkServed(slots: ResourceSlots, facts: AdmissionFacts): readonly Refusal[] {
  const served = servedSlots(facts);
  if (served === null) return [];
  return Object.entries(slots)
    .filter(([slot, amount]) => amount > 0 && !served.has(slot))
    .map(([slot]) => {
      const list = [...served].join(", ");
      const sentence = `The resource group ${facts.group.name} has no ${slot}; it has ${list}.`;
      return refusal("slot-not-served", `slots.${slot}`, sentence, { group: facts.group.name });
    });
}

function raise(what: string, asked: number, given: number, why: string): Adjusted {
  const words = (amount: number) => slotInWords(what, amount);
  return {
    what,
    asked,
    given,
    sentence: `${what} was raised from ${words(asked)} to ${words(given)}: ${why}.`,
  };
}

/** Raises the slots to the image's minimums. An accelerator is raised only where one was asked for. */
function raiseToMinimum(
  request: AdmissionRequest,
  facts: AdmissionFacts,
): { slots: { cpu: number; mem: number } & Record<string, number>; adjusted: Adjusted[] } {
  const { image, defaults } = facts;
  const slots = { cpu: request.slots.cpu ?? defaults.cpu, mem: request.slots.mem ?? defaults.mem };
  const out: { cpu: number; mem: number } & Record<string, number> = slots;
  for (const [slot, amount] of Object.entries(request.slots)) {
    if (amount !== null && amount !== undefined && amount > 0) out[slot] = amount;
  }
  const adjusted: Adjusted[] = [];
  for (const [slot, least] of Object.entries({ ...image.minimum, cpu: image.minimum.cpu ?? MIN_CPU })) {
    const asked = out[slot] ?? 0;
    if (asked >= least || (asked === 0 && slot !== "cpu" && slot !== "mem")) continue;
    out[slot] = least;
    adjusted.push(raise(slot, asked, least, `the image ${image.reference} needs it`));
  }
  if (out.mem < MIN_MEM) {
    adjusted.push(raise("mem", out.mem, MIN_MEM, "no session gets less"));
    out.mem = MIN_MEM;
  }
  return { slots: out, adjusted };
}

/** Shared memory is a part of the memory: what the image needs has to be left beside what was stated. */
function resolveShm(
  request: AdmissionRequest,
  facts: AdmissionFacts,
  mem: number,
): { shm: number; mem: number; adjusted: Adjusted[]; refusals: Refusal[] } {
  const { shm } = request;
  // Nobody asked for it, so it takes no more than half and makes no claim of its own.
  if (shm === null)
    return { shm: Math.min(facts.defaults.shm, Math.floor(mem / 2)), mem, adjusted: [], refusals: [] };
  const own = facts.image.minimum.mem ?? 0;
  const least = own > 0 ? own + shm : 0;
  const bound = request.slots.mem ?? Math.max(mem, least);
  if (shm >= bound) {
    const sentence =
      `Shared memory is part of the memory and has to be smaller: ${formatSize(shm)} of ${formatSize(bound)} ` +
      `was asked for. Ask for more memory or less shared memory.`;
    const refusals = [refusal("shm-too-large", "slots.shm", sentence, { shm, mem: bound })];
    return { shm, mem, adjusted: [], refusals };
  }
  if (mem >= least) return { shm, mem, adjusted: [], refusals: [] };
  const why = `the image ${facts.image.reference} needs ${formatSize(own)} beside the shared memory`;
  return { shm, mem: least, adjusted: [raise("mem", mem, least, why)], refusals: [] };
}

function checkFit(slots: ResourceSlots, facts: AdmissionFacts): readonly Refusal[] {
  const { image, group } = facts;
  const fit = couldEverFit({ slots, imageNeedsHost: image.needsHost, arch: image.arch }, facts.nodes);
  if (fit.ok) return [];
  if (fit.nearest === null) {
    const what = image.needsHost ? "offers the host environment" : `runs ${image.arch} images`;
    const sentence = `No node of the resource group ${group.name} ${what}.`;
    return [refusal("never-fits", "image", sentence, { group: group.name })];
  }
  const { node, usable, missing } = fit.nearest;
  const asked = Object.keys(slots).filter((slot) => (slots[slot] ?? 0) > 0);
  const field = `slots.${Object.keys(missing)[0] ?? "cpu"}`;
  const sentence =
    `No node of the resource group ${group.name} can ever hold ${slotsInWords(slots)}: ` +
    `the nearest, ${node.name}, has ${slotsInWords(usable, asked)} at the most.`;
  return [refusal("never-fits", field, sentence, { node: node.name, ...usable })];
}

/** What a session gets: the request with defaults and minimums, or why it cannot be had. */
export function resolveSlots(request: AdmissionRequest, facts: AdmissionFacts): ResolvedSlots {
  const wrong = checkAmounts(request);
  const raised = raiseToMinimum(request, facts);
  if (wrong.length > 0) return { slots: raised.slots, shm: 0, adjusted: [], refusals: wrong };
  const memory = resolveShm(request, facts, raised.slots.mem);
  const slots: ResourceSlots = { ...raised.slots, mem: memory.mem };
  const notServed = checkServed(slots, facts);
  const fit = notServed.length > 0 ? [] : checkFit(slots, facts);
  return {
    slots,
    shm: memory.shm,
    adjusted: [...raised.adjusted, ...memory.adjusted],
    refusals: [...memory.refusals, ...notServed, ...fit],
  };
}
