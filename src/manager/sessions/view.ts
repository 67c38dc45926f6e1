import type { HistoryEntry, Session, SessionDetail } from "../../contract/sessions.ts";
import type { WallMs } from "../../kit/clock.ts";
import type { UserId } from "../../kit/ids.ts";
import type { KernelUsage } from "../../wire/generated/berth.ts";
import { readCommand, readPorts, readSlots, readTextMap, readTexts } from "./columns.ts";
import type { PullState } from "./progress.ts";
import type { HistoryRow, KernelRow, SessionRecord } from "./repository.ts";

/** Why a waiting session waits, as the last plan found it. */
export type WaitView = { readonly position: number | null; readonly code: string; readonly sentence: string };

const iso = (at: WallMs) => new Date(at).toISOString();
const isoOr = (at: WallMs | null) => (at === null ? null : iso(at));

function commandOf(text: string | null): Session["command"] {
  if (text === null) return null;
  const command = readCommand(text);
  return typeof command === "string" ? command : [...command];
}

export function sessionView(row: SessionRecord, wait: WaitView | undefined): Session {
  const waiting = row.status === "PENDING" ? wait : undefined;
  return {
    id: row.id,
    name: row.name,
    type: row.type,
    status: row.status,
    statusReason: waiting?.code ?? row.status_reason,
    statusMessage: waiting?.sentence ?? row.status_message,
    queuePosition: waiting?.position ?? null,
    exitCode: row.exit_code,
    result: row.result,
    image: row.image_reference,
    group: row.group_name,
    agent: row.agent_name,
    owner: { id: row.owner_id, email: row.owner_email },
    slots: { ...readSlots(row.slots), shm: row.shm },
    priority: row.priority,
    tags: [...readTexts(row.tags)],
    command: commandOf(row.command),
    preopenPorts: [...readPorts(row.preopen_ports)],
    timeoutMs: row.timeout_ms,
    startsAt: isoOr(row.starts_at),
    createdAt: iso(row.created_at),
    startedAt: isoOr(row.started_at),
    endedAt: isoOr(row.ended_at),
  };
}

export type DetailFacts = {
  readonly kernels: readonly KernelRow[];
  readonly usage: (kernel: KernelRow) => { at: WallMs; usage: KernelUsage } | undefined;
  readonly pull: PullState | null;
  /** Who looks at it; null for local root. */
  readonly viewer: UserId | null;
};

function usageView(
  found: { at: WallMs; usage: KernelUsage } | undefined,
): SessionDetail["kernels"][number]["usage"] {
  if (found === undefined) return null;
  const { usage } = found;
  return {
    at: iso(found.at),
    cpu: usage.cpuMilli,
    mem: usage.memBytes,
    memLimit: usage.memLimitBytes,
    ioRead: usage.ioReadBytes,
    ioWrite: usage.ioWriteBytes,
    netRx: usage.netRxBytes,
    netTx: usage.netTxBytes,
    pids: usage.pids,
    scratchUsed: usage.scratchUsedBytes,
    scratchTotal: usage.scratchTotalBytes,
  };
}

export function detailView(
  row: SessionRecord,
  wait: WaitView | undefined,
  facts: DetailFacts,
): SessionDetail {
  const own = facts.viewer === row.owner_id;
  const environment = Object.entries(readTextMap(row.environment));
  return {
    ...sessionView(row, wait),
    kernels: facts.kernels.map((kernel) => ({
      id: kernel.id,
      role: kernel.role,
      index: kernel.idx,
      // One kernel is one session so far: the session's state is the exact one.
      status: row.status,
      agent: kernel.agent_id === null ? null : row.agent_name,
      containerId: kernel.container_id,
      exitCode: kernel.exit_code,
      slots: { ...readSlots(kernel.slots), shm: kernel.shm },
      usage: row.status === "RUNNING" ? usageView(facts.usage(kernel)) : null,
    })),
    environment: Object.fromEntries(environment.map(([name, value]) => [name, own ? value : null])),
    notices: [...readTexts(row.notices)],
    pull: row.status === "PULLING" ? facts.pull : null,
  };
}

export function historyView(row: HistoryRow): HistoryEntry {
  return {
    seq: row.seq,
    at: iso(row.at),
    from: row.from_status,
    to: row.to_status,
    reason: row.reason,
    message: row.message,
    actor: row.actor,
  };
}
