import type { Clock } from "../../kit/clock.ts";
import type { Logger } from "../../kit/log.ts";
import type { Engine, OutputChunk } from "../engine/engine.ts";
import type { KernelLog } from "../logs/kernel-log.ts";
import type { LogStore } from "../logs/store.ts";
import { captureOutput } from "./capture.ts";
import type { Entry, Watch } from "./entry.ts";

export interface Watcher {
  /** The kernel's log, open. */
  openLog(entry: Entry): Promise<KernelLog>;
  /** Takes the output of a container; `started` is the stream of one that was just started. */
  begin(entry: Entry, containerId: string, started?: AsyncIterable<OutputChunk>): Promise<Watch>;
  /** Makes sure that a running container's output, end and time limit are minded. */
  ensure(entry: Entry): Promise<void>;
}

const WAIT_RETRY_MS = 2000;

/**
 * Minds running containers beside their worker: takes their output, waits for their end, and calls the worker again at
 * the end and when their time is over.
 */
export function createWatcher(options: {
  readonly engine: Engine;
  readonly logs: LogStore;
  readonly clock: Clock;
  readonly log: Logger;
  /** How long a process has been running, in ms, by the system's steady clock; undefined when that cannot be told. */
  readonly ageOf: (pid: number) => number | undefined;
  /** The container may have changed: look again. */
  readonly look: (entry: Entry) => void;
  /** Decide again without looking. */
  readonly wake: (entry: Entry) => void;
}): Watcher {
  const { engine, logs, clock, log, ageOf, look, wake } = options;

  async function openLog(entry: Entry): Promise<KernelLog> {
    const kernelLog = await logs.open(entry.key, entry.record?.logLimitBytes ?? 0);
    entry.logBytes = kernelLog.endOffset;
    return kernelLog;
  }

  async function begin(
    entry: Entry,
    containerId: string,
    started?: AsyncIterable<OutputChunk>,
  ): Promise<Watch> {
    const kernelLog = await openLog(entry);
    const capture = captureOutput({
      engine,
      containerId,
      kernelLog,
      started,
      isRunning: async () => (await engine.inspectKernel(entry.ref))?.state.kind === "running",
      clock,
      log,
    });
    const abort = new AbortController();
    const watch: Watch = { containerId, capture, abort, waiting: false, exitCode: undefined };
    entry.watch = watch;
    return watch;
  }

  function wait(entry: Entry, watch: Watch): void {
    if (watch.waiting) return;
    watch.waiting = true;
    engine.waitContainer(watch.containerId, watch.abort.signal).then(
      (exitCode) => {
        watch.exitCode = exitCode;
        look(entry);
      },
      () => {
        watch.waiting = false;
        if (!watch.abort.signal.aborted) clock.after(WAIT_RETRY_MS, () => look(entry));
      },
    );
  }

  /** Time counts on the steady clock from the process's own start, so that a stepped wall clock ends nothing. */
  function armTimeout(entry: Entry, pid: number, startedAt: number): void {
    const timeoutMs = entry.record?.timeoutMs ?? 0;
    if (timeoutMs <= 0) return;
    if (entry.deadline === undefined) {
      const age = ageOf(pid) ?? Math.max(0, clock.wall() - startedAt);
      entry.deadline = clock.mono() + timeoutMs - age;
    }
    entry.timer ??= clock.after(entry.deadline - clock.mono(), () => {
      entry.timer = undefined;
      wake(entry);
    });
  }

  async function ensure(entry: Entry): Promise<void> {
    const { view } = entry;
    if (view?.state.kind !== "running") return;
    const watch = entry.watch ?? (await begin(entry, view.containerId));
    wait(entry, watch);
    armTimeout(entry, view.state.pid, view.state.startedAt);
  }

  return { openLog, begin, ensure };
}
