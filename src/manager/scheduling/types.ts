import type {
  Placement as PlacementName,
  Scheduler as SchedulerName,
  SessionType,
} from "../../contract/states.ts";
import type { WallMs } from "../../kit/clock.ts";
import type { ErrorDetails } from "../../kit/errors.ts";
import type { AgentId, GroupId, KernelId, SessionId, UserId } from "../../kit/ids.ts";
import type { ResourceSlots } from "../../kit/slots.ts";

export type { PlacementName, SchedulerName, SessionType };

export type GroupSnapshot = {
  readonly id: GroupId;
  readonly name: string;
  readonly scheduler: SchedulerName;
  readonly placement: PlacementName;
  /** How long its sessions may wait before they are given up; null means for ever. */
  readonly pendingTimeoutMs: number | null;
  readonly allowedTypes: readonly SessionType[];
  /** An inactive group starts nothing. */
  readonly active: boolean;
  /** The node that round-robin used last; null before the first. */
  readonly roundRobinCursor: AgentId | null;
};

/** What decides whether a node could ever hold a session, apart from its load. */
export type NodeOffer = {
  readonly id: AgentId;
  readonly name: string;
  readonly groupId: GroupId;
  readonly capacity: ResourceSlots;
  /** Kept for the node itself; sessions get `capacity − reserved`. */
  readonly reserved: ResourceSlots;
  /** Whether the node offers the built-in `host` environment. */
  readonly hostEnvironment: boolean;
  /** The processor architecture as containers name it, such as `amd64`. */
  readonly arch: string;
};

export type NodeSnapshot = NodeOffer & {
  /** False stops new starts only. */
  readonly schedulable: boolean;
  /** Whether the node's first full report since it connected has been reconciled. */
  readonly reconciled: boolean;
  /** Whether its heartbeat is in time. */
  readonly alive: boolean;
  /** A start failed there a moment ago by its own fault: it gets nothing new for a while. */
  readonly resting?: boolean;
};

/** A kernel that occupies room: it lives, or its container has not been seen gone. */
export type LiveAllocation = {
  readonly kernelId: KernelId;
  readonly sessionId: SessionId;
  readonly agentId: AgentId;
  readonly slots: ResourceSlots;
  /** When it will have ended at the latest, by a timeout or lifetime; null where nothing says so. */
  readonly estimatedEnd: WallMs | null;
};

/** What a session needs of a node. */
export type PlacementRequest = {
  readonly slots: ResourceSlots;
  readonly imageNeedsHost: boolean;
  /** Absent or null: any architecture. */
  readonly arch?: string | null;
  /** Nodes on which this session failed before: taken only where no other node could ever hold it. */
  readonly avoidAgents?: readonly AgentId[];
};

export type PendingSession = PlacementRequest & {
  readonly sessionId: SessionId;
  readonly name: string;
  /** The place in the queue: a unique integer that grows with each enqueue. */
  readonly seq: number;
  readonly ownerId: UserId;
  readonly groupId: GroupId;
  readonly priority: number;
  readonly type: SessionType;
  /** Not to be started before; null means at once. */
  readonly startsAt: WallMs | null;
  readonly enqueuedAt: WallMs;
  /** Overrides the group's pending timeout where given, as frozen when it was queued; null means none. */
  readonly pendingTimeoutMs?: number | null;
  /** How long it will run at the most (batch timeout or lifetime); null where nothing says so. */
  readonly timeoutMs: number | null;
};

export type SchedulingSnapshot = {
  readonly groups: readonly GroupSnapshot[];
  readonly nodes: readonly NodeSnapshot[];
  readonly live: readonly LiveAllocation[];
  readonly pending: readonly PendingSession[];
};

export type Placement = { readonly sessionId: SessionId; readonly agentId: AgentId };

/** Why a session waits. Stable: scripts and the API show them. */
export type WaitCode =
  | "unknown-group"
  | "group-inactive"
  | "type-not-allowed"
  | "starts-later"
  | "no-node"
  | "nodes-unschedulable"
  | "no-ready-node"
  | "no-matching-node"
  | "too-large"
  | "no-room"
  | "held-back"
  | "unexplained";

export type Wait = {
  readonly sessionId: SessionId;
  /** 1-based place among the waiting sessions of its group; null while its start time is not reached. */
  readonly position: number | null;
  readonly code: WaitCode;
  readonly sentence: string;
  readonly details: ErrorDetails;
};

export type PendingTimeout = { readonly sessionId: SessionId; readonly sentence: string };

/** What to do now. Every pending session is in exactly one of `placements`, `waits` and `timeouts`. */
export type Plan = {
  readonly placements: readonly Placement[];
  readonly waits: readonly Wait[];
  readonly timeouts: readonly PendingTimeout[];
  /** Each round-robin group's cursor after this plan; store it with the placements. */
  readonly cursors: ReadonlyMap<GroupId, AgentId>;
  /** What went wrong in finding words; each of its sessions waits with the code `unexplained`. */
  readonly faults: readonly unknown[];
  /** The earliest moment at which a start time or a pending timeout changes the plan by itself. */
  readonly nextChangeAt: WallMs | null;
};
