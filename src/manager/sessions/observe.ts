import type { Updateable } from "kysely";
import { isFinal } from "../../contract/states.ts";
import type { WallMs } from "../../kit/clock.ts";
import type { AgentId, KernelId } from "../../kit/ids.ts";
import { asId, isId } from "../../kit/ids.ts";
import type { KernelStatus } from "../../wire/generated/berth.ts";
import type { EventSink } from "../agents/ports.ts";
import type { KernelTable } from "../store/schema.ts";
import type { Tx } from "../store/store.ts";
import { phaseOf } from "./observed.ts";
import { findById, findKernel, type KernelRow, type SessionRecord, updateKernel } from "./repository.ts";
import { deriveEvent, type KernelPhase, nextState } from "./state-machine.ts";
import { moveSession } from "./transitions.ts";

/** What a status of an agent turned out to be about. */
export type Observed =
  /** A kernel of ours; `freed` when its room on the node became free by this. */
  | { readonly kind: "known"; readonly session: SessionRecord; readonly freed: boolean }
  /** A generation that ended before, or another agent's: to be stopped and forgotten there. */
  | { readonly kind: "stale" }
  /** Nothing that this manager ever knew. */
  | { readonly kind: "unknown" };

const clip = (text: string) => (text.length > 2000 ? `${text.slice(0, 2000)}…` : text);
const timeOf = (ms: number): WallMs | null => (ms > 0 ? ms : null);

/** The columns of a kernel that a status changes. What is known once is never taken back. */
function kernelPatch(
  kernel: KernelRow,
  status: KernelStatus,
  phase: KernelPhase,
  now: WallMs,
): Updateable<KernelTable> {
  const ended = phase === "exited" || phase === "gone" || phase === "failed";
  const ran = status.startedAtMs > 0 || kernel.started_at !== null;
  return {
    container_id: status.containerId === "" ? kernel.container_id : status.containerId,
    started_at: kernel.started_at ?? timeOf(status.startedAtMs),
    log_bytes: Math.max(kernel.log_bytes, status.logBytes),
    ...(ended && kernel.ended_at === null
      ? {
          // Set with every kind of end: by it the reconciler knows that the facts are complete.
          ended_at: timeOf(status.endedAtMs) ?? now,
          // A container that vanished or never ran has no exit code; 0 would claim success.
          exit_code:
            phase !== "failed" && ran && status.endedAtMs > 0 && !vanished(status) ? status.exitCode : null,
          oom_killed: status.oomKilled ? 1 : 0,
          timed_out: status.timedOut ? 1 : 0,
          end_reason: status.endReason === "" ? null : status.endReason,
        }
      : {}),
    ...(status.failure === undefined
      ? {}
      : { failure_code: status.failure.code, failure_message: clip(status.failure.message) }),
    ...(phase === "gone" ? { gone: 1 as const } : {}),
  };
}

function vanished(status: KernelStatus): boolean {
  return status.endReason === "container-removed";
}

/** The session follows its kernel through the phases before the end; the end itself is the reconciler's. */
async function follow(
  tx: Tx,
  events: EventSink,
  session: SessionRecord,
  phase: KernelPhase,
  status: KernelStatus,
  now: WallMs,
): Promise<void> {
  const event = deriveEvent([phase]);
  if (event === null || event === "end" || session.status === "TERMINATING") return;
  if (nextState(session.status, event) === null) return;
  const running = event === "run";
  await moveSession(tx, events, session, {
    event,
    reason: running ? "started" : event === "pull" ? "image-pull" : event,
    message: null,
    actor: session.agent_name === null ? "manager" : `agent:${session.agent_name}`,
    at: now,
    keepReason: false,
    ...(running ? { patch: { started_at: timeOf(status.startedAtMs) ?? now } } : {}),
  });
}

/**
 * Takes one status of an agent into the store. The same status again changes nothing, and a late one never
 * undoes what a later one said.
 */
export async function observe(
  tx: Tx,
  events: EventSink,
  agent: AgentId,
  status: KernelStatus,
  now: WallMs,
): Promise<Observed> {
  if (!isId(status.kernelId)) return { kind: "unknown" };
  const kernel = await findKernel(tx, asId<KernelId>(status.kernelId));
  if (kernel === undefined || status.generation > kernel.generation) return { kind: "unknown" };
  if (status.generation < kernel.generation) return { kind: "stale" };
  if (kernel.agent_id !== agent) return { kind: "unknown" };
  const session = await findById(tx, kernel.session_id);
  if (session === undefined) return { kind: "unknown" };
  const phase = phaseOf(status);
  const patch = kernelPatch(kernel, status, phase, now);
  await updateKernel(tx, kernel.id, kernel.generation, patch);
  if (!isFinal(session.status)) await follow(tx, events, session, phase, status, now);
  return { kind: "known", session, freed: phase === "gone" && kernel.gone === 0 };
}
