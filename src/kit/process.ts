import type { Logger } from "./log.ts";

/** Resolves with the first signal that asks for the end. A second one ends the process at once. */
export function endSignal(): Promise<NodeJS.Signals> {
  return new Promise((resolve) => {
    let asked = false;
    for (const signal of ["SIGTERM", "SIGINT"] as const) {
      process.on(signal, () => {
        if (asked) process.exit(1);
        asked = true;
        resolve(signal);
      });
    }
  });
}

/**
 * A fault that nobody caught belongs to one connection or task far more often than to the whole; ending the process
 * for it would let one client cut everybody else off. What must last is on disk before it is told.
 */
export function surviveFaults(log: Logger): void {
  process.on("uncaughtException", (err) => log.error({ err }, "an exception was not caught"));
  process.on("unhandledRejection", (err) => log.error({ err }, "a rejection was not handled"));
}
