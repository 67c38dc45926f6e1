import type { Cancel, Clock } from "../kit/clock.ts";
import { BerthError, messageOf } from "../kit/errors.ts";
import { writeFrame } from "../kit/frames.ts";
import type { AgentId } from "../kit/ids.ts";
import type { Logger } from "../kit/log.ts";
import type { ByteStream } from "./byte-stream.ts";
import { dataHeader, readFirstFrame } from "./data-header.ts";
import type { AgentIdentity } from "./identity.ts";

/** Brings together who asked for a data stream and the connection that the agent dials for it. */
export interface DataBroker {
  /**
   * Waits for the agent to open the stream; call it before asking the agent. `streamId` is unguessable and
   * used once. Rejects with `stream-timeout` after 10 s, `agent-lost` on `cut`, or what `fail` is given.
   */
  expect(agentId: AgentId, streamId: string): Promise<ByteStream>;
  /** The agent says that it cannot open the stream. */
  fail(agentId: AgentId, streamId: string, error: BerthError): void;
  /** Takes a connection of an agent, which may say only later which stream it is for. */
  accept(identity: AgentIdentity, stream: ByteStream): void;
  /** Gives up on every stream that is waited for from the agent. */
  cut(agentId: AgentId): void;
}

const EXPECT_TIMEOUT_MS = 10_000;
/** An agent renews its idle connections each minute; one that is older is forgotten by its agent. */
const IDLE_TIMEOUT_MS = 180_000;
const IDLE_PER_AGENT = 32;

type Waiter = {
  readonly agentId: AgentId;
  readonly cancel: Cancel;
  readonly resolve: (stream: ByteStream) => void;
  readonly reject: (error: BerthError) => void;
};

export function createDataBroker(options: { readonly clock: Clock; readonly log: Logger }): DataBroker {
  const { clock, log } = options;
  const waiters = new Map<string, Waiter>();
  const idle = new Map<AgentId, number>();

  const take = (agentId: AgentId, streamId: string): Waiter | undefined => {
    const waiter = waiters.get(streamId);
    if (waiter?.agentId !== agentId) return undefined;
    waiters.delete(streamId);
    waiter.cancel();
    return waiter;
  };
  const countIdle = (agentId: AgentId, change: number): number => {
    const count = (idle.get(agentId) ?? 0) + change;
    if (count > 0) idle.set(agentId, count);
    else idle.delete(agentId);
    return count;
  };
  const readHeader = async (agentId: AgentId, stream: ByteStream): Promise<string> => {
    const cancel = clock.after(IDLE_TIMEOUT_MS, () => stream.destroy());
    if (countIdle(agentId, 1) > IDLE_PER_AGENT) stream.destroy();
    try {
      const frame = await readFirstFrame(stream);
      return dataHeader.parse(frame.type === "open" ? frame.params : undefined).streamId;
    } finally {
      cancel();
      countIdle(agentId, -1);
    }
  };
  const match = async (agentId: AgentId, stream: ByteStream) => {
    const streamId = await readHeader(agentId, stream);
    const waiter = take(agentId, streamId);
    if (waiter === undefined) {
      const message = "Nobody waits for this stream any more.";
      await writeFrame(stream, { type: "error", code: "unknown-stream", message });
      stream.end();
      return;
    }
    try {
      await writeFrame(stream, { type: "open", params: {} });
      waiter.resolve(stream);
    } catch (cause) {
      const sentence = "The connection to the node was cut while the stream was opened.";
      waiter.reject(new BerthError("stream-cut", sentence, { cause }));
    }
  };

  return {
    expect: (agentId, streamId) =>
      new Promise((resolve, reject) => {
        if (waiters.has(streamId)) throw new TypeError("a stream id was used twice");
        const cancel = clock.after(EXPECT_TIMEOUT_MS, () => {
          const sentence =
            "The node did not open the stream in time. Try again; if it stays so, look at the node.";
          take(agentId, streamId)?.reject(new BerthError("stream-timeout", sentence));
        });
        waiters.set(streamId, { agentId, cancel, resolve, reject });
      }),
    fail: (agentId, streamId, error) => take(agentId, streamId)?.reject(error),
    accept: ({ agentId }, stream) => {
      match(agentId, stream).catch((error: unknown) => {
        log.debug(
          { agentId, reason: messageOf(error) },
          "A data connection ended before its stream was known",
        );
        stream.destroy();
      });
    },
    cut: (agentId) => {
      const lost = [...waiters].filter(([, waiter]) => waiter.agentId === agentId);
      for (const [streamId] of lost) {
        const sentence = "The node was cut off while the stream was opened.";
        take(agentId, streamId)?.reject(new BerthError("agent-lost", sentence));
      }
    },
  };
}
