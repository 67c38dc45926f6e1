import type { Clock } from "../../kit/clock.ts";
import type { Logger } from "../../kit/log.ts";
import type { Engine, OutputChunk } from "../engine/engine.ts";
import type { KernelLog } from "../logs/kernel-log.ts";
import { findJoin, GAP_NOTE, isWhole, skipOutput } from "../logs/resume.ts";

/** Takes the output of one container into its log while the container runs. */
export interface Capture {
  /** Resolves when the output ended or capturing was stopped. Never rejects. */
  readonly ended: Promise<void>;
  /** Whether all of the output was taken. */
  complete(): boolean;
  readonly progress: Progress;
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

/** Counts what has been read, so that a long reading can be told from one that hangs. */
export type Progress = { chunks: number };

async function* counted(source: AsyncIterable<OutputChunk>, progress: Progress): AsyncGenerator<OutputChunk> {
  for await (const chunk of source) {
    progress.chunks += 1;
    yield chunk;
  }
}

/**
 * Adds to the log what the engine's own log has beyond it: each byte once, or a line of ours where that cannot be shown.
 * With `follow` it goes on until the container ends. Reading the engine's log takes it some ten microseconds a line.
 */
export async function fillFromEngine(options: {
  readonly engine: Engine;
  readonly containerId: string;
  readonly log: KernelLog;
  readonly follow: boolean;
  readonly signal: AbortSignal;
  readonly progress: Progress;
}): Promise<void> {
  const { engine, containerId, log, follow, signal, progress } = options;
  if (log.isFinal()) return;
  await log.flush();
  const replay = (following: boolean) => counted(engine.replayOutput(containerId, following), progress);
  const join = isWhole(log) ? { skip: log.counts(), proven: true } : await findJoin(log, replay(false));
  if (signal.aborted) return;
  if (!join.proven) await log.note(GAP_NOTE);
  await store(skipOutput(replay(follow), join.skip), log, signal);
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
  const progress: Progress = { chunks: 0 };
  const resume = () =>
    fillFromEngine({ engine, containerId, log: kernelLog, follow: true, signal, progress });

  async function run(): Promise<void> {
    let first = started;
    while (!signal.aborted) {
      try {
        await (first === undefined ? resume() : store(counted(first, progress), kernelLog, signal));
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
    progress,
    lastRound: () => noRetry.abort(),
    stop: () => abort.abort(),
  };
}
