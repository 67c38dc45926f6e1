import type { Clock } from "../../kit/clock.ts";
import { BerthError, isBerthError, messageOf } from "../../kit/errors.ts";
import type { Logger } from "../../kit/log.ts";
import type { Semaphore } from "../../kit/semaphore.ts";
import type { Engine } from "../engine/engine.ts";
import { failureOf, type Images, throttled } from "../images/images.ts";
import type { KernelLog } from "../logs/kernel-log.ts";
import { GAP_NOTE } from "../logs/resume.ts";
import type { LogStore } from "../logs/store.ts";
import { fillFromEngine, type Progress } from "./capture.ts";
import type { EngineWatch } from "./engine-watch.ts";
import { type Entry, endWatch, invalidate, see } from "./entry.ts";
import type { KernelEnd, KernelRecord } from "./record.ts";
import { type Activity, type Exited, endReason, type Step } from "./rules.ts";
import { whileMoving } from "./timing.ts";
import type { Watcher } from "./watcher.ts";

export type ActionDeps = {
  readonly engine: Engine;
  readonly engineWatch: EngineWatch;
  readonly images: Images;
  readonly logs: LogStore;
  readonly watcher: Watcher;
  readonly creating: Semaphore;
  readonly clock: Clock;
  readonly log: Logger;
  readonly bootId: string;
  /** Changes the record on disk and in memory, and tells the manager. */
  readonly update: (entry: Entry, change: Partial<KernelRecord>) => void;
  readonly publish: (entry: Entry) => void;
  /** Takes the entry out for good. */
  readonly removed: (entry: Entry) => void;
};

/** `closing`: the agent stops. `cut`: that, or the kernel is not wanted any more. */
export type Signals = { readonly closing: AbortSignal; readonly cut: AbortSignal };

/** Steps that do something. They throw to be tried again later; refusals for a person end up in the record. */
export type Actions = Readonly<
  Record<Exclude<Step, "rest" | "drop" | "watch">, (entry: Entry, signals: Signals) => Promise<void>>
>;

/** Between SIGTERM and SIGKILL where nobody said otherwise, in ms. */
const DEFAULT_GRACE_MS = 10_000;
/** How long the rest of the output may stand still after the end before it is given up, in ms. */
const OUTPUT_STALL_MS = 10_000;
const PULL_STATUS_MS = 500;
/** Between the kill and the removal of `docker rm --force`, in ms, with room for a busy engine. */
const REMOVAL_MS = 1000;
const NOT_FOUND = 127;
const NOT_EXECUTABLE = 126;
const KILLED = 137;

function unreachable(err: unknown): boolean {
  return isBerthError(err) && err.code === "engine-unreachable";
}

