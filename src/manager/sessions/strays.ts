import type { Clock, MonoMs, WallMs } from "../../kit/clock.ts";
import type { AgentId } from "../../kit/ids.ts";
import type { Logger } from "../../kit/log.ts";
import { KernelPhase, type KernelStatus } from "../../wire/generated/berth.ts";
import type { AgentPort } from "../agents/ports.ts";

/** A container of our cluster that no session of this store stands for; only an admin may remove it. */
export type Unclaimed = {
  readonly agent: AgentId;
  readonly kernelId: string;
  readonly sessionId: string;
  readonly generation: number;
  readonly epoch: number;
  readonly since: WallMs;
};

export interface Strays {
  /** Something of a kernel that should not be there: `stale` was known once, `unknown` never. */
  note(agent: AgentId, status: KernelStatus, kind: "stale" | "unknown"): void;
  clear(agent: AgentId, status: KernelStatus): void;
  /** Forgets what a full report of the agent does not have any more. */
  keep(agent: AgentId, present: ReadonlySet<string>): void;
  unclaimed(): readonly Unclaimed[];
}

/** How long something that is not ours to have may stay before it is removed. */
const GRACE_MS = 60_000;

/**
 * What agents have and should not. Generations that the store knew are removed after a grace; what it never
 * knew is left alone and listed, because it may belong to a later state of a restored store.
 */
export function createStrays(deps: {
  readonly clock: Clock;
  readonly log: Logger;
  readonly agents: AgentPort;
}): Strays {
  const { clock, log, agents } = deps;
  const unclaimed = new Map<string, Unclaimed>();
  const stale = new Map<string, MonoMs>();
  const answered = new Map<string, MonoMs>();
  const keyOf = (agent: AgentId, status: { kernelId: string; generation: number }) =>
    `${agent}/${status.kernelId}/${status.generation}`;

  async function remove(agent: AgentId, status: KernelStatus, runs: boolean): Promise<void> {
    const { kernelId, generation, sessionId } = status;
    const stop = { kernelId, generation, sessionId, graceMs: 0, force: true };
    // A stop of what has ended would only leave a tombstone, and be told as another end.
    if (runs) await agents.send(agent, { $case: "stopKernel", value: stop });
    await agents.send(agent, { $case: "forgetKernel", value: { kernelId, generation } });
  }

  function noteStale(agent: AgentId, status: KernelStatus): void {
    const key = keyOf(agent, status);
    const since = stale.get(key) ?? clock.mono();
    stale.set(key, since);
    const runs = status.phase !== KernelPhase.FAILED && status.phase !== KernelPhase.GONE;
    if (runs && clock.mono() - since < GRACE_MS) return;
    stale.delete(key);
    // An agent answers each word about a kernel with its status: to answer that at once would never end.
    const last = answered.get(key);
    if (last !== undefined && clock.mono() - last < GRACE_MS) return;
    answered.set(key, clock.mono());
    remove(agent, status, runs).catch((err: unknown) =>
      log.warn({ err, agent }, "a stray kernel stays for now"),
    );
  }

  return {
    note: (agent, status, kind) => {
      if (kind === "stale") return noteStale(agent, status);
      const key = keyOf(agent, status);
      if (unclaimed.has(key)) return;
      const { kernelId, sessionId, generation, epoch } = status;
      unclaimed.set(key, { agent, kernelId, sessionId, generation, epoch, since: clock.wall() });
      log.warn(
        { agent, kernelId, generation, epoch },
        "an agent has a container that nobody here knows; left alone",
      );
    },
    clear: (agent, status) => {
      unclaimed.delete(keyOf(agent, status));
      stale.delete(keyOf(agent, status));
      answered.delete(keyOf(agent, status));
    },
    keep: (agent, present) => {
      for (const map of [unclaimed, stale, answered]) {
        for (const key of [...map.keys()]) {
          const [owner, kernel = ""] = key.split("/");
          if (owner === agent && !present.has(kernel)) map.delete(key);
        }
      }
    },
    unclaimed: () => [...unclaimed.values()],
  };
}
