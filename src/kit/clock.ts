/** Milliseconds since the Unix epoch. */
export type WallMs = number;
/** Milliseconds of a clock that never steps; only differences have a meaning. */
export type MonoMs = number;

/** Ends a timer; calling it again does nothing. */
export type Cancel = () => void;

/** The only source of time for rules and services, so that tests never wait. */
export interface Clock {
  wall(): WallMs;
  mono(): MonoMs;
  /** Runs `fn` once after `delayMs` (at least 0). A pending timer does not keep the process alive. */
  after(delayMs: number, fn: () => void): Cancel;
  /** Runs `fn` each `periodMs`, first after one period. */
  every(periodMs: number, fn: () => void): Cancel;
  /** Resolves after `delayMs`; rejects with the signal's reason when it aborts first. */
  sleep(delayMs: number, signal?: AbortSignal): Promise<void>;
}

function sleepWith(after: Clock["after"]) {
  return (delayMs: number, signal?: AbortSignal): Promise<void> =>
    new Promise((resolve, reject) => {
      if (signal?.aborted) return reject(signal.reason);
      const onAbort = () => {
        cancel();
        reject(signal?.reason);
      };
      const cancel = after(delayMs, () => {
        signal?.removeEventListener("abort", onAbort);
        resolve();
      });
      signal?.addEventListener("abort", onAbort, { once: true });
    });
}

// setTimeout takes a signed 32-bit delay and fires at once beyond it.
const MAX_TIMEOUT_MS = 2_147_483_647;

function systemAfter(delayMs: number, fn: () => void): Cancel {
  let timer: ReturnType<typeof setTimeout>;
  const arm = (left: number) => {
    const step = Math.min(Math.max(left, 0), MAX_TIMEOUT_MS);
    timer = setTimeout(() => (left > step ? arm(left - step) : fn()), step);
    timer.unref?.();
  };
  arm(delayMs);
  return () => clearTimeout(timer);
}

export const systemClock: Clock = {
  wall: () => Date.now(),
  mono: () => performance.now(),
  after: systemAfter,
  every: (periodMs, fn) => {
    const timer = setInterval(fn, periodMs);
    timer.unref?.();
    return () => clearInterval(timer);
  },
  sleep: sleepWith(systemAfter),
};

export interface ManualClock extends Clock {
  /** Moves both clocks forward and runs, in order, every timer that falls due. */
  advance(ms: number): void;
  /** Steps the wall clock alone, as an administrator or NTP may do. */
  stepWall(ms: number): void;
}

/** A clock for tests: it stands still until it is moved. */
export function manualClock(startWall: WallMs = 1_700_000_000_000): ManualClock {
  type Timer = { due: number; order: number; fn: () => void };
  let mono = 0;
  let offset = startWall;
  let order = 0;
  const timers = new Set<Timer>();

  const after = (delayMs: number, fn: () => void): Cancel => {
    const timer = { due: mono + Math.max(delayMs, 0), order: order++, fn };
    timers.add(timer);
    return () => timers.delete(timer);
  };
  const nextDue = (until: number): Timer | undefined =>
    [...timers]
      .filter((t) => t.due <= until)
      .sort((a, b) => a.due - b.due || a.order - b.order)
      .at(0);

  return {
    wall: () => mono + offset,
    mono: () => mono,
    after,
    every: (periodMs, fn) => {
      let cancel: Cancel = () => {};
      const arm = () => {
        cancel = after(periodMs, () => {
          arm();
          fn();
        });
      };
      arm();
      return () => cancel();
    },
    sleep: sleepWith(after),
    advance: (ms) => {
      const until = mono + ms;
      for (let timer = nextDue(until); timer !== undefined; timer = nextDue(until)) {
        timers.delete(timer);
        mono = Math.max(mono, timer.due);
        timer.fn();
      }
      mono = until;
    },
    stepWall: (ms) => {
      offset += ms;
    },
  };
}
