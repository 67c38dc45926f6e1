import type { Updateable } from "kysely";
import { isFinal, type SessionStatus } from "../../contract/states.ts";
import type { WallMs } from "../../kit/clock.ts";
import type { EventSink } from "../agents/ports.ts";
import type { SessionTable } from "../store/schema.ts";
import type { Tx } from "../store/store.ts";
import { addHistory, type SessionRecord, type SessionRow, updateSession } from "./repository.ts";
import { nextState, type SessionEvent } from "./state-machine.ts";

/** Who makes a transition, as the history shows it: an e-mail, `scheduler`, `manager`, or `agent:<name>`. */
export type ActorName = string;

export type Move = {
  readonly event: SessionEvent;
  /** Stable code; becomes the status reason. */
  readonly reason: string;
  readonly message: string | null;
  readonly actor: ActorName;
  readonly at: WallMs;
  /** Further columns that change with it. */
  readonly patch?: Updateable<SessionTable>;
  /** False: the reason is told in the history and the session's own stays empty (`started`, `placed`). */
  readonly keepReason?: boolean;
};

/** What the event stream tells of a session's new status. */
export function statusEvent(
  row: SessionRow,
  from: SessionStatus | null,
  move: Omit<Move, "event" | "patch">,
) {
  return {
    kind: from === null ? ("session.created" as const) : ("session.status" as const),
    subject: row.id,
    ownerId: row.owner_id,
    data: {
      name: row.name,
      type: row.type,
      status: row.status,
      from,
      reason: move.reason,
      message: move.message,
      exitCode: row.exit_code,
      result: row.result,
    },
  };
}

/**
 * Moves a session by the table of states: the row, one entry of its history and one event, together.
 * Gives the row as it is then, or null when its status has changed meanwhile or does not allow the move.
 */
export async function moveSession<Row extends SessionRow | SessionRecord>(
  tx: Tx,
  events: EventSink,
  row: Row,
  move: Move,
): Promise<Row | null> {
  const to = nextState(row.status, move.event);
  if (to === null) return null;
  const keep = move.keepReason ?? isFinal(to);
  const patch: Updateable<SessionTable> = {
    status: to,
    status_since: move.at,
    status_reason: keep ? move.reason : null,
    status_message: keep ? move.message : null,
    ...(isFinal(to) ? { ended_at: move.at } : {}),
    ...move.patch,
  };
  if (!(await updateSession(tx, row.id, [row.status], patch))) return null;
  const next = { ...row, ...patch };
  await addHistory(tx, {
    session_id: row.id,
    at: move.at,
    from_status: row.status,
    to_status: to,
    reason: move.reason,
    message: move.message,
    actor: move.actor,
  });
  await events.append(tx, statusEvent(next, row.status, move));
  return next;
}
