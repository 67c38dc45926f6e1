import type { SessionStatus } from "../../contract/states.ts";
import type { WallMs } from "../../kit/clock.ts";
import type { EventSink } from "../agents/ports.ts";
import type { Tx } from "../store/store.ts";
import type { SessionEnd } from "./end.ts";
import { type KernelRow, type SessionRecord, updateKernel } from "./repository.ts";
import { nextState, type SessionEvent } from "./state-machine.ts";
import { moveSession } from "./transitions.ts";

const EVENTS = { TERMINATED: "ended", ERROR: "failed", CANCELLED: "cancelled" } as const satisfies Record<
  SessionEnd["status"],
  SessionEvent
>;
const BEFORE_RUNNING: readonly SessionStatus[] = ["SCHEDULED", "PREPARING", "PULLING", "CREATING"];

export type FinishOptions = {
  readonly end: SessionEnd;
  readonly actor: string;
  readonly now: WallMs;
  /** A remark that follows the sentence, such as that the output is missing. */
  readonly note?: string | undefined;
};

/**
 * Gives a session its final status, once. A kernel that ran and ended between two reports passes RUNNING
 * first, so that the history tells that it ran. Null when it has ended already.
 */
export async function finishSession(
  tx: Tx,
  events: EventSink,
  session: SessionRecord,
  kernel: KernelRow,
  options: FinishOptions,
): Promise<SessionRecord | null> {
  const { end, actor, now, note } = options;
  let row: SessionRecord = session;
  if (kernel.started_at !== null && BEFORE_RUNNING.includes(row.status)) {
    const running = await moveSession(tx, events, row, {
      event: "run",
      reason: "started",
      message: null,
      actor,
      at: now,
      keepReason: false,
      patch: { started_at: kernel.started_at },
    });
    row = running ?? row;
  }
  // What was seen running cannot be CANCELLED, whatever is known of its kernel.
  const event = nextState(row.status, EVENTS[end.status]) === null ? "ended" : EVENTS[end.status];
  const ended = await moveSession(tx, events, row, {
    event,
    reason: end.statusReason,
    message: note === undefined ? end.sentence : `${end.sentence} ${note}`,
    actor,
    at: now,
    patch: {
      exit_code: end.exitCode,
      result: end.result,
      ended_at: Math.max(kernel.ended_at ?? now, row.created_at),
    },
  });
  if (ended === null) return null;
  await updateKernel(tx, kernel.id, kernel.generation, {
    status: ended.status,
    exit_code: kernel.exit_code ?? end.exitCode,
    ended_at: kernel.ended_at ?? now,
    // Without a node there is nothing to be seen gone.
    ...(kernel.agent_id === null ? { gone: 1 as const } : {}),
  });
  return ended;
}
