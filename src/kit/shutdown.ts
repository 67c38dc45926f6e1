import type { Clock } from "./clock.ts";
import type { Logger } from "./log.ts";

export interface Shutdown {
  /** Registers a closer; what was started last is closed first. */
  add(name: string, close: () => Promise<void> | void): void;
  /** Runs all closers once, in reverse order; further calls get the same promise. Never rejects. */
  run(): Promise<void>;
}

/**
 * Closes what was started, in reverse order. A closer that throws or takes longer than `limitMs` is
 * logged and left behind, so that the next ones still get their turn.
 */
export function createShutdown(options: {
  readonly clock: Clock;
  readonly limitMs: number;
  readonly log: Logger;
}): Shutdown {
  const { clock, limitMs, log } = options;
  const closers: { name: string; close: () => Promise<void> | void }[] = [];
  let done: Promise<void> | undefined;

  async function closeOne(name: string, close: () => Promise<void> | void): Promise<void> {
    const limit = new AbortController();
    try {
      const late = clock.sleep(limitMs, limit.signal).then(
        () => "late" as const,
        () => "ended" as const,
      );
      const result = await Promise.race([Promise.resolve().then(close), late]);
      if (result === "late") log.warn({ part: name, limitMs }, "a part did not stop in time");
    } catch (err) {
      log.warn({ err, part: name }, "a part failed to stop");
    } finally {
      limit.abort();
    }
  }

  async function runAll(): Promise<void> {
    for (let next = closers.pop(); next !== undefined; next = closers.pop()) {
      await closeOne(next.name, next.close);
    }
  }

  return {
    add: (name, close) => closers.push({ name, close }),
    run: () => {
      done ??= runAll();
      return done;
    },
  };
}
