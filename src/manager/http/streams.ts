import type { ServerResponse } from "node:http";
import type { StreamAnswer } from "./handle.ts";

/** Waits until the client has taken what was written, or has left. */
function drained(response: ServerResponse): Promise<void> {
  return new Promise((resolve) => {
    const done = () => {
      response.off("drain", done);
      response.off("close", done);
      resolve();
    };
    response.once("drain", done);
    response.once("close", done);
    if (response.destroyed) done();
  });
}

/** Resolves with undefined as soon as the signal aborts, else as the promise does. */
async function unlessAborted<T>(promise: Promise<T>, signal: AbortSignal): Promise<T | undefined> {
  if (signal.aborted) return undefined;
  const stop = Promise.withResolvers<undefined>();
  const onAbort = () => stop.resolve(undefined);
  signal.addEventListener("abort", onAbort, { once: true });
  try {
    return await Promise.race([promise, stop.promise]);
  } finally {
    signal.removeEventListener("abort", onAbort);
  }
}

/**
 * Sends a stream as fast as the client reads it, until it ends or `alive` aborts. The iteration is told to stop in
 * both cases. Rejects when the iteration throws; the connection must then be cut, so that nobody takes the part for
 * the whole.
 */
export async function sendStream(
  response: ServerResponse,
  answer: StreamAnswer,
  alive: AbortSignal,
): Promise<void> {
  const iterator = answer.body[Symbol.asyncIterator]();
  try {
    response.flushHeaders();
    while (!alive.aborted && !response.destroyed) {
      const next = await unlessAborted(iterator.next(), alive);
      if (next === undefined || next.done === true) break;
      if (!response.write(next.value)) await unlessAborted(drained(response), alive);
    }
  } finally {
    // Not awaited: an iteration that waits for something ends only when its own signal tells it.
    iterator.return?.()?.catch(() => {});
    response.end();
  }
}
