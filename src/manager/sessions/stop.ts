import type { SessionStatus } from "../../contract/states.ts";
import { isFinal } from "../../contract/states.ts";
import type { WallMs } from "../../kit/clock.ts";
import { BerthError } from "../../kit/errors.ts";
import type { AgentId } from "../../kit/ids.ts";
import type { EventSink } from "../agents/ports.ts";
import type { Tx } from "../store/store.ts";
import { endUnseen } from "./facts.ts";
import { finishSession } from "./finish.ts";
import {
  type KernelRow,
  kernelsOf,
  kernelsOnAgent,
  liveOnAgent,
  releaseAgent,
  type SessionRecord,
  updateKernel,
} from "./repository.ts";
import { moveSession } from "./transitions.ts";

export type StopRequest = {
  /** `user-requested`, `admin-requested`, … */
  readonly reason: string;
  readonly actor: string;
  readonly now: WallMs;
};

/** What did not leave the queue ends at once: nothing of it is anywhere. */
async function cancel(
  tx: Tx,
  events: EventSink,
  session: SessionRecord,
  stop: StopRequest,
): Promise<SessionRecord> {
  const [kernel] = await kernelsOf(tx, session.id);
  if (kernel === undefined) return session;
  const end = endUnseen(session, kernel, stop.reason);
  const row = { ...session, desired: "stop" as const, stop_reason: stop.reason };
  const ended = await finishSession(tx, events, row, kernel, { end, actor: stop.actor, now: stop.now });
  await updateKernel(tx, kernel.id, kernel.generation, { gone: 1 });
  return ended ?? session;
}

const WAITING: readonly SessionStatus[] = ["PENDING", "PAUSED"];

/** Asks for the end of a session. A second time changes nothing. */
export async function stopSession(
  tx: Tx,
  events: EventSink,
  session: SessionRecord,
  stop: StopRequest,
): Promise<SessionRecord> {
  if (isFinal(session.status) || session.status === "TERMINATING") return session;
  if (WAITING.includes(session.status)) return cancel(tx, events, session, stop);
  const moved = await moveSession(tx, events, session, {
    event: "stop",
    reason: stop.reason,
    message: null,
    actor: stop.actor,
    at: stop.now,
    keepReason: false,
    patch: {
      desired: "stop",
      stop_reason: stop.reason,
      stop_actor: stop.actor,
      // A lost node stays the more important news: it is why the session does not end.
      ...(session.status_reason === "agent-lost"
        ? { status_reason: session.status_reason, status_message: session.status_message }
        : {}),
    },
  });
  return moved ?? session;
}

/**
 * Ends a session at once, whatever its node says or does not say. Its kernel goes on occupying the node until
 * its container is seen gone.
 */
export async function forceSession(
  tx: Tx,
  events: EventSink,
  session: SessionRecord,
  stop: StopRequest,
): Promise<SessionRecord> {
  if (isFinal(session.status)) return session;
  if (WAITING.includes(session.status)) return cancel(tx, events, session, stop);
  const [kernel] = await kernelsOf(tx, session.id);
  if (kernel === undefined) return session;
  const row: SessionRecord = {
    ...session,
    desired: "force",
    stop_reason: stop.reason,
    stop_actor: stop.actor,
  };
  await tx
    .updateTable("sessions")
    .set({ desired: "force", stop_reason: stop.reason, stop_actor: stop.actor })
    .where("id", "=", session.id)
    .execute();
  const end = endUnseen(row, kernel, stop.reason);
  const ended = await finishSession(tx, events, row, kernel, { end, actor: stop.actor, now: stop.now });
  return ended ?? session;
}

/**
 * Ends what lives on an agent that is removed, and counts its containers as gone. Gives the kernels of which it
 * may still have something. Throws `in-use` when sessions live there and `force` is not set.
 */
export async function evictAgent(
  tx: Tx,
  events: EventSink,
  agent: { readonly id: AgentId; readonly name: string },
  options: { readonly force: boolean; readonly actor: string; readonly now: WallMs },
): Promise<readonly KernelRow[]> {
  const live = await liveOnAgent(tx, agent.id);
  if (live.length > 0 && !options.force) {
    const [first] = live;
    const what = `${live.length} session(s) live on the node ${agent.name}, such as ${first?.name ?? ""}`;
    throw new BerthError("in-use", `${what}. End them first, or remove the node with force.`, {
      details: { sessions: live.length },
    });
  }
  for (const session of live) {
    const stop = { reason: "agent-removed", actor: options.actor, now: options.now };
    await forceSession(tx, events, session, stop);
  }
  const left = await kernelsOnAgent(tx, agent.id);
  await releaseAgent(tx, agent.id);
  return left;
}
