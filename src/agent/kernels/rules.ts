import {
  KernelPhase,
  type KernelSpec,
  type KernelStatus,
  type PullProgress,
} from "../../wire/generated/berth.ts";
import type { ContainerState, ContainerView, KernelRef } from "../engine/engine.ts";
import type { KernelRecord } from "./record.ts";

/** What the agent knows of one kernel when it decides what to do next. */
export type KernelFacts = {
  readonly record: KernelRecord | undefined;
  /** Held in memory from the manager's word until the container was started. */
  readonly spec: KernelSpec | undefined;
  /** The container as the engine showed it last, `undefined` for none, "unknown" when that may be out of date. */
  readonly observed: ContainerView | undefined | "unknown";
  /** The manager has everything it needs: remove all. */
  readonly forget: boolean;
  /** Whether the time that the main process may run is over. */
  readonly overdue: boolean;
};

export type Step =
  /** Nothing is left to do until something changes. */
  | "rest"
  /** Nobody speaks of this kernel and nothing of it exists. */
  | "drop"
  /** Ask the engine. */
  | "observe"
  /** Pull when needed, make scratch, network and container. */
  | "create"
  /** Start the container for the first time. */
  | "start"
  /** It runs: take its output, wait for its end, mind its time. */
  | "watch"
  /** End the running container, as the manager asked or for a cause that the record names. */
  | "stop"
  /** End the running container because its time is over. */
  | "time-out"
  /** Remove a container that never ran. */
  | "discard"
  /** It ended: complete the log and write down how it ended. */
  | "settle"
  /** It was started and its container is not there any more: write that down and clean up. */
  | "vanished"
  /** Remove everything of it, this record included. */
  | "remove";

/** What to do next for a kernel. A kernel that was started once, or stopped, is never created or started again. */
export function nextStep({ record, spec, observed, forget, overdue }: KernelFacts): Step {
  if (observed === "unknown") return "observe";
  if (forget) return "remove";
  // Without a record it is not ours to touch: it is reported and the manager decides.
  if (record === undefined) return observed === undefined ? "drop" : "rest";
  if (record.end !== null) return "rest";
  if (record.failure !== null) return observed?.state.kind === "created" ? "discard" : "rest";
  if (observed === undefined) {
    if (record.startIntent) return "vanished";
    return record.stop === null && spec !== undefined ? "create" : "rest";
  }
  const state = observed.state.kind;
  if (state === "exited") return "settle";
  if (record.stop !== null) return state === "created" ? "discard" : "stop";
  if (state === "created") return "start";
  if (record.endCause !== "") return "stop";
  return overdue ? "time-out" : "watch";
}

/** Whether the manager's wish to have a kernel is new, known already, or comes after its end. */
export function judgeEnsure(record: KernelRecord | undefined): "new" | "known" | "over" {
  if (record === undefined) return "new";
  return record.stop !== null || record.failure !== null || record.end !== null ? "over" : "known";
}

/** A stop as it counts together with one asked for before: the harsher of the two. */
export function mergeStop(before: KernelRecord["stop"], asked: { graceMs: number; force: boolean }) {
  const graceMs = asked.force ? 0 : asked.graceMs;
  if (before === null) return { graceMs, force: asked.force };
  return { graceMs: Math.min(before.graceMs, graceMs), force: before.force || asked.force };
}

export type Exited = Extract<ContainerState, { readonly kind: "exited" }>;

/** A time in which the engine did not answer; `untilMs` is undefined while it lasts. */
export type Outage = { readonly fromMs: number; readonly untilMs: number | undefined };

/** The engine stops its containers just before or after it stops answering, and notes their end when it is back. */
const OUTAGE_MARGIN_MS = 5000;
/** What the engine writes when it found a container dead and cannot know how it ended. */
const UNKNOWN_EXIT = 255;

