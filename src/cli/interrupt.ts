import type { Io } from "./io.ts";

/**
 * Ctrl-C in two steps: the first calls `onFirst`, the second aborts `signal`. SIGTERM counts as the same.
 * Call `stop` at the end, so that Ctrl-C works as usual again.
 */
export type Interrupt = {
  readonly signal: AbortSignal;
  /** Which signal came first, if any. */
  readonly received: () => "SIGINT" | "SIGTERM" | undefined;
  readonly stop: () => void;
};

export function createInterrupt(io: Io, onFirst: (leave: () => void) => void): Interrupt {
  const leaving = new AbortController();
  const leave = () => leaving.abort(new DOMException("left", "AbortError"));
  let received: "SIGINT" | "SIGTERM" | undefined;
  const on = (name: "SIGINT" | "SIGTERM") =>
    io.onSignal(name, () => {
      if (received !== undefined) return leave();
      received = name;
      onFirst(leave);
    });
  const stops = [on("SIGINT"), on("SIGTERM")];
  return {
    signal: leaving.signal,
    received: () => received,
    stop: () => {
      for (const stop of stops) stop();
    },
  };
}
