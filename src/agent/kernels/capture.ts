import type { Clock } from "../../kit/clock.ts";
import type { Logger } from "../../kit/log.ts";
import type { Engine, OutputChunk } from "../engine/engine.ts";
import type { KernelLog, StreamCounts } from "../logs/kernel-log.ts";
import { findJoin, GAP_NOTE, isWhole, skipOutput } from "../logs/resume.ts";

/** Takes the output of one container into its log while the container runs. */
export interface Capture {
  /** Resolves when the output ended or capturing was stopped. Never rejects. */
  readonly ended: Promise<void>;
  /** Whether all of the output was taken, which only the stream of the start itself can show. */
  complete(): boolean;
  /** How much of the engine's own log was taken when following it ended, beginning with the log's first byte. */
  reached(): StreamCounts | undefined;
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

type Taken = { stdout: number; stderr: number };

async function* counted(
  source: AsyncIterable<OutputChunk>,
  progress: Progress,
  taken: Taken = { stdout: 0, stderr: 0 },
): AsyncGenerator<OutputChunk> {
  for await (const chunk of source) {
    progress.chunks += 1;
    taken[chunk.stream === 1 ? "stdout" : "stderr"] += chunk.bytes.length;
    yield chunk;
  }
}

/**
 * Adds to the log what the engine's own log has beyond it: each byte once, or a line of ours where that cannot be shown.
 * With `follow` it goes on until the container ends, but the engine may end it before the last bytes: fill once more
 * without, giving what this one returned as `reached`. Reading the engine's log takes it some ten microseconds a line.
 */
export async function fillFromEngine(options: {
  readonly engine: Engine;
  readonly containerId: string;
  readonly log: KernelLog;
  readonly follow: boolean;
  readonly signal: AbortSignal;
  readonly progress: Progress;
  readonly reached?: StreamCounts | undefined;
}): Promise<StreamCounts | undefined> {
  const { engine, containerId, log, follow, signal, progress, reached } = options;
  if (log.isFinal()) return undefined;
  await log.flush();
  const replay = (following: boolean, taken?: Taken) =>
    counted(engine.replayOutput(containerId, following), progress, taken);
  const join = isWhole(log)
    ? { skip: log.counts(), proven: true }
    : await findJoin(log, replay(false), reached);
  if (signal.aborted) return undefined;
  if (!join.proven) await log.note(GAP_NOTE);
  const taken: Taken = { stdout: 0, stderr: 0 };
  await store(skipOutput(replay(follow, taken), join.skip), log, signal);
  return signal.aborted ? undefined : taken;
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
  let reached: StreamCounts | undefined;
  const progress: Progress = { chunks: 0 };
  const resume = () =>
    fillFromEngine({ engine, containerId, log: kernelLog, follow: true, signal, progress });

  async function run(): Promise<void> {
    let first = started;
    while (!signal.aborted) {
      try {
        reached = undefined;
        if (first === undefined) reached = await resume();
        else await store(counted(first, progress), kernelLog, signal);
        if (signal.aborted) return;
        complete = first !== undefined;
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
    reached: () => reached,
    progress,
    lastRound: () => noRetry.abort(),
    stop: () => abort.abort(),
  };
}