/** Why a container ended, where it was not the doing of its main process or of a stop. */
export function endReason(facts: {
  readonly record: KernelRecord;
  readonly exited: Exited;
  readonly outages: readonly Outage[];
  readonly liveRestore: boolean;
  readonly bootId: string;
}): string {
  const { record, exited, outages, liveRestore, bootId } = facts;
  if (record.endCause !== "") return record.endCause;
  if (record.stop !== null || record.timedOut || exited.oomKilled) return "";
  const killed = [UNKNOWN_EXIT, 137, 143].includes(exited.exitCode);
  if (record.bootId !== "" && record.bootId !== bootId && killed) return "node-restarted";
  const during = outages.some(
    ({ fromMs, untilMs }) =>
      exited.endedAt >= fromMs - OUTAGE_MARGIN_MS &&
      exited.endedAt <= (untilMs ?? Number.POSITIVE_INFINITY) + OUTAGE_MARGIN_MS,
  );
  // With live-restore only an end that the engine itself could not see is its doing.
  if (during && (liveRestore ? exited.exitCode === UNKNOWN_EXIT : killed || exited.exitCode === 0)) {
    return "engine-restarted";
  }
  return "";
}

export type Activity = "idle" | "pulling" | "creating";

export type StatusFacts = {
  readonly ref: KernelRef;
  readonly record: KernelRecord | undefined;
  readonly observed: KernelFacts["observed"];
  readonly activity: Activity;
  readonly pull: PullProgress | undefined;
  readonly logBytes: number;
};

function phaseOf({ record, observed, activity }: StatusFacts): KernelPhase {
  const view = observed === "unknown" ? undefined : observed;
  if (record === undefined) {
    if (view === undefined) return KernelPhase.GONE;
    if (view.state.kind === "exited") return KernelPhase.EXITED;
    return view.state.kind === "running" ? KernelPhase.RUNNING : KernelPhase.CREATING;
  }
  if (record.failure !== null && record.end === null) return KernelPhase.FAILED;
  if (record.end !== null) return observed === undefined ? KernelPhase.GONE : KernelPhase.EXITED;
  // An end that is not settled yet is told when its log is complete.
  if (record.startIntent && view?.state.kind !== "created") return KernelPhase.RUNNING;
  if (record.stop !== null) {
    // What is being undone is not gone yet.
    return observed === undefined && activity === "idle" ? KernelPhase.GONE : KernelPhase.CREATING;
  }
  if (activity === "pulling") return KernelPhase.PULLING;
  return activity === "creating" || view !== undefined ? KernelPhase.CREATING : KernelPhase.PREPARING;
}

/** What the manager is told of a kernel. */
export function statusOf(facts: StatusFacts): KernelStatus {
  const { ref, record, observed, pull, logBytes } = facts;
  const view = observed === "unknown" ? undefined : observed;
  const state = view?.state;
  const end =
    record?.end ?? (record === undefined && state?.kind === "exited" ? endOfUnknown(state) : undefined);
  const phase = phaseOf(facts);
  return {
    kernelId: ref.kernelId,
    sessionId: ref.sessionId,
    generation: ref.generation,
    phase,
    containerId: view?.containerId ?? record?.containerId ?? "",
    startedAtMs: end?.startedAtMs ?? (state?.kind === "running" ? state.startedAt : 0),
    endedAtMs: end?.endedAtMs ?? 0,
    exitCode: end?.exitCode ?? 0,
    oomKilled: end?.oomKilled ?? false,
    timedOut: record?.timedOut ?? false,
    failure: record?.failure ?? undefined,
    logBytes: record?.end?.logBytes ?? logBytes,
    stopRequested: record?.stop != null,
    epoch: record?.epoch ?? view?.epoch ?? 0,
    endReason: end?.reason ?? "",
    pull: phase === KernelPhase.PULLING ? pull : undefined,
    scratchPresent: observed !== undefined,
  };
}

function endOfUnknown(state: Exited) {
  const { startedAt, endedAt, exitCode, oomKilled } = state;
  return { startedAtMs: startedAt, endedAtMs: endedAt, exitCode, oomKilled, reason: "" };
}
