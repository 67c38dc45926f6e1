import type { EndFacts, SessionEnd } from "./end.ts";
import { describeEnd } from "./end.ts";
import type { Observation } from "./observed.ts";
import type { KernelRow, SessionRecord } from "./repository.ts";

/** Failures that are the node's fault: another node, or this one later, may well do it. */
const NODE_FAULTS: ReadonlySet<string> = new Set([
  "engine-unreachable",
  "engine-unavailable",
  "disk-full",
  "scratch-failed",
  "tool-stuck",
]);
/** How often a session is started anew elsewhere before it is given up. */
export const MAX_GENERATIONS = 3;

/** Whether a kernel never ran by a fault of its node, which the next one there would meet too. */
export function failedByNode(kernel: KernelRow): boolean {
  return kernel.started_at === null && kernel.failure_code !== null && NODE_FAULTS.has(kernel.failure_code);
}

/** Whether a kernel that failed may be tried again: it provably never ran, and the cause was its node. */
export function mayRetry(session: SessionRecord, kernel: KernelRow, seen: Observation | undefined): boolean {
  return (
    session.desired === "run" &&
    kernel.generation < MAX_GENERATIONS &&
    failedByNode(kernel) &&
    seen?.phase === "failed" &&
    seen.status.generation === kernel.generation
  );
}

/** Everything that is known of how a kernel ended, for the words about it. */
export function endFacts(
  session: SessionRecord,
  kernel: KernelRow,
  stopRequested: boolean,
  stopReason: string | null = session.stop_reason,
): EndFacts {
  return {
    type: session.type,
    ran: kernel.started_at !== null || session.started_at !== null,
    exitCode: kernel.exit_code,
    oom: kernel.oom_killed === 1,
    timedOut: kernel.timed_out === 1,
    stopReason,
    stopRequested,
    failure:
      kernel.failure_code === null
        ? null
        : { code: kernel.failure_code, message: kernel.failure_message ?? "" },
    endReason: kernel.end_reason,
    image: session.image_reference,
    node: session.agent_name,
    memBytes: session.mem,
    timeoutMs: session.timeout_ms,
    scratchBytes: null,
  };
}

/** How a session ends that is given up before its kernel was seen to end. */
export function endUnseen(session: SessionRecord, kernel: KernelRow, reason: string): SessionEnd {
  // What was not seen to end must not count as ended by itself.
  const facts = endFacts(session, { ...kernel, exit_code: null, failure_code: null }, true, reason);
  return describeEnd({ ...facts, oom: false, timedOut: false, endReason: null });
}
