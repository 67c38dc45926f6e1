import { backoffMs } from "../../kit/backoff.ts";
import type { Clock } from "../../kit/clock.ts";
import type { Logger } from "../../kit/log.ts";
import type { Engine, EngineEvent, EngineInfo } from "../engine/engine.ts";
import type { Outage } from "./rules.ts";

export type EngineWatchHooks = {
  onEvent(event: EngineEvent): void;
  /** The engine answers, for the first time or again: look at everything anew. */
  onBack(): void;
  onLost(): void;
};

export interface EngineWatch {
  start(hooks: EngineWatchHooks): void;
  reachable(): boolean;
  /** Facts of the engine as it answered last. */
  info(): EngineInfo | undefined;
  outages(): readonly Outage[];
  /** Counts the times that the engine went away. */
  outageCount(): number;
  stop(): Promise<void>;
}

const KEPT_OUTAGES = 20;
const BACKOFF = { firstMs: 250, maxMs: 5000 };

/**
 * Follows the engine's events and survives its absence: it tries again until the engine answers and remembers when it
 * was away. The end of the event stream is how an absence is noticed.
 */
export function createEngineWatch(options: {
  readonly engine: Engine;
  readonly clock: Clock;
  readonly log: Logger;
}): EngineWatch {
  const { engine, clock, log } = options;
  const abort = new AbortController();
  const outages: { fromMs: number; untilMs: number | undefined }[] = [];
  let info: EngineInfo | undefined;
  let reachable = false;
  let count = 0;
  let running: Promise<void> = Promise.resolve();

  function lost(hooks: EngineWatchHooks, err: unknown): void {
    if (!reachable || abort.signal.aborted) return;
    reachable = false;
    count += 1;
    outages.push({ fromMs: clock.wall(), untilMs: undefined });
    if (outages.length > KEPT_OUTAGES) outages.shift();
    log.warn(
      { err },
      "the container engine does not answer; its containers are looked at again when it does",
    );
    hooks.onLost();
  }

  function back(hooks: EngineWatchHooks): void {
    if (reachable) return;
    reachable = true;
    const last = outages.at(-1);
    if (last !== undefined) last.untilMs = clock.wall();
    log.info({ engine: info?.name, version: info?.version }, "the container engine answers");
    hooks.onBack();
  }

  async function follow(hooks: EngineWatchHooks): Promise<void> {
    let failures = 0;
    while (!abort.signal.aborted) {
      try {
        info = await engine.info();
        const events = engine.events(abort.signal)[Symbol.asyncIterator]();
        // Ask for the first event before looking at the containers, so that nothing falls between the two.
        let next = events.next();
        back(hooks);
        failures = 0;
        for (let event = await next; event.done !== true; event = await next) {
          hooks.onEvent(event.value);
          next = events.next();
        }
        throw new Error("the engine ended its event stream");
      } catch (err) {
        lost(hooks, err);
        failures += 1;
        await clock.sleep(backoffMs(failures, BACKOFF), abort.signal).catch(() => {});
      }
    }
  }

  return {
    start: (hooks) => {
      running = follow(hooks);
    },
    reachable: () => reachable,
    info: () => info,
    outages: () => outages,
    outageCount: () => count,
    stop: async () => {
      abort.abort();
      await running;
    },
  };
}
