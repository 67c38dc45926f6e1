import {
  type AgentId,
  asId,
  type GroupId,
  type KernelId,
  type SessionId,
  type UserId,
} from "../../kit/ids.ts";
import type { GroupSnapshot, LiveAllocation, NodeSnapshot, PendingSession } from "./types.ts";

/** Makers of snapshots for tests and benchmarks: sound defaults, and numbers in place of ids. */

const idText = (kind: number, n: number) => {
  const hex = n.toString(16).padStart(12, "0");
  return `00000000-0000-7000-800${kind}-${hex}`;
};
export const agentId = (n: number): AgentId => asId<AgentId>(idText(1, n));
export const groupId = (n: number): GroupId => asId<GroupId>(idText(2, n));
export const sessionId = (n: number): SessionId => asId<SessionId>(idText(3, n));
export const kernelId = (n: number): KernelId => asId<KernelId>(idText(4, n));
export const userId = (n: number): UserId => asId<UserId>(idText(5, n));

export const GIB = 2 ** 30;
export const NOW = 1_700_000_000_000;

export function aGroup(over: Partial<GroupSnapshot> = {}): GroupSnapshot {
  return {
    id: groupId(1),
    name: "default",
    scheduler: "fifo",
    placement: "dispersed",
    pendingTimeoutMs: null,
    allowedTypes: ["interactive", "batch"],
    active: true,
    roundRobinCursor: null,
    ...over,
  };
}

export function aNode(n: number, over: Partial<NodeSnapshot> = {}): NodeSnapshot {
  return {
    id: agentId(n),
    name: `node-${n}`,
    groupId: groupId(1),
    capacity: { cpu: 4000, mem: 8 * GIB },
    reserved: { cpu: 0, mem: 0 },
    hostEnvironment: true,
    arch: "amd64",
    schedulable: true,
    reconciled: true,
    alive: true,
    ...over,
  };
}

export function aLive(n: number, agent: number, over: Partial<LiveAllocation> = {}): LiveAllocation {
  return {
    kernelId: kernelId(n),
    sessionId: sessionId(100_000 + n),
    agentId: agentId(agent),
    slots: { cpu: 1000, mem: GIB },
    estimatedEnd: null,
    ...over,
  };
}

export function aSession(n: number, over: Partial<PendingSession> = {}): PendingSession {
  return {
    sessionId: sessionId(n),
    name: `sess-${n}`,
    seq: n,
    ownerId: userId(1),
    groupId: groupId(1),
    priority: 10,
    slots: { cpu: 1000, mem: GIB },
    imageNeedsHost: false,
    type: "batch",
    startsAt: null,
    enqueuedAt: NOW,
    timeoutMs: null,
    ...over,
  };
}
