import type { Socket } from "node:net";
import type { FrameSink } from "../kit/frames.ts";

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

type Reader = {
  readonly resolve: (result: IteratorResult<Uint8Array>) => void;
  readonly reject: (error: Error) => void;
};

function createReadSide(socket: Socket) {
  const queue: Uint8Array[] = [];
  let held = 0;
  let over: "open" | "ended" | Error = "open";
  let reader: Reader | undefined;

  const finish = (how: "ended" | Error) => {
    if (over === "open") over = how;
    const waiting = reader;
    reader = undefined;
    if (waiting === undefined) return;
    if (over instanceof Error) waiting.reject(over);
    else waiting.resolve({ done: true, value: undefined });
  };
  const take = (chunk: Uint8Array) => {
    if (reader !== undefined) {
      const waiting = reader;
      reader = undefined;
      waiting.resolve({ done: false, value: chunk });
      return;
    }
    queue.push(chunk);
    held += chunk.length;
    if (held >= READ_AHEAD_BYTES) socket.pause();
  };
  socket.on("data", take);
  socket.on("end", () => finish("ended"));
  socket.on("close", () => finish(new Error("the stream was cut")));
  socket.on("error", (error) => finish(error));

  const next = (): Promise<IteratorResult<Uint8Array>> => {
    const chunk = queue.shift();
    if (chunk !== undefined) {
      held -= chunk.length;
      if (held < READ_AHEAD_BYTES / 2) socket.resume();
      return Promise.resolve({ done: false, value: chunk });
    }
    if (over === "ended") return Promise.resolve({ done: true, value: undefined });
    if (over instanceof Error) return Promise.reject(over);
    if (reader !== undefined) return Promise.reject(new Error("the stream has a reader already"));
    return new Promise((resolve, reject) => {
      reader = { resolve, reject };
    });
  };
  const unread = (bytes: Uint8Array) => {
    if (bytes.length === 0) return;
    queue.unshift(bytes);
    held += bytes.length;
  };
  return { next, unread };
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
  const { next, unread } = createReadSide(socket);
  return {
    write: createWriteSide(socket),
    end: () => {
      if (!socket.destroyed) socket.end();
    },
    destroy: (error) => {
      socket.destroy(error);
    },
    unread,
    closed,
    [Symbol.asyncIterator]: () => ({ next }),
  };
}
