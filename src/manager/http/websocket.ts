import type { IncomingMessage } from "node:http";
import type { Duplex } from "node:stream";
import { type RawData, type WebSocket, WebSocketServer } from "ws";
import type { Clock } from "../../kit/clock.ts";
import { BerthError } from "../../kit/errors.ts";
import { MAX_FRAME_BYTES } from "../../kit/frames.ts";
import type { Logger } from "../../kit/log.ts";
import type { ClientSocket } from "./handle.ts";

/** The longest frame with its header. */
const MAX_MESSAGE = MAX_FRAME_BYTES + 64;
/** What may wait to be sent before `send` makes the sender wait. */
const HIGH_WATER = 256 * 1024;
/** What may wait to be handled; a client that keeps to its credits stays far below. */
const MAX_INBOX = 8 * 1024 * 1024;
const PING_MS = 20_000;
const DRAIN_POLL_MS = 5;
/** How long a client may take to read what is left and to answer a close. */
const CLOSE_MS = 30_000;
/** The same for one whose account or token ended. */
const CUT_MS = 2_000;

function bytesOf(data: RawData): Uint8Array {
  if (Array.isArray(data)) return Buffer.concat(data);
  return data instanceof ArrayBuffer ? new Uint8Array(data) : data;
}

type Inbox = {
  push(message: Uint8Array): void;
  end(): void;
  readonly messages: AsyncIterable<Uint8Array>;
};

/** Messages that wait for their reader, at most `limit` bytes; beyond that `onFull` is called. */
function createInbox(limit: number, onFull: () => void): Inbox {
  const waiting: Uint8Array[] = [];
  let size = 0;
  let ended = false;
  let wake = Promise.withResolvers<void>();

  async function* read(): AsyncGenerator<Uint8Array> {
    for (;;) {
      const next = waiting.shift();
      if (next !== undefined) {
        size -= next.byteLength;
        yield next;
      } else if (ended) return;
      else {
        wake = Promise.withResolvers();
        await wake.promise;
      }
    }
  }

  return {
    push: (message) => {
      if (size + message.byteLength > limit) return onFull();
      size += message.byteLength;
      waiting.push(message);
      wake.resolve();
    },
    end: () => {
      ended = true;
      wake.resolve();
    },
    messages: read(),
  };
}

/** Pings a client, so that proxies keep the connection and one that vanished is noticed. */
function keepAlive(socket: WebSocket, clock: Clock): () => void {
  let answered = true;
  socket.on("pong", () => {
    answered = true;
  });
  return clock.every(PING_MS, () => {
    if (!answered) return socket.terminate();
    answered = false;
    socket.ping();
  });
}

/** A client's socket with what the server alone may do. */
export type ServerSocket = ClientSocket & {
  /** Closes without patience. */
  cut(code: number, reason: string): void;
};

function wrap(socket: WebSocket, clock: Clock, log: Logger): ServerSocket {
  const closed = Promise.withResolvers<void>();
  const inbox = createInbox(MAX_INBOX, () => socket.close(1009, "more than was granted"));
  const stopPings = keepAlive(socket, clock);
  socket.on("error", (err) => log.debug({ err }, "a WebSocket failed"));
  socket.on("message", (data) => inbox.push(bytesOf(data)));
  socket.on("close", () => {
    stopPings();
    giveUp();
    inbox.end();
    closed.resolve();
  });
  let giveUp = () => {};
  const closeWithin = (ms: number, code: number, reason: string) => {
    giveUp();
    giveUp = clock.after(ms, () => socket.terminate());
    socket.close(code, reason);
  };
  const isOpen = () => socket.readyState === socket.OPEN;

  return {
    send: async (message) => {
      if (!isOpen()) return;
      socket.send(message, { binary: true });
      // There is no event for a drained socket, so its buffer is looked at.
      while (isOpen() && socket.bufferedAmount > HIGH_WATER) {
        await Promise.race([clock.sleep(DRAIN_POLL_MS), closed.promise]);
      }
    },
    messages: inbox.messages,
    closed: closed.promise,
    close: (code = 1000, reason = "") => closeWithin(CLOSE_MS, code, reason),
    cut: (code, reason) => closeWithin(CUT_MS, code, reason),
  };
}

export type WebSockets = {
  /** Whether the request asks for a WebSocket as RFC 6455 says. Throws `not-a-websocket` otherwise. */
  check(request: IncomingMessage): void;
  accept(request: IncomingMessage, socket: Duplex, head: Buffer, log: Logger): Promise<ServerSocket>;
};

export function createWebSockets(deps: { readonly clock: Clock }): WebSockets {
  const server = new WebSocketServer({ noServer: true, maxPayload: MAX_MESSAGE, perMessageDeflate: false });
  return {
    check: ({ headers }) => {
      const key = headers["sec-websocket-key"];
      const fits =
        headers.upgrade?.toLowerCase() === "websocket" && headers["sec-websocket-version"] === "13";
      if (fits && typeof key === "string" && /^[A-Za-z0-9+/]{22}==$/.test(key)) return;
      throw new BerthError("not-a-websocket", "This address speaks WebSocket (version 13) only.");
    },
    accept: (request, socket, head, log) =>
      new Promise((resolve) => {
        server.handleUpgrade(request, socket, head, (client) => resolve(wrap(client, deps.clock, log)));
      }),
  };
}