export function createActions(deps: ActionDeps): Actions {
  const { engine, engineWatch, images, logs, watcher, creating, clock, log, bootId } = deps;
  const { update, publish, removed } = deps;

  const openLog = (entry: Entry): Promise<KernelLog> => watcher.openLog(entry);

  function doing(entry: Entry, activity: Activity): void {
    entry.activity = activity;
    if (activity !== "pulling") entry.pull = undefined;
    publish(entry);
  }

  /** Ends the log of a kernel that will never run, if somebody has opened one to wait for its output. */
  async function endLog(entry: Entry): Promise<void> {
    await (await logs.find(entry.key))?.finish();
  }

  async function observe(entry: Entry): Promise<void> {
    const hints = entry.hints;
    const view = await engine.inspectKernel(entry.ref);
    entry.view = view;
    if (entry.hints === hints) entry.fresh = true;
    if (view?.state.kind === "running") entry.startedAtMs = view.state.startedAt;
    const { record } = entry;
    if (view === undefined && record !== undefined && record.stop !== null && !record.startIntent) {
      await endLog(entry);
    }
    publish(entry);
  }

  /** Makes the container; false when its image is not on this node. */
  async function tryCreate(entry: Entry, signal: AbortSignal): Promise<boolean> {
    const { spec } = entry;
    if (spec === undefined) return true;
    try {
      await creating.run(async () => {
        doing(entry, "creating");
        const view = await engine.createKernel(spec, () => {}, signal);
        see(entry, view);
        update(entry, { containerId: view.containerId });
      }, signal);
      return true;
    } catch (err) {
      if (isBerthError(err) && err.code === "image-missing" && !spec.imageIsHost) return false;
      throw err;
    }
  }

  async function pull(entry: Entry, reference: string, signal: AbortSignal): Promise<void> {
    entry.pull = {
      pullId: "",
      reference,
      doneBytes: 0,
      totalBytes: 0,
      phase: "",
      finished: false,
    };
    doing(entry, "pulling");
    const told = throttled(clock, PULL_STATUS_MS, () => publish(entry));
    const onUpdate = (progress: { phase: string; doneBytes: number; totalBytes: number }) => {
      entry.pull = { pullId: "", reference, finished: false, ...progress };
      told.tell(undefined);
    };
    await images.fetch(reference, onUpdate, signal).finally(told.stop);
  }

  async function create(entry: Entry, { cut: signal }: Signals): Promise<void> {
    const { spec } = entry;
    if (spec === undefined) return;
    try {
      // Looked for before anything is said to be made: a pull may take far longer than a create is given.
      const missing = !spec.imageIsHost && !(await engine.hasImage(spec.image));
      if (missing) await pull(entry, spec.image, signal);
      if (await tryCreate(entry, signal)) return;
      // Removed since it was looked for.
      await pull(entry, spec.image, signal);
      if (await tryCreate(entry, signal)) return;
      throw new BerthError("image-missing", `The image ${spec.image} was pulled and is gone again.`);
    } catch (err) {
      invalidate(entry);
      // A stop, a forget or the agent's own end: the next decision deals with what was made.
      if (signal.aborted) return;
      if (unreachable(err)) throw err;
      log.warn({ err, kernel: entry.key }, "a kernel could not be made");
      await endLog(entry);
      update(entry, { failure: failureOf(err) });
    } finally {
      doing(entry, "idle");
    }
  }

  async function startFailed(entry: Entry, err: unknown): Promise<void> {
    if (unreachable(err)) throw err;
    log.warn({ err, kernel: entry.key }, "a kernel could not be started");
    const code = isBerthError(err) ? err.code : "";
    const exitCode =
      code === "command-not-found"
        ? NOT_FOUND
        : code === "command-not-executable"
          ? NOT_EXECUTABLE
          : undefined;
    const kernelLog = await openLog(entry);
    await kernelLog.note(messageOf(err));
    await kernelLog.finish();
    if (exitCode === undefined || entry.record?.keepAlive === true) {
      update(entry, { failure: failureOf(err) });
      return;
    }
    const now = clock.wall();
    const end: KernelEnd = {
      startedAtMs: now,
      endedAtMs: now,
      exitCode,
      oomKilled: false,
      reason: "",
      logBytes: kernelLog.endOffset(),
    };
    update(entry, { failure: failureOf(err), end });
  }

  async function start(entry: Entry): Promise<void> {
    const containerId = entry.view?.containerId;
    if (containerId === undefined) return invalidate(entry);
    // Before the start, so that after a crash between the two nothing is ever started twice.
    update(entry, { startIntent: true, bootId, containerId });
    invalidate(entry);
    // Opened first: output must be read from the moment it flows.
    await openLog(entry);
    try {
      const { output } = await engine.startKernel(containerId);
      await watcher.begin(entry, containerId, output);
      // The environment is not needed any more.
      entry.spec = undefined;
    } catch (err) {
      await startFailed(entry, err);
    }
  }

  async function stop(entry: Entry): Promise<void> {
    const containerId = entry.view?.containerId;
    if (containerId === undefined) return invalidate(entry);
    entry.stopping = entry.record?.stop?.graceMs ?? DEFAULT_GRACE_MS;
    publish(entry);
    try {
      await engine.stopContainer(containerId, entry.stopping);
    } finally {
      entry.stopping = undefined;
      invalidate(entry);
    }
  }

  async function timeOut(entry: Entry): Promise<void> {
    log.info({ kernel: entry.key }, "a kernel's time is over");
    update(entry, { timedOut: true });
    await stop(entry);
  }

  async function discard(entry: Entry): Promise<void> {
    await engine.removeKernel(entry.ref);
    await endLog(entry);
    see(entry, undefined);
    update(entry, { startIntent: false, containerId: "" });
  }

  /** Makes sure that all of the output is in the log before the end is told. */
  async function completeLog(entry: Entry, containerId: string, closing: AbortSignal): Promise<KernelLog> {
    const kernelLog = await openLog(entry);
    if (kernelLog.isFinal()) return kernelLog;
    const capture = entry.watch?.capture;
    if (capture !== undefined) {
      capture.lastRound();
      await whileMoving(clock, OUTPUT_STALL_MS, capture.progress, capture.ended, { closing });
      capture.stop();
      await capture.ended;
    }
    if (capture?.complete() !== true) {
      try {
        const late = new AbortController();
        const progress: Progress = { chunks: 0 };
        const fill = fillFromEngine({
          engine,
          containerId,
          log: kernelLog,
          follow: false,
          signal: late.signal,
          progress,
          reached: capture?.reached(),
        });
        await whileMoving(
          clock,
          OUTPUT_STALL_MS,
          progress,
          fill.then(() => {}),
          { late, closing },
        );
      } catch (err) {
        if (unreachable(err) || closing.aborted) throw err;
        log.warn({ err, kernel: entry.key }, "the end of a kernel's output could not be read");
        await kernelLog.note(GAP_NOTE);
      }
    }
    await kernelLog.finish();
    return kernelLog;
  }

  /** Whoever removes a running container by hand kills it first: the two are told apart a moment later. */
  async function removedByHand(
    entry: Entry,
    record: KernelRecord,
    exited: Exited,
    closing: AbortSignal,
  ): Promise<boolean> {
    const explained = record.stop !== null || record.timedOut || record.endCause !== "" || exited.oomKilled;
    if (exited.exitCode !== KILLED || explained || clock.wall() - exited.endedAt > REMOVAL_MS) return false;
    await clock.sleep(REMOVAL_MS, closing);
    return (await engine.inspectKernel(entry.ref)) === undefined;
  }

  async function settle(entry: Entry, { closing }: Signals): Promise<void> {
    const { view, record } = entry;
    if (view?.state.kind !== "exited" || record === undefined) return invalidate(entry);
    const exited = view.state;
    if (await removedByHand(entry, record, exited, closing)) return see(entry, undefined);
    const kernelLog = await completeLog(entry, view.containerId, closing);
    endWatch(entry);
    const reason = endReason({
      record,
      exited,
      outages: engineWatch.outages(),
      liveRestore: engineWatch.info()?.liveRestore ?? true,
      bootId,
    });
    update(entry, {
      containerId: view.containerId,
      end: {
        startedAtMs: exited.startedAt,
        endedAtMs: exited.endedAt,
        exitCode: exited.exitCode,
        oomKilled: exited.oomKilled,
        reason,
        logBytes: kernelLog.endOffset(),
      },
    });
    log.info(
      { kernel: entry.key, exitCode: exited.exitCode, oom: exited.oomKilled, reason },
      "a kernel ended",
    );
  }

  async function vanished(entry: Entry): Promise<void> {
    const { record } = entry;
    if (record === undefined) return;
    const exitCode = entry.watch?.exitCode ?? KILLED;
    const capture = entry.watch?.capture;
    capture?.stop();
    await capture?.ended;
    endWatch(entry);
    const kernelLog = await openLog(entry);
    await kernelLog.finish();
    // Its network, mount and scratch file may still be there.
    await engine.removeKernel(entry.ref);
    const reason = record.endCause || (record.stop === null ? "container-removed" : "");
    const endedAtMs = clock.wall();
    const startedAtMs = entry.startedAtMs || endedAtMs;
    const logBytes = kernelLog.endOffset();
    update(entry, { end: { startedAtMs, endedAtMs, exitCode, oomKilled: false, reason, logBytes } });
    log.warn({ kernel: entry.key }, "a kernel's container is gone without our doing");
  }

  async function remove(entry: Entry): Promise<void> {
    endWatch(entry);
    await engine.removeKernel(entry.ref);
    await logs.remove(entry.key);
    see(entry, undefined);
    removed(entry);
  }

  return { observe, create, start, stop, "time-out": timeOut, discard, settle, vanished, remove };
}
