import { type IncomingMessage, type ServerResponse, STATUS_CODES } from "node:http";
import type { Duplex } from "node:stream";
import { getRequestListener, RequestError } from "@hono/node-server";
import { RESPONSE_ALREADY_SENT } from "@hono/node-server/utils/response";
import type { Route } from "../../contract/route.ts";
import type { Clock } from "../../kit/clock.ts";
import { BerthError, isBerthError } from "../../kit/errors.ts";
import type { Logger } from "../../kit/log.ts";
import type { Revocations } from "../accounts/revocations.ts";
import { type Authenticate, createGate } from "./access.ts";
import { createApp, type Served } from "./app.ts";
import type { ClientReader } from "./client.ts";
import {
  type Bindings,
  commonHeaders,
  type Exchange,
  problemAnswer,
  readExchange,
  type Via,
} from "./exchange.ts";
import type { Mounted } from "./handle.ts";
import type { Idempotency } from "./idempotency.ts";
import type { Page } from "./pages.ts";
import { createPipeline, notAWebSocket } from "./pipeline.ts";
import { problemOf } from "./problems.ts";

export type ApiOptions = {
  /** Every route of the contract, each once. */
  readonly routes: readonly Mounted[];
  readonly contract: readonly Route[];
  readonly pages: ReadonlyMap<string, Page>;
  readonly authenticate: Authenticate;
  readonly revocations: Revocations;
  readonly idempotency: Idempotency;
  readonly readClient: ClientReader;
  readonly publicOrigin: string | undefined;
  readonly clock: Clock;
  readonly log: Logger;
  readonly onServed?: (served: Served) => void;
  /** Checks every answer against its schema: for tests and development, where a mismatch becomes a 500. */
  readonly checkAnswers: boolean;
};

export type Api = {
  request(request: IncomingMessage, response: ServerResponse, via: Via): void;
  upgrade(request: IncomingMessage, socket: Duplex, head: Buffer, via: Via): void;
  /** Aborts what is under way, so that the listeners can close. */
  stop(): void;
};

function checkMounts(routes: readonly Mounted[], contract: readonly Route[]): void {
  const mounted = routes.map(({ route }) => route.id);
  const missing = contract.filter(({ id }) => !mounted.includes(id)).map(({ id }) => id);
  const twice = mounted.filter((id, at) => mounted.indexOf(id) !== at);
  const strange = mounted.filter((id) => !contract.some((route) => route.id === id));
  const faults = [
    ...missing.map((id) => `${id} is not mounted`),
    ...twice.map((id) => `${id} is mounted twice`),
    ...strange.map((id) => `${id} is not in the contract`),
  ];
  if (faults.length > 0) throw new TypeError(`routes: ${faults.join("; ")}`);
}

/** Sends an answer on a connection that has no `ServerResponse`, and ends it. */
async function answerOnSocket(socket: Duplex, exchange: Exchange, response: Response): Promise<void> {
  const body = Buffer.from(await response.arrayBuffer());
  const headers = new Headers({ ...commonHeaders(exchange), connection: "close" });
  for (const [name, value] of response.headers) headers.set(name, value);
  headers.set("content-length", String(body.length));
  const lines = [...headers].map(([name, value]) => `${name}: ${value}\r\n`);
  const { status } = response;
  socket.write(`HTTP/1.1 ${status} ${STATUS_CODES[status] ?? ""}\r\n${lines.join("")}\r\n`);
  socket.end(body);
}

/**
 * The API as a Hono app on `node:http`. Throws when the mounted routes are not exactly those of the contract.
 */
export function createApi(options: ApiOptions): Api {
  const { clock, log, readClient } = options;
  checkMounts(options.routes, options.contract);
  const stopping = new AbortController();

  function report({ requestId, method, path }: Exchange, thrown: unknown): void {
    if (!isBerthError(thrown)) log.error({ err: thrown, requestId, method, path }, "a request failed");
  }

  function refuse({ exchange, target }: Bindings, thrown: unknown): Response {
    report(exchange, thrown);
    if (target.kind === "response" && target.response.headersSent) {
      // Half an answer is on its way: cut it, so that nobody takes it for the whole.
      target.response.destroy();
      return RESPONSE_ALREADY_SENT;
    }
    return problemAnswer(exchange, problemOf(thrown, exchange.requestId));
  }

  const pipeline = createPipeline({ ...options, gate: createGate(options), report });
  const app = createApp({
    routes: options.routes,
    pages: options.pages,
    serve: pipeline,
    refuse,
    clock,
    onServed: (served) => options.onServed?.(served),
  });

  /** A signal that aborts when the connection closes or the manager stops. */
  function signalOf(connection: { once(event: "close", fn: () => void): unknown }): AbortSignal {
    const gone = new AbortController();
    const onStop = () => gone.abort(stopping.signal.reason);
    if (stopping.signal.aborted) onStop();
    stopping.signal.addEventListener("abort", onStop, { once: true });
    connection.once("close", () => {
      stopping.signal.removeEventListener("abort", onStop);
      gone.abort(new BerthError("request-cut", "The client went away."));
    });
    return gone.signal;
  }

  /** What is thrown before the app has the request, or past it. */
  const refuseEarly = (bindings: Bindings, thrown: unknown) =>
    thrown instanceof RequestError
      ? refuse(
          bindings,
          new BerthError("invalid-request", "The address or the Host header of the request is not valid."),
        )
      : refuse(bindings, thrown);

  return {
    request: (request, response, via) => {
      const exchange = readExchange(request, via, readClient);
      const target = { kind: "response", response } as const;
      const bindings: Bindings = { exchange, target, signal: signalOf(response) };
      response.on("error", (err) => log.debug({ err }, "an answer failed"));
      for (const [name, value] of Object.entries(commonHeaders(exchange))) response.setHeader(name, value);
      const listener = getRequestListener(
        async (asked) => {
          const answer = await app.fetch(asked, bindings);
          return response.destroyed ? RESPONSE_ALREADY_SENT : answer;
        },
        {
          errorHandler: (err) => refuseEarly(bindings, err),
          // HTTP/1.0 names none; health checks speak it.
          hostname: "localhost",
          // The rest of the process keeps the runtime's own Request and Response.
          overrideGlobalObjects: false,
          // Bodies are read, timed and given up by the pipeline alone.
          autoCleanupIncoming: false,
        },
      );
      listener(request, response).catch((err: unknown) => log.error({ err }, "an answer could not be sent"));
    },
    upgrade: (request, socket, head, via) => {
      const exchange = readExchange(request, via, readClient);
      const bindings: Bindings = {
        exchange,
        target: { kind: "upgrade", socket, head },
        signal: signalOf(socket),
      };
      socket.on("error", (err) => log.debug({ err }, "a connection failed"));
      const ask = async () => {
        if (exchange.method !== "GET") throw notAWebSocket();
        // The app looks at the exchange alone; the address of this request is none.
        return app.fetch(new Request("http://upgrade.invalid/"), bindings);
      };
      ask()
        .catch((err: unknown) => refuse(bindings, err))
        .then((answer) => {
          if (answer !== RESPONSE_ALREADY_SENT) return answerOnSocket(socket, exchange, answer);
        })
        .catch((err: unknown) => log.error({ err }, "an answer could not be sent"));
    },
    stop: () => stopping.abort(new BerthError("stopping", "The manager stops.")),
  };
}
