import type { Cancel, MonoMs } from "../../kit/clock.ts";
import type { KernelSpec, KernelStatus, PullProgress } from "../../wire/generated/berth.ts";
import type { ContainerView, KernelRef } from "../engine/engine.ts";
import type { Capture } from "./capture.ts";
import type { KernelKey, KernelRecord } from "./record.ts";
import type { Activity, KernelFacts } from "./rules.ts";

/** What goes on beside the worker while a container runs. */
export type Watch = {
  readonly containerId: string;
  readonly capture: Capture;
  readonly abort: AbortController;
  waiting: boolean;
  exitCode: number | undefined;
};

/** All that the agent holds in memory of one kernel's life. */
export type Entry = {
  readonly key: KernelKey;
  readonly ref: KernelRef;
  record: KernelRecord | undefined;
  spec: KernelSpec | undefined;
  /** The container as last seen. */
  view: ContainerView | undefined;
  /** Whether nothing has hinted since that it may have changed. */
  fresh: boolean;
  /** Grows with each such hint, so that an answer asked for before is not believed. */
  hints: number;
  forget: boolean;
  /** Removed by the agent's own will, before it ever ran: it may be made anew. */
  undo: boolean;
  /** The manager's word that came meanwhile. */
  afterUndo: (() => void) | undefined;
  activity: Activity;
  pull: PullProgress | undefined;
  /** Aborts a pull or create under way. */
  interrupt: AbortController;
  /** The grace of a stop under way, in ms. */
  stopping: number | undefined;
  watch: Watch | undefined;
  /** When the main process's time is over. */
  deadline: MonoMs | undefined;
  timer: Cancel | undefined;
  startedAtMs: number;
  logBytes: () => number;
  published: KernelStatus | undefined;
};

export function createEntry(key: KernelKey, ref: KernelRef): Entry {
  return {
    key,
    ref: { kernelId: ref.kernelId, sessionId: ref.sessionId, generation: ref.generation },
    record: undefined,
    spec: undefined,
    view: undefined,
    fresh: false,
    hints: 0,
    forget: false,
    undo: false,
    afterUndo: undefined,
    activity: "idle",
    pull: undefined,
    interrupt: new AbortController(),
    stopping: undefined,
    watch: undefined,
    deadline: undefined,
    timer: undefined,
    startedAtMs: 0,
    logBytes: () => 0,
    published: undefined,
  };
}

/** What is known of the container for telling others: what was seen last counts until it is seen otherwise. */
export function lastSeen(entry: Entry): KernelFacts["observed"] {
  return entry.fresh || entry.view !== undefined ? entry.view : "unknown";
}

/** Notes that the container may have changed. */
export function invalidate(entry: Entry): void {
  entry.fresh = false;
  entry.hints += 1;
}

/** Takes what an action of ours has just shown. */
export function see(entry: Entry, view: ContainerView | undefined): void {
  entry.view = view;
  entry.fresh = true;
}

/** Stops what goes on beside the worker. */
export function endWatch(entry: Entry): void {
  entry.watch?.abort.abort();
  entry.watch?.capture.stop();
  entry.watch = undefined;
  entry.timer?.();
  entry.timer = undefined;
  entry.deadline = undefined;
}
