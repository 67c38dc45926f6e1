import { BerthError } from "../../kit/errors.ts";
import { isId } from "../../kit/ids.ts";
import { createSemaphore } from "../../kit/semaphore.ts";
import { createWorkQueue } from "../../kit/workqueue.ts";
import { KernelPhase, type KernelSpec, type KernelStatus, MainProcess } from "../../wire/generated/berth.ts";
import type { ContainerView, EngineEvent, KernelRef } from "../engine/engine.ts";
import { type ActionDeps, createActions } from "./actions.ts";
import { createEntry, type Entry, endWatch, invalidate, lastSeen, see } from "./entry.ts";
import {
  type KernelKey,
  type KernelRecord,
  keyOf,
  type RecordStore,
  recordOfSpec,
  recordOfStop,
} from "./record.ts";
import { judgeEnsure, type KernelFacts, mergeStop, nextStep, statusOf } from "./rules.ts";
import { within } from "./timing.ts";
import { createWatcher } from "./watcher.ts";

export type StopOrder = { readonly ref: KernelRef; readonly graceMs: number; readonly force: boolean };

/** A kernel whose container runs, for whoever reaches into it. */
export type RunningKernel = { readonly ref: KernelRef; readonly containerId: string; readonly pid: number };

export interface Supervisor {
  /** Reads the records of an earlier process and begins; containers are looked at as soon as the engine answers. */
  start(): Promise<void>;
  /** Resolves when the containers were looked at for the first time. */
  readonly adopted: Promise<void>;
  /** Whether `adopted` has happened. */
  hasAdopted(): boolean;
  /** Wants a kernel. Throws `invalid-kernel` or `disk-full`; everything later is told by its status. */
  ensure(spec: KernelSpec): void;
  /** Ends a kernel, or sees to it that it never begins. */
  stop(order: StopOrder): void;
  /** Removes everything of a kernel; its last status says GONE. */
  forget(ref: Pick<KernelRef, "kernelId" | "generation">): void;
  /** Ends a kernel for a reason of the node's own, such as `disk-full`. */
  endFor(ref: KernelRef, cause: string): void;
  statuses(): readonly KernelStatus[];
  running(): readonly RunningKernel[];
  findRunning(kernelId: string, generation: number): RunningKernel | undefined;
  /** The record of a kernel that is known here. */
  record(ref: Pick<KernelRef, "kernelId" | "generation">): KernelRecord | undefined;
  onEvent(event: EngineEvent): void;
  /** Compares all containers with what is known. */
  lookAtAll(): Promise<void>;
  /** Stops minding; containers run on. */
  close(): Promise<void>;
}

export type SupervisorOptions = Pick<
  ActionDeps,
  "engine" | "engineWatch" | "images" | "logs" | "clock" | "log" | "bootId"
> & {
  readonly records: RecordStore;
  /** How long a process has been running, in ms; undefined when that cannot be told. */
  readonly ageOf: (pid: number) => number | undefined;
  readonly onStatus: (status: KernelStatus) => void;
  /** Containers that are made at the same time. */
  readonly createLimit?: number;
};

// Stops wait for their grace inside a worker, so there are many more workers than cores.
const WORKERS = 256;
const BACKOFF = { firstMs: 250, maxMs: 15_000 };
const ADOPT_MS = 3000;

