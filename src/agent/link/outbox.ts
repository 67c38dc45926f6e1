import type { Logger } from "../../kit/log.ts";
import type { AgentMessage } from "../../wire/generated/berth.ts";

export type Body = NonNullable<AgentMessage["body"]>;
/** Made when it is sent, so that it says what holds then; undefined when there is nothing to say any more. */
export type MakeBody = () => Body | undefined;

/** What waits to be sent to the manager. */
export interface Outbox {
  /** Adds a message; one that waits under the same key is replaced and keeps its place. */
  put(key: string, make: MakeBody): void;
  /** Sends what comes until the signal aborts or `send` fails; what was not sent stays. */
  drain(send: (message: AgentMessage) => Promise<void>, signal: AbortSignal): Promise<void>;
  /** Drops what the next full report says anyway. */
  dropRepeatable(): void;
  size(): number;
}

/** Facts that are told again, whole, after each connect. */
const REPEATABLE = /^(kernel:|fullReport$|heartbeat$|usage$|health$)/;

/** Messages of which only the latest counts share a key; beyond `limit` the oldest message is dropped. */
export function createOutbox({ limit, log }: { readonly limit: number; readonly log: Logger }): Outbox {
  const waiting = new Map<string, MakeBody>();
  let wake = () => {};

  function put(key: string, make: MakeBody): void {
    waiting.set(key, make);
    if (waiting.size > limit) {
      const oldest = waiting.keys().next().value;
      if (oldest !== undefined) waiting.delete(oldest);
      log.warn({ dropped: oldest }, "too much waits to be sent to the manager: the oldest was dropped");
    }
    wake();
  }

  async function drain(send: (message: AgentMessage) => Promise<void>, signal: AbortSignal): Promise<void> {
    signal.addEventListener("abort", () => wake(), { once: true });
    while (!signal.aborted) {
      const next = waiting.entries().next();
      if (next.done === true) {
        await new Promise<void>((resolve) => {
          wake = resolve;
        });
        continue;
      }
      const [key, make] = next.value;
      waiting.delete(key);
      const body = make();
      if (body === undefined) continue;
      try {
        await send({ body });
      } catch (err) {
        // Unless a later word has taken its place.
        if (!waiting.has(key)) waiting.set(key, make);
        throw err;
      }
    }
  }

  return {
    put,
    drain,
    dropRepeatable: () => {
      for (const key of [...waiting.keys()]) if (REPEATABLE.test(key)) waiting.delete(key);
    },
    size: () => waiting.size,
  };
}
