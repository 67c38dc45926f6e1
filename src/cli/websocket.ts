import { createHash, randomBytes } from "node:crypto";
import net, { isIP } from "node:net";
import tls from "node:tls";
import { BerthError, messageOf } from "../kit/errors.ts";
import { ApiError } from "./failures.ts";
import { connectionFault, problemOf } from "./faults.ts";
import type { Target } from "./target.ts";
import { tlsOptions } from "./tls.ts";
import { createServerFrameReader, encodeClientFrame, OPCODE } from "./websocket-frames.ts";

/**
 * A WebSocket of binary messages. The runtime's own WebSocket neither stops reading when its reader is
 * slow nor speaks over a local socket, so this one is ours, on a plain connection.
 */
export interface WebSocketLink {
  /** Resolves when the connection has room for more. */
  send(bytes: Uint8Array): Promise<void>;
  /** Messages, read only as fast as they are taken. Throws `connection-lost` unless closed in order. */
  messages(): AsyncIterable<Uint8Array>;
  close(): void;
}

type Request = {
  readonly target: Target;
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly signal?: AbortSignal;
};

const CONNECT_MS = 15_000;
const PING_EVERY_MS = 15_000;
const SILENT_MS = 45_000;
const MAX_HEAD = 64 * 1024;
const ACCEPT_GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

function connect(target: Target): net.Socket {
  if (target.socket !== undefined) return net.connect({ path: target.socket });
  const url = new URL(target.url);
  const host = url.hostname.replace(/^\[|\]$/g, "");
  const port = Number(url.port || (url.protocol === "https:" ? 443 : 80));
  if (url.protocol === "http:") return net.connect({ host, port });
  return tls.connect({
    host,
    port,
    ...(isIP(host) ? {} : { servername: host }),
    ...tlsOptions(target.trust),
  });
}

function connected(socket: net.Socket, target: Target): Promise<void> {
  const secure = target.socket === undefined && target.url.startsWith("https:");
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => socket.destroy(new DOMException("late", "TimeoutError")), CONNECT_MS);
    socket.once(secure ? "secureConnect" : "connect", () => {
      clearTimeout(timer);
      resolve();
    });
    socket.once("error", (error) => {
      clearTimeout(timer);
      reject(connectionFault(target, error));
    });
  });
}

type Head = {
  readonly status: number;
  readonly headers: ReadonlyMap<string, string>;
  readonly rest: Uint8Array;
};

async function readHead(chunks: AsyncIterator<Uint8Array>): Promise<Head> {
  let held = Buffer.alloc(0);
  for (;;) {
    const { value, done } = await chunks.next();
    if (done) throw new BerthError("unreachable", "The manager closed the connection before it answered.");
    held = Buffer.concat([held, value]);
    const end = held.indexOf("\r\n\r\n");
    if (end >= 0) {
      const [first = "", ...lines] = held.subarray(0, end).toString("latin1").split("\r\n");
      const headers = new Map(
        lines.map((line): [string, string] => {
          const colon = line.indexOf(":");
          return [line.slice(0, colon).toLowerCase(), line.slice(colon + 1).trim()];
        }),
      );
      return { status: Number(first.split(" ")[1]), headers, rest: held.subarray(end + 4) };
    }
    if (held.length > MAX_HEAD) throw new BerthError("unexpected-answer", "The answer's head is too long.");
  }
}

/** The body of a refusal: its length is given, or it ends with the connection. */
async function readRefusal(head: Head, chunks: AsyncIterator<Uint8Array>): Promise<ApiError> {
  const length = Number(head.headers.get("content-length") ?? MAX_HEAD);
  let body = Buffer.from(head.rest);
  while (body.length < Math.min(length, MAX_HEAD)) {
    const { value, done } = await chunks.next();
    if (done) break;
    body = Buffer.concat([body, value]);
  }
  const text = body.toString();
  const json = text.slice(Math.max(text.indexOf("{"), 0), text.lastIndexOf("}") + 1);
  return new ApiError(problemOf(head.status, json, head.headers.get("x-request-id") ?? null));
}