export function createSupervisor(options: SupervisorOptions): Supervisor {
  const { engine, engineWatch, images, logs, records, clock, log, bootId, ageOf, onStatus } = options;
  const entries = new Map<KernelKey, Entry>();
  const adopted = Promise.withResolvers<void>();
  let closed = false;
  let looked = false;

  const queue = createWorkQueue<KernelKey>({ clock, run: work, concurrency: WORKERS, backoff: BACKOFF, log });

  function look(entry: Entry): void {
    invalidate(entry);
    queue.add(entry.key);
  }

  const watcher = createWatcher({
    engine,
    logs,
    clock,
    log,
    ageOf,
    look,
    wake: (entry) => queue.add(entry.key),
  });

  const actions = createActions({
    engine,
    engineWatch,
    images,
    logs,
    watcher,
    creating: createSemaphore(options.createLimit ?? 4),
    clock,
    log,
    bootId,
    update,
    publish,
    removed,
  });

  function statusFor(entry: Entry): KernelStatus {
    return statusOf({
      ref: { ...entry.ref, sessionId: entry.record?.sessionId ?? entry.ref.sessionId },
      record: entry.record,
      observed: lastSeen(entry),
      activity: entry.activity,
      pull: entry.pull,
      logBytes: entry.logBytes(),
    });
  }

  function publish(entry: Entry): void {
    if (entry.undo) return;
    const status = statusFor(entry);
    // How much log there is goes along with other news; it is none by itself.
    const before =
      entry.published === undefined ? undefined : { ...entry.published, logBytes: status.logBytes };
    if (Bun.deepEquals(before, status)) return;
    entry.published = status;
    onStatus(status);
  }

  function update(entry: Entry, change: Partial<KernelRecord>): void {
    if (entry.record === undefined) return;
    const record = { ...entry.record, ...change };
    // A start must be on disk before it happens, or it could happen twice. Nothing else waits for a full disk: what
    // a later process does not find in the record, the container or the manager tells it again.
    if (change.startIntent === true) records.save(record);
    else records.keep(record);
    entry.record = record;
    publish(entry);
  }

  function removed(entry: Entry): void {
    records.remove(entry.key);
    entries.delete(entry.key);
    if (!entry.undo) {
      onStatus({ ...statusFor(entry), phase: KernelPhase.GONE, scratchPresent: false });
      log.info({ kernel: entry.key }, "a kernel was removed");
    } else if (!closed) {
      entry.afterUndo?.();
    }
  }

  function factsOf(entry: Entry): KernelFacts {
    return {
      record: entry.record,
      spec: entry.spec,
      observed: entry.fresh ? entry.view : "unknown",
      forget: entry.forget,
      overdue: entry.deadline !== undefined && clock.mono() >= entry.deadline,
    };
  }

  async function work(key: KernelKey, closing: AbortSignal): Promise<void> {
    for (let entry = entries.get(key); entry !== undefined && !closing.aborted; entry = entries.get(key)) {
      const step = nextStep(factsOf(entry));
      if (step === "rest") return;
      if (step === "watch") return watcher.ensure(entry);
      if (step === "drop") {
        entries.delete(key);
        return;
      }
      try {
        const cut = AbortSignal.any([closing, entry.interrupt.signal]);
        await actions[step](entry, { closing, cut });
      } catch (err) {
        invalidate(entry);
        throw err;
      }
    }
  }

  function entryFor(ref: KernelRef): Entry {
    const key = keyOf(ref);
    const known = entries.get(key);
    if (known !== undefined) return known;
    const entry = createEntry(key, ref);
    entries.set(key, entry);
    return entry;
  }

  function checkRef(ref: Pick<KernelRef, "kernelId" | "generation">): void {
    if (isId(ref.kernelId) && Number.isInteger(ref.generation) && ref.generation >= 0) return;
    throw new BerthError(
      "invalid-kernel",
      `"${ref.kernelId}" generation ${ref.generation} is not a kernel's id.`,
    );
  }

  function ensure(spec: KernelSpec): void {
    checkRef(spec);
    const entry = entryFor(spec);
    if (entry.undo) {
      entry.afterUndo ??= () => ensure(spec);
      return;
    }
    const verdict = judgeEnsure(entry.record);
    if (verdict === "over" || entry.forget) {
      onStatus(statusFor(entry));
      return;
    }
    if (verdict === "new") {
      const keepAlive = spec.main === MainProcess.KEEP_ALIVE;
      const record = recordOfSpec(spec, { keepAlive, bootId, view: entry.view });
      try {
        records.save(record);
      } catch (err) {
        entries.delete(entry.key);
        throw err;
      }
      entry.record = record;
    }
    if (entry.record?.startIntent !== true) entry.spec = spec;
    publish(entry);
    queue.add(entry.key);
  }

  function stop({ ref, graceMs, force }: StopOrder): void {
    checkRef(ref);
    const entry = entryFor(ref);
    if (entry.undo) {
      entry.afterUndo = () => stop({ ref, graceMs, force });
      return;
    }
    const record = entry.record ?? recordOfStop(ref, entry.view, bootId);
    if (record.end === null && record.failure === null) {
      const merged = mergeStop(record.stop, { graceMs, force });
      entry.record = record;
      update(entry, { stop: merged });
      entry.interrupt.abort(new Error("the kernel is stopped"));
      const containerId = entry.view?.containerId;
      if (entry.stopping !== undefined && merged.graceMs < entry.stopping && containerId !== undefined) {
        hurry(entry, containerId, merged.graceMs);
      }
    } else {
      onStatus(statusFor(entry));
    }
    queue.add(entry.key);
  }

  /** A harsher stop overtakes the one that waits for its grace. */
  function hurry(entry: Entry, containerId: string, graceMs: number): void {
    entry.stopping = graceMs;
    engine.stopContainer(containerId, graceMs).catch((err: unknown) => {
      log.warn({ err, kernel: entry.key }, "a stop could not be hurried");
    });
  }

  function forget(ref: Pick<KernelRef, "kernelId" | "generation">): void {
    checkRef(ref);
    const entry = entryFor({ ...ref, sessionId: "" });
    entry.forget = true;
    entry.undo = false;
    entry.interrupt.abort(new Error("the kernel is forgotten"));
    queue.add(entry.key);
  }

  function endFor(ref: KernelRef, cause: string): void {
    const entry = entries.get(keyOf(ref));
    if (entry?.record?.startIntent !== true || entry.record.end !== null || entry.record.endCause !== "")
      return;
    update(entry, { endCause: cause });
    queue.add(entry.key);
  }

  function adopt(record: KernelRecord): void {
    const entry = entryFor(record);
    entry.record = record;
    const begun =
      record.startIntent || record.stop !== null || record.failure !== null || record.end !== null;
    // What never ran is undone: the manager says anew whether it is still wanted.
    if (!begun) undo(entry);
    else queue.add(entry.key);
  }

  function undo(entry: Entry): void {
    entry.undo = true;
    entry.forget = true;
    queue.add(entry.key);
  }

  async function start(): Promise<void> {
    for (const record of records.load().values()) adopt(record);
  }

  function changed(entry: Entry, view: ContainerView | undefined): boolean {
    if (!entry.fresh) return true;
    if (entry.view?.containerId !== view?.containerId) return true;
    return entry.view?.state.kind !== view?.state.kind;
  }

  /** Scratch, networks and logs of kernels that nobody knows: an earlier process was cut off while it made them. */
  async function clearLeftovers(): Promise<void> {
    for (const ref of await engine.listLeftovers()) {
      const entry = entries.get(keyOf(ref));
      if (entry === undefined) undo(entryFor(ref));
      else if (entry.record?.end != null || entry.record?.stop != null) await engine.removeKernel(ref);
    }
    for (const key of await logs.list()) {
      if (![...entries.keys()].some((known) => known === key)) await logs.remove(key);
    }
  }

  async function lookAtAll(): Promise<void> {
    const seen = new Set<KernelKey>();
    for (const view of await engine.listKernels()) {
      const entry = entryFor(view);
      seen.add(entry.key);
      if (entry.record === undefined && !entry.fresh) {
        see(entry, view);
        publish(entry);
      }
      if (changed(entry, view)) look(entry);
    }
    for (const entry of entries.values()) {
      if (!seen.has(entry.key) && changed(entry, undefined)) look(entry);
    }
    if (looked) return;
    looked = true;
    await clearLeftovers().catch((err: unknown) => log.warn({ err }, "leftovers could not be cleared"));
    // A container that is being stopped may take long to end; it is known all the same.
    await within(clock, ADOPT_MS, queue.idle());
    adopted.resolve();
  }

  function onEvent(event: EngineEvent): void {
    if (event.kind === "container") look(entryFor(event.kernel));
  }

  function runningOf(entry: Entry): RunningKernel | undefined {
    const { view } = entry;
    if (view?.state.kind !== "running" || entry.forget) return undefined;
    return { ref: entry.ref, containerId: view.containerId, pid: view.state.pid };
  }

  return {
    start,
    adopted: adopted.promise,
    hasAdopted: () => looked,
    ensure,
    stop,
    forget,
    endFor,
    statuses: () => [...entries.values()].filter((entry) => !entry.undo).map(statusFor),
    running: () => [...entries.values()].flatMap((entry) => runningOf(entry) ?? []),
    findRunning: (kernelId, generation) => {
      const entry = entries.get(keyOf({ kernelId, generation }));
      return entry === undefined ? undefined : runningOf(entry);
    },
    record: (ref) => entries.get(keyOf(ref))?.record,
    onEvent,
    lookAtAll,
    close: async () => {
      closed = true;
      await queue.close();
      for (const entry of entries.values()) endWatch(entry);
      records.close();
    },
  };
}
