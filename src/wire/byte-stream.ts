import type { Socket } from "node:net";
import type { FrameSink } from "../kit/frames.ts";
import { createInbox, type Inbox } from "./inbox.ts";

/** A two-way run of bytes with back-pressure both ways. */
export interface ByteStream extends FrameSink, AsyncIterable<Uint8Array> {
  /** Resolves when there is room for more; rejects when the stream is over. The bytes must not change after. */
  write(bytes: Uint8Array): Promise<void>;
  /** Ends the stream in good order: what was written still arrives. */
  end(): void;
  /**
   * Cuts the stream at once; what was not sent yet is lost. The other side may see an ordinary end, so what
   * must be told apart from a cut carries an end of its own (the frames exit, log-end, stdin-eof).
   */
  destroy(error?: Error): void;
  /** Gives bytes back, to be read first. Only while nobody waits for bytes. */
  unread(bytes: Uint8Array): void;
  /** Resolves when the stream is over, for whatever reason; never rejects. */
  readonly closed: Promise<void>;
  /**
   * The bytes that arrive, for one reader. Reading stops the sender when it is slow. Ends where the other
   * side ended the stream; throws where this side or the network cut it. Leaving a loop early does not close the stream.
   */
  [Symbol.asyncIterator](): AsyncIterator<Uint8Array>;
}

/** The most that is held for a slow reader before the sender is stopped, in bytes. */
const READ_AHEAD_BYTES = 256 * 1024;

function createReadSide(socket: Socket): Inbox<Uint8Array> {
  const inbox = createInbox<Uint8Array>({
    weigh: (chunk) => chunk.length,
    limit: READ_AHEAD_BYTES,
    pause: () => socket.pause(),
    resume: () => socket.resume(),
  });
  socket.on("data", inbox.put);
  socket.on("end", () => inbox.finish("ended"));
  socket.on("error", inbox.finish);
  socket.on("close", () => inbox.finish(new Error("the stream was cut")));
  return inbox;
}

function createWriteSide(socket: Socket) {
  let room: Promise<void> | undefined;
  const waitForRoom = (): Promise<void> => {
    // One wait is shared by all writers, so that many of them do not pile up listeners.
    room ??= new Promise<void>((resolve, reject) => {
      const settle = () => {
        socket.off("drain", settle);
        socket.off("close", settle);
        room = undefined;
        if (socket.destroyed) reject(new Error("the stream is over"));
        else resolve();
      };
      socket.on("drain", settle);
      socket.on("close", settle);
    });
    return room;
  };
  return (bytes: Uint8Array): Promise<void> => {
    if (socket.destroyed || !socket.writable) return Promise.reject(new Error("the stream is over"));
    return socket.write(bytes) ? Promise.resolve() : waitForRoom();
  };
}

/** Takes over a connected socket. Bytes flow, up to a bound, from now on. */
export function createByteStream(socket: Socket): ByteStream {
  const closed = new Promise<void>((resolve) => {
    if (socket.destroyed) resolve();
    else socket.once("close", () => resolve());
  });
  const inbox = createReadSide(socket);
  return {
    write: createWriteSide(socket),
    end: () => {
      if (!socket.destroyed) socket.end();
    },
    destroy: (error) => {
      socket.destroy(error);
    },
    unread: (bytes) => {
      if (bytes.length > 0) inbox.unread(bytes);
    },
    closed,
    [Symbol.asyncIterator]: () => ({ next: inbox.next }),
  };
}