/** Opens a WebSocket. Throws what the manager refused with, or `unreachable`. */
export async function openWebSocket({ target, path, headers, signal }: Request): Promise<WebSocketLink> {
  signal?.throwIfAborted();
  const socket = connect(target);
  const onAbort = () => socket.destroy();
  signal?.addEventListener("abort", onAbort, { once: true });
  socket.once("close", () => signal?.removeEventListener("abort", onAbort));
  try {
    await connected(socket, target);
    // Faults from here on come out of the iterator; the event needs a listener all the same.
    socket.on("error", () => {});
    socket.setNoDelay(true);
    const key = randomBytes(16).toString("base64");
    const lines = Object.entries({
      host: new URL(target.url).host,
      upgrade: "websocket",
      connection: "Upgrade",
      "sec-websocket-key": key,
      "sec-websocket-version": "13",
      ...headers,
    }).map(([name, value]) => `${name}: ${value}\r\n`);
    socket.write(`GET ${path} HTTP/1.1\r\n${lines.join("")}\r\n`);
    const chunks: AsyncIterator<Uint8Array> = socket[Symbol.asyncIterator]();
    const head = await readHead(chunks);
    if (head.status !== 101) throw await readRefusal(head, chunks);
    const accept = createHash("sha1")
      .update(key + ACCEPT_GUID)
      .digest("base64");
    if (head.headers.get("sec-websocket-accept") !== accept) {
      throw new BerthError("unexpected-answer", "The manager's answer is not that of a WebSocket.");
    }
    return linkOn(socket, chunks, head.rest);
  } catch (error) {
    socket.destroy();
    throw connectionFault(target, error);
  }
}

function linkOn(socket: net.Socket, chunks: AsyncIterator<Uint8Array>, first: Uint8Array): WebSocketLink {
  let waitingSince: number | undefined;
  let closing = false;
  const write = (opcode: number, payload: Uint8Array) =>
    new Promise<void>((resolve, reject) => {
      if (socket.destroyed) return reject(lost());
      socket.write(encodeClientFrame(opcode, payload), (error) => (error ? reject(lost(error)) : resolve()));
    });
  const quietly = (opcode: number, payload: Uint8Array) => {
    write(opcode, payload).catch(() => {});
  };
  // Silence counts only while somebody waits for a message: a slow reader is no fault of the connection.
  const pulse = setInterval(() => {
    if (waitingSince !== undefined && performance.now() - waitingSince > SILENT_MS) socket.destroy();
    else quietly(OPCODE.ping, new Uint8Array(0));
  }, PING_EVERY_MS);
  socket.once("close", () => clearInterval(pulse));

  async function next(): Promise<Uint8Array | undefined> {
    waitingSince = performance.now();
    try {
      const { value, done } = await chunks.next();
      return done ? undefined : value;
    } catch (error) {
      throw lost(error);
    } finally {
      waitingSince = undefined;
    }
  }

  async function* messages(): AsyncGenerator<Uint8Array> {
    const read = createServerFrameReader();
    for (let chunk: Uint8Array | undefined = first; chunk !== undefined; chunk = await next()) {
      for (const { opcode, payload } of read(chunk)) {
        if (opcode === OPCODE.binary || opcode === OPCODE.text) yield payload;
        if (opcode === OPCODE.ping) quietly(OPCODE.pong, payload);
        if (opcode === OPCODE.close) return closed(payload);
      }
    }
    if (!closing) throw lost();
  }

  function closed(payload: Uint8Array): void {
    quietly(OPCODE.close, payload.subarray(0, 2));
    socket.end();
    const code = payload.length < 2 ? 1005 : new DataView(payload.buffer, payload.byteOffset).getUint16(0);
    if (closing || code === 1000 || code === 1005) return;
    throw lost(new Error(new TextDecoder().decode(payload.subarray(2)) || `close code ${code}`));
  }

  return {
    send: (bytes) => write(OPCODE.binary, bytes),
    messages,
    close: () => {
      closing = true;
      quietly(OPCODE.close, new Uint8Array([0x03, 0xe8]));
      socket.end();
      setTimeout(() => socket.destroy(), 1000).unref();
    },
  };
}

function lost(cause?: unknown): BerthError {
  const why = cause === undefined ? "" : ` (${messageOf(cause)})`;
  return new BerthError("connection-lost", `The connection to the session was lost${why}.`, { cause });
}
