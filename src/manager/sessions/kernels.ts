import type { Clock } from "../../kit/clock.ts";
import { type AgentId, asId, isId, type KernelId } from "../../kit/ids.ts";
import type { Logger } from "../../kit/log.ts";
import type { KernelStatus } from "../../wire/generated/berth.ts";
import type { AgentPort, EventSink, KernelSink } from "../agents/ports.ts";
import type { Store } from "../store/store.ts";
import { agentLostWords } from "./end.ts";
import { observe } from "./observe.ts";
import { type Observations, phaseOf, sameFacts } from "./observed.ts";
import type { Progress } from "./progress.ts";
import type { Reconciler } from "./reconciler.ts";
import {
  findKernel,
  type KernelRow,
  kernelsOnAgent,
  liveOnAgent,
  updateKernel,
  updateSession,
} from "./repository.ts";
import type { Strays } from "./strays.ts";
import { statusEvent } from "./transitions.ts";

export type KernelSinkDeps = {
  readonly store: Store;
  readonly clock: Clock;
  readonly log: Logger;
  readonly events: EventSink;
  readonly agents: AgentPort;
  readonly observed: Observations;
  readonly reconciler: Reconciler;
  readonly progress: Progress;
  readonly strays: Strays;
  readonly wakeScheduler: () => void;
};

/** Full reports without a kernel that ran, after which it is believed to be gone: one may have been under way. */
const MISSES_TO_BELIEVE = 2;

/** Takes what the agents tell of kernels into the store, and has the reconciler act on it. */
export function createKernelSink(deps: KernelSinkDeps): KernelSink {
  const { store, clock, events, agents, observed, reconciler, progress, strays, wakeScheduler } = deps;

  async function take(agent: AgentId, status: KernelStatus): Promise<void> {
    const before = observed.get(status.kernelId);
    const phase = phaseOf(status);
    if (before?.agent === agent && sameFacts(before.status, status)) {
      observed.set(status.kernelId, { agent, status, phase });
      progress.note(before.status, status);
      return;
    }
    const seen = await store.write((tx) => observe(tx, events, agent, status, clock.wall()));
    if (seen.kind === "known") {
      strays.clear(agent, status);
      observed.set(status.kernelId, { agent, status, phase });
      progress.note(undefined, status);
      reconciler.add(seen.session.id);
      if (seen.freed) wakeScheduler();
      return;
    }
    strays.note(agent, status, seen.kind);
  }

  /** A kernel that should be there and is not in a full report. */
  async function missing(agent: AgentId, kernel: KernelRow): Promise<void> {
    const seen = observed.get(kernel.id);
    if (kernel.started_at === null) {
      // It never ran there: what the node has forgotten is asked for (or stopped) again.
      observed.forget(kernel.id);
      reconciler.add(kernel.session_id);
      return;
    }
    const settled = kernel.log_stored === 1 && kernel.ended_at !== null;
    if (!settled && observed.missed(kernel.id) < MISSES_TO_BELIEVE) {
      await agents.send(agent, { $case: "requestReport", value: {} });
      return;
    }
    await store.write((tx) =>
      updateKernel(tx, kernel.id, kernel.generation, {
        gone: 1,
        ...(kernel.ended_at === null ? { ended_at: clock.wall(), end_reason: "container-removed" } : {}),
      }),
    );
    if (seen !== undefined) observed.forget(kernel.id);
    reconciler.add(kernel.session_id);
    wakeScheduler();
  }

  async function report(agent: AgentId, kernels: readonly KernelStatus[], complete: boolean): Promise<void> {
    for (const status of kernels) await take(agent, status);
    if (!complete) return;
    const present = new Set(kernels.map((status) => status.kernelId));
    const expected = await store.read((db) => kernelsOnAgent(db, agent));
    for (const kernel of expected) if (!present.has(kernel.id)) await missing(agent, kernel);
    for (const id of observed.of(agent))
      if (!present.has(id) && !expected.some((k) => k.id === id)) observed.forget(id);
    strays.keep(agent, present);
  }

  /** Sets or clears that a session's node is away; its status stays as it is. */
  async function markLost(agent: AgentId, lost: boolean): Promise<void> {
    await store.write(async (tx) => {
      for (const session of await liveOnAgent(tx, agent)) {
        if ((session.status_reason === "agent-lost") === lost) continue;
        const words = agentLostWords(session.agent_name ?? "");
        const reason = lost ? words.statusReason : null;
        const message = lost ? words.sentence : null;
        const patch = { status_reason: reason, status_message: message };
        if (!(await updateSession(tx, session.id, [session.status], patch))) continue;
        const row = { ...session, ...patch };
        const told = { reason: reason ?? "agent-back", message, actor: "manager", at: clock.wall() };
        await events.append(tx, { ...statusEvent(row, session.status, told), kind: "session.updated" });
      }
    });
  }

  /** A node that refuses even to begin has nothing of the kernel: the session ends with the node's own words. */
  async function refusedStart(
    agent: AgentId,
    kernelId: string,
    generation: number,
    failure: { readonly code: string; readonly message: string },
  ): Promise<void> {
    if (!isId(kernelId) || observed.get(kernelId) !== undefined) return;
    const session = await store.write(async (tx) => {
      const kernel = await findKernel(tx, asId<KernelId>(kernelId));
      if (kernel?.agent_id !== agent || kernel.started_at !== null || kernel.ended_at !== null)
        return undefined;
      const patch = { failure_code: failure.code, failure_message: failure.message, ended_at: clock.wall() };
      const refused = await updateKernel(tx, kernel.id, generation, { ...patch, gone: 1 });
      return refused ? kernel.session_id : undefined;
    });
    if (session === undefined) return;
    reconciler.add(session);
    wakeScheduler();
  }

  return {
    report,
    status: take,
    commandFailed: (agent, kernelId, generation, code, message) => {
      deps.log.warn({ agent, kernelId, generation, code, message }, "an agent could not carry out a command");
      return refusedStart(agent, kernelId, generation, { code, message });
    },
    ready: async (agent) => {
      await markLost(agent, false);
      await reconciler.addUnsettled(agent);
      wakeScheduler();
    },
    lost: async (agent) => {
      await markLost(agent, true);
      await reconciler.addUnsettled(agent);
    },
  };
}
