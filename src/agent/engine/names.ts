import { BerthError } from "../../kit/errors.ts";
import { isId } from "../../kit/ids.ts";
import type { KernelSpec } from "../../wire/generated/berth.ts";
import type { KernelRef, Ownership } from "./engine.ts";

export const LABEL = {
  cluster: "berth.cluster",
  agent: "berth.agent",
  kernel: "berth.kernel",
  session: "berth.session",
  generation: "berth.generation",
  epoch: "berth.epoch",
  owner: "berth.owner",
  /** `keep-alive` on containers whose main process is ours and has nothing to end by itself. */
  main: "berth.main",
  /** On images that the platform itself made. */
  builtin: "berth.builtin",
} as const;

/**
 * Eight hexadecimal digits that stand for an agent in names of limited length. The last ones: the first
 * of a UUIDv7 are its time, which agents that joined in the same minute share.
 */
export function agentTag({ agentId }: Ownership): string {
  return agentId.replaceAll("-", "").slice(-8);
}

/** Name of a kernel's container: its identity, so that "name in use" means "exists already". */
export function containerName(
  owner: Ownership,
  { kernelId, generation }: Omit<KernelRef, "sessionId">,
): string {
  return `berth-${agentTag(owner)}-${kernelId}-g${generation}`;
}

/** Name of the network that an agent's sessions share. */
export function networkName(owner: Ownership): string {
  return `berth-${agentTag(owner)}`;
}

/** Name of that network's bridge interface; the kernel allows 15 characters. */
export function bridgeName(owner: Ownership): string {
  return `bth-${agentTag(owner)}`;
}

export function ownershipLabels({ clusterId, agentId }: Ownership): Record<string, string> {
  return { [LABEL.cluster]: clusterId, [LABEL.agent]: agentId };
}

/** The label filter that finds this agent's things and nobody else's. */
export function ownershipFilter(owner: Ownership): string[] {
  return Object.entries(ownershipLabels(owner)).map(([name, value]) => `${name}=${value}`);
}

export function kernelLabels(owner: Ownership, spec: KernelSpec, keepAlive: boolean): Record<string, string> {
  return {
    ...ownershipLabels(owner),
    [LABEL.kernel]: spec.kernelId,
    [LABEL.session]: spec.sessionId,
    [LABEL.generation]: String(spec.generation),
    [LABEL.epoch]: String(spec.epoch),
    [LABEL.owner]: spec.ownerId,
    ...(keepAlive ? { [LABEL.main]: "keep-alive" } : {}),
  };
}

/** The kernel that labels name; undefined when they are not a kernel's. */
export function refOfLabels(labels: Readonly<Record<string, string>>): KernelRef | undefined {
  const [kernelId, sessionId] = [labels[LABEL.kernel], labels[LABEL.session]];
  const generation = Number(labels[LABEL.generation]);
  if (kernelId === undefined || sessionId === undefined || !Number.isInteger(generation)) return undefined;
  return { kernelId, sessionId, generation };
}

/** Whether labels carry this ownership. */
export function isOwn(owner: Ownership, labels: Readonly<Record<string, string>>): boolean {
  return labels[LABEL.cluster] === owner.clusterId && labels[LABEL.agent] === owner.agentId;
}

/** Throws `engine-refused` unless the reference is safe to be part of a path and a name. */
export function checkRef({ kernelId, generation }: Omit<KernelRef, "sessionId">): void {
  if (isId(kernelId) && Number.isInteger(generation) && generation >= 0) return;
  throw new BerthError("engine-refused", `"${kernelId}" generation ${generation} is not the id of a kernel.`);
}
