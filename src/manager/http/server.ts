import { chmodSync, rmSync } from "node:fs";
import http from "node:http";
import https from "node:https";
import type { AddressInfo, Socket } from "node:net";
import type { Clock } from "../../kit/clock.ts";
import { BerthError, messageOf } from "../../kit/errors.ts";
import type { Logger } from "../../kit/log.ts";
import { isLoopback } from "../config.ts";
import type { Api } from "./api.ts";
import { type ConnectionLimits, createConnectionCount } from "./connections.ts";
import type { Via } from "./exchange.ts";

export type TlsFiles = { readonly certPem: string; readonly keyPem: string };

export type HttpServerOptions = {
  readonly api: Pick<Api, "request" | "upgrade">;
  readonly clock: Clock;
  readonly log: Logger;
  /** A TCP address, or the path of a Unix socket that only its owner may open. */
  readonly listen: { readonly host: string; readonly port: number } | { readonly path: string };
  /** HTTPS when given. */
  readonly tls?: TlsFiles | undefined;
  readonly limits?: Partial<ServerLimits>;
  /** Addresses that many clients share, such as a proxy's: `perClient` is not for them. Loopback when not given. */
  readonly exempt?: (address: string) => boolean;
};

export type ServerLimits = ConnectionLimits & {
  /** From the connection (or the answer before) to the end of the headers. */
  readonly headersMs: number;
  readonly keepAliveMs: number;
};

const LIMITS: ServerLimits = {
  connections: 10_000,
  perClient: 512,
  headersMs: 15_000,
  keepAliveMs: 75_000,
};

export type HttpServer = {
  /** The TCP port, 0 for a Unix socket. */
  readonly port: number;
  readonly connections: () => number;
  /** Stops listening, gives requests under way `graceMs` to end, then cuts them. */
  close(graceMs: number): Promise<void>;
};

/** Cuts connections on which no request comes: slow headers, idle keep-alive and half TLS handshakes. */
function createPatience(clock: Clock) {
  const timers = new Map<Socket, () => void>();
  const rest = (socket: Socket) => {
    timers.get(socket)?.();
    timers.delete(socket);
  };
  return {
    rest,
    wait: (socket: Socket, ms: number) => {
      rest(socket);
      if (!socket.destroyed)
        timers.set(
          socket,
          clock.after(ms, () => socket.destroy()),
        );
    },
  };
}

function explainListen(err: unknown, where: string): BerthError {
  const code = err instanceof Error && "code" in err ? err.code : undefined;
  if (code === "EADDRINUSE") {
    return new BerthError(
      "port-in-use",
      `${where} is in use by another program: choose another with --listen.`,
    );
  }
  return new BerthError("cannot-listen", `Cannot listen on ${where}: ${messageOf(err)}.`, { cause: err });
}

function listenOn(server: http.Server, listen: HttpServerOptions["listen"]): Promise<void> {
  const where = "path" in listen ? listen.path : `${listen.host}:${listen.port}`;
  return new Promise((resolve, reject) => {
    const refuse = (err: unknown) => reject(explainListen(err, where));
    server.once("error", refuse);
    const done = () => {
      server.off("error", refuse);
      resolve();
    };
    // Under Bun a failure to bind may be thrown instead of told.
    try {
      if ("path" in listen) server.listen(listen.path, done);
      else server.listen(listen.port, listen.host, done);
    } catch (err) {
      refuse(err);
    }
  });
}

/** The runtime knows this option; its types do not. */
type ServerOptions = http.ServerOptions & {
  readonly shouldUpgradeCallback: (request: http.IncomingMessage) => boolean;
};

/** An offer of any other protocol, such as HTTP/2's, may be ignored: its request is answered as it is. */
const asksForWebSocket = ({ headers }: http.IncomingMessage) =>
  headers.upgrade?.toLowerCase() === "websocket";

function makeServer(tls: TlsFiles | undefined): http.Server {
  const options: ServerOptions = { shouldUpgradeCallback: asksForWebSocket };
  if (tls === undefined) return http.createServer(options);
  return https.createServer({ ...options, cert: tls.certPem, key: tls.keyPem, minVersion: "TLSv1.2" });
}

/** Serves the API on one address. Throws `port-in-use` or `cannot-listen`. */
export async function startHttpServer(options: HttpServerOptions): Promise<HttpServer> {
  const { api, clock, log, listen, tls } = options;
  const limits = { ...LIMITS, ...options.limits };
  const via: Via = "path" in listen ? "local" : "network";
  const server = makeServer(tls);
  const sockets = new Set<Socket>();
  const count = createConnectionCount({ limits, exempt: options.exempt ?? isLoopback, log });
  const patience = createPatience(clock);
  // Ours alone decide: the runtime's own would also cut long answers and idle event streams.
  server.requestTimeout = 0;
  server.headersTimeout = 0;
  server.keepAliveTimeout = 0;
  server.timeout = 0;

  const onConnection = (socket: Socket) => {
    if (sockets.has(socket)) return;
    const { remoteAddress } = socket;
    if (!count.admit(remoteAddress)) return void socket.destroy();
    sockets.add(socket);
    socket.on("error", () => {});
    socket.once("close", () => {
      sockets.delete(socket);
      count.leave(remoteAddress);
      patience.rest(socket);
    });
    patience.wait(socket, limits.headersMs);
  };
  server.on("connection", onConnection);
  server.on("secureConnection", onConnection);

  server.on("request", (request, response) => {
    const { socket } = request;
    patience.rest(socket);
    response.once("close", () => patience.wait(socket, limits.keepAliveMs));
    api.request(request, response, via);
  });
  server.on("upgrade", (request, socket, head) => {
    patience.rest(request.socket);
    api.upgrade(request, socket, head, via);
  });
  server.on("clientError", (_err, socket) => {
    if (!socket.writable) return void socket.destroy();
    socket.end("HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\r\n");
  });

  if ("path" in listen) rmSync(listen.path, { force: true });
  await listenOn(server, listen);
  server.on("error", (err) => log.error({ err }, "the HTTP server failed"));
  if ("path" in listen) chmodSync(listen.path, 0o600);
  const address: AddressInfo | string | null = server.address();

  return {
    port: typeof address === "object" && address !== null ? address.port : 0,
    connections: count.open,
    close: async (graceMs) => {
      const closed = new Promise<void>((resolve) => server.close(() => resolve()));
      server.closeIdleConnections();
      const limit = new AbortController();
      await Promise.race([closed, clock.sleep(graceMs, limit.signal).catch(() => {})]);
      limit.abort();
      for (const socket of sockets) socket.destroy();
      server.closeAllConnections();
      if ("path" in listen) rmSync(listen.path, { force: true });
    },
  };
}
