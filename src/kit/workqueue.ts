import { backoffMs } from "./backoff.ts";
import type { Cancel, Clock, MonoMs } from "./clock.ts";
import type { Logger } from "./log.ts";

/** What a run may ask for: to be run again after so many ms. */
export type Again = { readonly again: number };

export type WorkQueueOptions<K extends string> = {
  readonly clock: Clock;
  /** Does the work of one key. Must stop soon after the signal aborts. */
  // biome-ignore lint/suspicious/noConfusingVoidType: most callers pass an async function that returns nothing.
  readonly run: (key: K, signal: AbortSignal) => Promise<void | Again>;
  /** How many keys run at the same time. */
  readonly concurrency: number;
  /** Waits after failures of one key. */
  readonly backoff: { readonly firstMs: number; readonly maxMs: number };
  readonly log?: Logger;
};

export interface WorkQueue<K extends string> {
  /** Runs the key soon. While it waits this changes nothing; while it runs, it runs exactly once more. */
  add(key: K): void;
  /** Adds the key after `ms`; of several such wishes for one key the earliest counts. */
  addAfter(key: K, ms: number): void;
  /** Resolves when no key runs or waits to run. Keys that are due later do not count. */
  idle(): Promise<void>;
  /** Takes nothing more, forgets what waits, aborts what runs and resolves when that has ended. */
  close(): Promise<void>;
  /** Keys that run or wait to run. */
  size(): number;
}

type Timer = { readonly due: MonoMs; readonly cancel: Cancel };

type Entry = {
  state: "resting" | "waiting" | "running";
  /** Added while it ran. */
  dirty: boolean;
  failures: number;
  /** Wish of `addAfter`: kept until it is due. */
  asked: Timer | undefined;
  /** The queue's own, after a failure or on `again`: void as soon as the key runs for another reason. */
  retry: Timer | undefined;
};

/**
 * A queue in which each key is worked on by one worker at a time. A key that throws is tried again with
 * an exponential wait of its own, which success resets.
 */
export function createWorkQueue<K extends string>(options: WorkQueueOptions<K>): WorkQueue<K> {
  const { clock, run, concurrency, backoff, log } = options;
  const entries = new Map<K, Entry>();
  const ready: K[] = [];
  const abort = new AbortController();
  let running = 0;
  let closed = false;
  let idlers: (() => void)[] = [];

  function entryOf(key: K): Entry {
    const known = entries.get(key);
    if (known !== undefined) return known;
    const entry: Entry = { state: "resting", dirty: false, failures: 0, asked: undefined, retry: undefined };
    entries.set(key, entry);
    return entry;
  }

  function forgetIfDone(key: K, entry: Entry): void {
    const pending = entry.asked ?? entry.retry;
    if (entry.state === "resting" && pending === undefined && entry.failures === 0) entries.delete(key);
  }

  function wakeIdlers(): void {
    if (running > 0 || ready.length > 0) return;
    const woken = idlers;
    idlers = [];
    for (const wake of woken) wake();
  }

  function timer(ms: number, fn: () => void): Timer {
    return { due: clock.mono() + ms, cancel: clock.after(ms, fn) };
  }

  function add(key: K): void {
    if (closed) return;
    const entry = entryOf(key);
    if (entry.state === "running") entry.dirty = true;
    if (entry.state !== "resting") return;
    entry.state = "waiting";
    ready.push(key);
    // Never inside the caller: it may hold a transaction.
    queueMicrotask(pump);
  }

  function addAfter(key: K, ms: number): void {
    if (closed) return;
    const entry = entryOf(key);
    if (entry.asked !== undefined && entry.asked.due <= clock.mono() + ms) return;
    entry.asked?.cancel();
    entry.asked = timer(ms, () => {
      entry.asked = undefined;
      add(key);
    });
  }

  function retryAfter(key: K, entry: Entry, ms: number): void {
    entry.retry = timer(ms, () => {
      entry.retry = undefined;
      add(key);
    });
  }

  async function work(key: K, entry: Entry): Promise<void> {
    try {
      const result = await run(key, abort.signal);
      entry.failures = 0;
      if (result?.again !== undefined && !closed) retryAfter(key, entry, result.again);
    } catch (err) {
      if (closed) return;
      entry.failures += 1;
      const waitMs = backoffMs(entry.failures, backoff);
      log?.warn(
        { err, workKey: key, attempt: entry.failures, waitMs },
        "work failed and will be tried again",
      );
      retryAfter(key, entry, waitMs);
    }
  }

  function pump(): void {
    while (running < concurrency) {
      const key = ready.shift();
      if (key === undefined) return;
      const entry = entryOf(key);
      entry.retry?.cancel();
      entry.retry = undefined;
      entry.state = "running";
      running += 1;
      void work(key, entry).then(() => {
        running -= 1;
        entry.state = "resting";
        const dirty = entry.dirty;
        entry.dirty = false;
        if (dirty) add(key);
        forgetIfDone(key, entry);
        pump();
        wakeIdlers();
      });
    }
  }

  function idle(): Promise<void> {
    if (running === 0 && ready.length === 0) return Promise.resolve();
    return new Promise((resolve) => idlers.push(resolve));
  }

  async function close(): Promise<void> {
    closed = true;
    ready.length = 0;
    for (const entry of entries.values()) {
      entry.asked?.cancel();
      entry.retry?.cancel();
    }
    abort.abort(new Error("the queue was closed"));
    wakeIdlers();
    await idle();
    entries.clear();
  }

  return { add, addAfter, idle, close, size: () => running + ready.length };
}
