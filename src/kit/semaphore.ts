/** Lets at most so many tasks run at the same time; the others wait in order. */
export interface Semaphore {
  /** Runs `task` when there is room. Rejects with the signal's reason when it aborts before that. */
  run<T>(task: () => Promise<T>, signal?: AbortSignal): Promise<T>;
}

export function createSemaphore(limit: number): Semaphore {
  const waiting: (() => void)[] = [];
  let running = 0;

  function enter(signal: AbortSignal | undefined): Promise<void> {
    signal?.throwIfAborted();
    if (running < limit) {
      running += 1;
      return Promise.resolve();
    }
    return new Promise((resolve, reject) => {
      const onAbort = () => {
        waiting.splice(waiting.indexOf(go), 1);
        reject(signal?.reason);
      };
      const go = () => {
        signal?.removeEventListener("abort", onAbort);
        resolve();
      };
      signal?.addEventListener("abort", onAbort, { once: true });
      waiting.push(go);
    });
  }

  return {
    run: async (task, signal) => {
      await enter(signal);
      try {
        return await task();
      } finally {
        // The place goes straight to the next one, so that nobody slips in between.
        const next = waiting.shift();
        if (next === undefined) running -= 1;
        else next();
      }
    },
  };
}
