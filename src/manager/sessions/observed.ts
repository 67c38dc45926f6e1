import type { AgentId } from "../../kit/ids.ts";
import { KernelPhase, type KernelStatus } from "../../wire/generated/berth.ts";
import type { KernelPhase as PhaseName } from "./state-machine.ts";

/** What an agent said last of a kernel. */
export type Observation = {
  readonly agent: AgentId;
  readonly status: KernelStatus;
  readonly phase: PhaseName;
};

const PHASES: Readonly<Record<KernelPhase, PhaseName>> = {
  [KernelPhase.KERNEL_PHASE_UNSPECIFIED]: "unknown",
  [KernelPhase.UNRECOGNIZED]: "unknown",
  [KernelPhase.PREPARING]: "preparing",
  [KernelPhase.PULLING]: "pulling",
  [KernelPhase.CREATING]: "creating",
  [KernelPhase.RUNNING]: "running",
  [KernelPhase.EXITED]: "exited",
  [KernelPhase.FAILED]: "failed",
  [KernelPhase.GONE]: "gone",
};

export function phaseOf(status: KernelStatus): PhaseName {
  // An agent says RUNNING as soon as it means to start; only with its time the start has happened.
  if (status.phase === KernelPhase.RUNNING && status.startedAtMs === 0) return "creating";
  return PHASES[status.phase] ?? "unknown";
}

/** Whether two statuses say the same of what is stored; progress and growing logs do not count. */
export function sameFacts(a: KernelStatus, b: KernelStatus): boolean {
  return (
    a.generation === b.generation &&
    a.phase === b.phase &&
    a.containerId === b.containerId &&
    a.startedAtMs === b.startedAtMs &&
    a.endedAtMs === b.endedAtMs &&
    a.exitCode === b.exitCode &&
    a.oomKilled === b.oomKilled &&
    a.timedOut === b.timedOut &&
    a.stopRequested === b.stopRequested &&
    a.endReason === b.endReason &&
    a.failure?.code === b.failure?.code
  );
}

/** The latest word of the agents on each kernel; in memory, because a full report brings it back. */
export interface Observations {
  get(kernelId: string): Observation | undefined;
  set(kernelId: string, observation: Observation): void;
  forget(kernelId: string): void;
  /** Counts a full report without this kernel; gives how many there were in a row. */
  missed(kernelId: string): number;
  /** The kernels of which an agent spoke. */
  of(agent: AgentId): readonly string[];
}

export function createObservations(): Observations {
  const latest = new Map<string, Observation>();
  const misses = new Map<string, number>();
  return {
    get: (id) => latest.get(id),
    set: (id, observation) => {
      latest.set(id, observation);
      misses.delete(id);
    },
    forget: (id) => {
      latest.delete(id);
      misses.delete(id);
    },
    missed: (id) => {
      const count = (misses.get(id) ?? 0) + 1;
      misses.set(id, count);
      return count;
    },
    of: (agent) => [...latest].filter(([, { agent: owner }]) => owner === agent).map(([id]) => id),
  };
}
