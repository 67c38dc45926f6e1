import type { Inbox } from "./inbox.ts";
import { createInbox } from "./inbox.ts";

/** How a link ended: by this side's `close`, by the other side in good order, or by the network or a refusal. */
export type LinkEnd = { readonly by: "us" | "peer" | "network"; readonly message: string };

/** One long two-way stream of messages between an agent and the manager. */
export interface Link<Out, In> {
  /**
   * Sends a message; messages keep their order. Resolves when there is room for more, which is not yet
   * delivery. Rejects when the link is over.
   */
  send(message: Out): Promise<void>;
  /** The messages that arrive, for one reader; a slow reader stops the sender. Ends when the link is over. */
  readonly messages: AsyncIterable<In>;
  /** Resolves when the link is over; never rejects. */
  readonly closed: Promise<LinkEnd>;
  /** Ends the link; messages sent before still leave when the other side reads. */
  close(): void;
}

/** The part of a gRPC duplex stream that both ends share. */
export interface Duplex<Out, In> {
  write(message: Out): boolean;
  pause(): unknown;
  resume(): unknown;
  on(event: "data", listener: (message: In) => void): unknown;
  on(event: "drain" | "end", listener: () => void): unknown;
}

/** Messages that are held for a slow reader before the sender is stopped. */
const READ_AHEAD_MESSAGES = 64;

export type LinkCore<Out, In> = {
  readonly link: Omit<Link<Out, In>, "close">;
  /** Tells that the link is over; the first call counts. */
  finish(end: LinkEnd): void;
};

/** Back-pressure and the end of a link, for either side. */
export function createLinkCore<Out, In>(call: Duplex<Out, In>): LinkCore<Out, In> {
  const closed = Promise.withResolvers<LinkEnd>();
  let over = false;
  const inbox: Inbox<In> = createInbox({
    weigh: () => 1,
    limit: READ_AHEAD_MESSAGES,
    pause: () => call.pause(),
    resume: () => call.resume(),
  });
  let room: PromiseWithResolvers<void> | undefined;
  const settleRoom = () => {
    const waiting = room;
    room = undefined;
    if (over) waiting?.reject(new Error("the link is over"));
    else waiting?.resolve();
  };
  call.on("data", inbox.put);
  call.on("drain", settleRoom);

  const send = (message: Out): Promise<void> => {
    if (over) return Promise.reject(new Error("the link is over"));
    if (call.write(message)) return Promise.resolve();
    room ??= Promise.withResolvers<void>();
    return room.promise;
  };
  const finish = (end: LinkEnd) => {
    if (over) return;
    over = true;
    inbox.finish("ended");
    settleRoom();
    closed.resolve(end);
  };
  return {
    link: {
      send,
      messages: { [Symbol.asyncIterator]: () => ({ next: inbox.next }) },
      closed: closed.promise,
    },
    finish,
  };
}

/** gRPC settings that both ends share: keep-alive finds a dead network in about 20 s; times in ms. */
export const LINK_CHANNEL_OPTIONS = {
  "grpc.keepalive_time_ms": 15_000,
  "grpc.keepalive_timeout_ms": 5_000,
  "grpc.keepalive_permit_without_calls": 1,
  "grpc.max_receive_message_length": 16 * 1024 * 1024,
  "grpc.max_send_message_length": 16 * 1024 * 1024,
  "grpc.enable_channelz": 0,
} as const;
