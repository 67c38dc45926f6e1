import type { Clock } from "../../kit/clock.ts";
import type { Logger } from "../../kit/log.ts";
import type { Engine, OutputChunk } from "../engine/engine.ts";
import type { KernelLog } from "../logs/kernel-log.ts";
import { findJoin, GAP_NOTE, skipOutput } from "../logs/resume.ts";

/** Takes the output of one container into its log while the container runs. */
export interface Capture {
  /** Resolves when the output ended or capturing was stopped. Never rejects. */
  readonly ended: Promise<void>;
  /** Whether all of the output was taken. */
  complete(): boolean;
  /** The container has ended: what flows may end, but nothing is tried again. */
  lastRound(): void;
  stop(): void;
}

const RETRY_MS = 1000;

async function store(source: AsyncIterable<OutputChunk>, log: KernelLog, signal: AbortSignal): Promise<void> {
  const iterator = source[Symbol.asyncIterator]();
  // One listener for all chunks: racing each of them against one promise would gather memory for as long as it runs.
  let wake = () => {};
  const onAbort = () => wake();
  signal.addEventListener("abort", onAbort, { once: true });
  try {
    while (!signal.aborted) {
      const next = await new Promise<IteratorResult<OutputChunk> | undefined>((resolve, reject) => {
        wake = () => resolve(undefined);
        iterator.next().then(resolve, reject);
      });
      if (next === undefined || next.done === true) return;
      await log.append(next.value);
    }
  } finally {
    signal.removeEventListener("abort", onAbort);
    // Not awaited: a source that hangs would hang us too.
    void iterator.return?.()?.catch?.(() => {});
  }
}

/**
 * Adds to the log what the engine's own log has beyond it: each byte once, or a line of ours where that cannot be shown.
 * With `follow` it goes on until the container ends.
 */
export async function fillFromEngine(options: {
  readonly engine: Engine;
  readonly containerId: string;
  readonly log: KernelLog;
  readonly follow: boolean;
  readonly signal: AbortSignal;
}): Promise<void> {
  const { engine, containerId, log, follow, signal } = options;
  if (log.isFinal()) return;
  const join = await findJoin(log, engine.replayOutput(containerId, false));
  if (signal.aborted) return;
  if (!join.proven) await log.note(GAP_NOTE);
  await store(skipOutput(engine.replayOutput(containerId, follow), join.skip), log, signal);
}

/**
 * Begins to take output: from the stream of a container just started, or joined to what is stored. When the stream
 * breaks while the container runs, it is joined anew.
 */
export function captureOutput(options: {
  readonly engine: Engine;
  readonly containerId: string;
  readonly kernelLog: KernelLog;
  readonly started: AsyncIterable<OutputChunk> | undefined;
  readonly isRunning: () => Promise<boolean>;
  readonly clock: Clock;
  readonly log: Logger;
}): Capture {
  const { engine, containerId, kernelLog, started, isRunning, clock, log } = options;
  const abort = new AbortController();
  const { signal } = abort;
  const noRetry = new AbortController();
  let complete = false;
  const resume = () => fillFromEngine({ engine, containerId, log: kernelLog, follow: true, signal });

  async function run(): Promise<void> {
    let first = started;
    while (!signal.aborted) {
      try {
        await (first === undefined ? resume() : store(first, kernelLog, signal));
        if (signal.aborted) return;
        complete = true;
        if (!(await isRunning())) return;
      } catch (err) {
        log.warn({ err, containerId }, "a container's output was interrupted and is joined again");
      }
      complete = false;
      first = undefined;
      await clock.sleep(RETRY_MS, AbortSignal.any([signal, noRetry.signal])).catch(() => {});
      if (noRetry.signal.aborted) return;
    }
  }

  return {
    ended: run(),
    complete: () => complete,
    lastRound: () => noRetry.abort(),
    stop: () => abort.abort(),
  };
}
