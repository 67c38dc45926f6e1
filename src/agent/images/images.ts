import type { Clock } from "../../kit/clock.ts";
import { isBerthError, messageOf } from "../../kit/errors.ts";
import type { Logger } from "../../kit/log.ts";
import type { Failure, ImageInfo, PullProgress } from "../../wire/generated/berth.ts";
import type { Engine, LocalImage, PullUpdate } from "../engine/engine.ts";

/** How an error is told over the link: its code and sentence, or `agent-fault` for a fault of ours. */
export function failureOf(err: unknown): Failure {
  return { code: isBerthError(err) ? err.code : "agent-fault", message: messageOf(err) };
}

export interface Images {
  /**
   * Pulls an image for a kernel. Pulls of one reference are shared: it stops when the last who wants it has aborted.
   * Throws `image-pull-failed` and the engine's other refusals.
   */
  fetch(reference: string, onUpdate: (update: PullUpdate) => void, signal: AbortSignal): Promise<LocalImage>;
  /** Pulls on the manager's word and reports progress and end. The same id again changes nothing. */
  pull(pullId: string, reference: string): void;
  cancel(pullId: string): void;
  /** Throws the engine's refusal, such as an image in use. */
  remove(reference: string): Promise<void>;
  /** The images as the engine listed them last. */
  list(): readonly ImageInfo[];
  /** Lists them anew; true when something changed. */
  refresh(): Promise<boolean>;
  close(): void;
}

type Shared = {
  readonly abort: AbortController;
  readonly listeners: Set<(update: PullUpdate) => void>;
  readonly done: Promise<LocalImage>;
  last: PullUpdate | undefined;
};

/** Time between two reports of a pull's progress, in ms. */
const PROGRESS_MS = 500;

export function imageInfo(image: LocalImage): ImageInfo {
  return {
    references: [...image.references],
    id: image.id,
    digests: [...image.digests],
    sizeBytes: image.sizeBytes,
    labels: { ...image.labels },
    arch: image.arch,
  };
}

export interface Throttled<T> {
  tell(value: T): void;
  /** What waits is told no more. */
  stop(): void;
}

/** Lets through the first value and then one each `ms`, the last one always: what stands still shows where. */
export function throttled<T>(clock: Clock, ms: number, fn: (value: T) => void): Throttled<T> {
  let last = Number.NEGATIVE_INFINITY;
  let waiting: { value: T } | undefined;
  let cancel = () => {};
  const pass = (value: T) => {
    waiting = undefined;
    last = clock.mono();
    fn(value);
  };
  return {
    tell: (value) => {
      const due = last + ms - clock.mono();
      if (waiting !== undefined) waiting.value = value;
      else if (due <= 0) pass(value);
      else {
        const held = { value };
        waiting = held;
        cancel = clock.after(due, () => pass(held.value));
      }
    },
    stop: () => cancel(),
  };
}

export function createImages(options: {
  readonly engine: Engine;
  readonly clock: Clock;
  readonly log: Logger;
  readonly onProgress: (progress: PullProgress) => void;
}): Images {
  const { engine, clock, log, onProgress } = options;
  const shared = new Map<string, Shared>();
  const asked = new Map<string, AbortController>();
  let images: readonly ImageInfo[] = [];

  function begin(reference: string): Shared {
    const abort = new AbortController();
    const listeners = new Set<(update: PullUpdate) => void>();
    const tell = (update: PullUpdate) => {
      entry.last = update;
      for (const listener of listeners) listener(update);
    };
    const done = engine.pullImage(reference, tell, abort.signal).finally(() => {
      if (shared.get(reference) === entry) shared.delete(reference);
    });
    const entry: Shared = { abort, listeners, done, last: undefined };
    // Whoever waits handles it; when all have gone nobody does.
    done.catch(() => {});
    shared.set(reference, entry);
    return entry;
  }

  async function fetch(
    reference: string,
    onUpdate: (update: PullUpdate) => void,
    signal: AbortSignal,
  ): Promise<LocalImage> {
    signal.throwIfAborted();
    const entry = shared.get(reference) ?? begin(reference);
    // A wrapper of its own, so that one function given twice counts as two.
    const listener = (update: PullUpdate) => onUpdate(update);
    entry.listeners.add(listener);
    if (entry.last !== undefined) onUpdate(entry.last);
    const gone = Promise.withResolvers<never>();
    const onAbort = () => gone.reject(signal.reason);
    signal.addEventListener("abort", onAbort, { once: true });
    try {
      return await Promise.race([entry.done, gone.promise]);
    } finally {
      signal.removeEventListener("abort", onAbort);
      entry.listeners.delete(listener);
      if (entry.listeners.size === 0) {
        if (shared.get(reference) === entry) shared.delete(reference);
        entry.abort.abort(new Error("nobody wants this image any more"));
      }
    }
  }

  async function runPull(pullId: string, reference: string, signal: AbortSignal): Promise<void> {
    const base = { pullId, reference, doneBytes: 0, totalBytes: 0, phase: "", finished: false };
    let last = base;
    const report = throttled(clock, PROGRESS_MS, (progress: PullProgress) => onProgress(progress));
    try {
      const onUpdate = (update: PullUpdate) => {
        last = { ...base, ...update };
        report.tell(last);
      };
      const image = await fetch(reference, onUpdate, signal).finally(report.stop);
      onProgress({ ...last, finished: true, phase: "finished", image: imageInfo(image) });
    } catch (err) {
      const failure = signal.aborted
        ? { code: "pull-cancelled", message: `The pull of ${reference} was cancelled.` }
        : failureOf(err);
      onProgress({ ...last, finished: true, phase: "failed", failure });
    } finally {
      asked.delete(pullId);
    }
  }

  async function refresh(): Promise<boolean> {
    const before = JSON.stringify(images);
    images = (await engine.listImages()).map(imageInfo);
    return JSON.stringify(images) !== before;
  }

  return {
    fetch,
    pull: (pullId, reference) => {
      if (asked.has(pullId)) return;
      const abort = new AbortController();
      asked.set(pullId, abort);
      log.info({ pullId, reference }, "pulling an image");
      void runPull(pullId, reference, abort.signal);
    },
    cancel: (pullId) => asked.get(pullId)?.abort(new Error("the pull was cancelled")),
    remove: (reference) => engine.removeImage(reference),
    list: () => images,
    refresh,
    close: () => {
      for (const abort of asked.values()) abort.abort(new Error("the agent stops"));
      for (const { abort } of shared.values()) abort.abort(new Error("the agent stops"));
    },
  };
}
