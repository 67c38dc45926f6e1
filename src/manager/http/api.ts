import type { IncomingMessage, ServerResponse } from "node:http";
import type { Duplex } from "node:stream";
import type { z } from "zod";
import type { Route } from "../../contract/route.ts";
import type { Clock } from "../../kit/clock.ts";
import { BerthError, isBerthError } from "../../kit/errors.ts";
import type { Logger } from "../../kit/log.ts";
import type { Principal } from "../accounts/principal.ts";
import type { RevocationReason, Revocations } from "../accounts/revocations.ts";
import type { Authenticate } from "./access.ts";
import { createGate } from "./access.ts";
import { decodeParams, parseJson, parseQuery, readBody } from "./body.ts";
import type { ClientReader } from "./client.ts";
import {
  credentialsOf,
  type Exchange,
  headerOf,
  methodNotAllowed,
  pathNotFound,
  problemHeaders,
  readExchange,
  sendEmpty,
  sendJson,
  sendProblem,
  setHeaders,
  type Via,
} from "./exchange.ts";
import type { AllowedRequest, Mounted, RequestOf } from "./handle.ts";
import { type Attempt, checkKey, hashOf, type Idempotency } from "./idempotency.ts";
import type { Page } from "./pages.ts";
import { invalidRequest, problemOf } from "./problems.ts";
import { createRouter } from "./router.ts";
import { sendStream } from "./streams.ts";
import { createWebSockets } from "./websocket.ts";

export type Served = {
  readonly route: string;
  readonly method: string;
  readonly status: number;
  readonly ms: number;
};

export type ApiOptions = {
  /** Every route of the contract, each once. */
  readonly routes: readonly Mounted[];
  readonly contract: readonly Route[];
  readonly pages: (path: string) => Page | undefined;
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

function parsed(schema: z.ZodType | undefined, input: unknown, root: string): unknown {
  if (schema === undefined) return undefined;
  const result = schema.safeParse(input);
  if (!result.success) throw invalidRequest(result.error, input, root);
  return result.data;
}

const SAFE_METHODS = ["GET", "HEAD"];

/**
 * The pipeline of every request: route, access, schemas, handler, answer. Nothing of a request is read before its
 * access is decided. Throws when the mounted routes are not exactly those of the contract.
 */
export function createApi(options: ApiOptions): Api {
  const { revocations, idempotency, clock, log, readClient, checkAnswers } = options;
  checkMounts(options.routes, options.contract);
  const router = createRouter(options.routes);
  const gate = createGate(options);
  const webSockets = createWebSockets({ clock });
  const stopping = new AbortController();

  function fail(exchange: Exchange, thrown: unknown) {
    const { requestId, method, path } = exchange;
    if (!isBerthError(thrown)) log.error({ err: thrown, requestId, method, path }, "a request failed");
    return problemOf(thrown, requestId);
  }

  function requestOf(
    exchange: Exchange,
    response: ServerResponse | undefined,
    parts: { params: unknown; query: unknown; body: unknown },
    signal: AbortSignal,
  ): RequestOf<unknown, unknown, unknown> {
    const { requestId, client, request } = exchange;
    return {
      ...parts,
      requestId,
      address: client.address,
      secure: client.secure,
      signal,
      header: (name) => headerOf(request, name),
      setHeader: (name, value) => response?.setHeader(name, value),
    };
  }

  function parseTarget(exchange: Exchange, route: Route, params: Readonly<Record<string, string>>) {
    return {
      params: parsed(route.params, decodeParams(params), "The path"),
      query: parsed(route.query, parseQuery(new URLSearchParams(exchange.search)), "The query"),
    };
  }

  /** Runs a handler and, where that is wanted, checks what it answers. */
  async function checkedBody({ id, answer }: Route, run: () => Promise<unknown>): Promise<unknown> {
    const body = await run();
    const checked = checkAnswers && answer.kind === "json" ? answer.schema.safeParse(body) : undefined;
    if (checked?.success === false) throw new TypeError(`answer of ${id}: ${checked.error.message}`);
    return body;
  }

  /** Carries a create out once for its key. */
  async function once(mounted: Mounted, attempt: Attempt, status: number, run: () => Promise<unknown>) {
    if (mounted.kind === "answer" && mounted.whole) return idempotency.whole(attempt, status, run);
    const kept = await idempotency.begin(attempt);
    if (kept !== undefined) return { replayed: true, body: kept.body };
    let body: unknown;
    try {
      body = await run();
    } catch (err) {
      await idempotency.forget(attempt);
      throw err;
    }
    await idempotency.finish(attempt, { status, body });
    return { replayed: false, body };
  }

  async function answerJson(
    mounted: Extract<Mounted, { kind: "answer" | "public" }>,
    exchange: Exchange,
    response: ServerResponse,
    handler: () => Promise<unknown>,
    claim: (() => Attempt) | undefined,
  ): Promise<void> {
    const { route } = mounted;
    const run = () => checkedBody(route, handler);
    if (route.answer.kind !== "json") {
      await run();
      return sendEmpty(response, exchange.requestId);
    }
    const { status } = route.answer;
    const attempt = claim?.();
    const outcome = attempt === undefined ? undefined : await once(mounted, attempt, status, run);
    if (outcome?.replayed === true) response.setHeader("idempotency-replayed", "true");
    sendJson(response, exchange.requestId, status, outcome === undefined ? await run() : outcome.body);
  }

  /** A signal that also aborts when the principal's account or token ends. */
  function aliveOf(principal: Principal, signal: AbortSignal) {
    const cut = new AbortController();
    const release = revocations.onRevoked(principal, (reason) => cut.abort(reason));
    const onAbort = () => cut.abort(signal.reason);
    if (signal.aborted) onAbort();
    signal.addEventListener("abort", onAbort, { once: true });
    return {
      alive: cut.signal,
      release: () => {
        release();
        signal.removeEventListener("abort", onAbort);
      },
    };
  }

  async function answerStream(
    mounted: Extract<Mounted, { kind: "stream" }>,
    exchange: Exchange,
    response: ServerResponse,
    request: AllowedRequest<unknown, unknown, unknown>,
  ): Promise<void> {
    const answer = await mounted.run(request);
    const declared = mounted.route.answer.kind === "stream" ? mounted.route.answer.contentType : "";
    setHeaders(response, exchange.requestId, {
      "content-type": answer.contentType ?? declared,
      // Proxies such as nginx would hold a stream back.
      "x-accel-buffering": "no",
    });
    response.statusCode = 200;
    if (exchange.method === "HEAD") return void response.end();
    await sendStream(response, answer, request.alive);
  }

  async function serveRoute(
    mounted: Mounted,
    params: Readonly<Record<string, string>>,
    exchange: Exchange,
    response: ServerResponse,
    signal: AbortSignal,
  ): Promise<void> {
    const { route } = mounted;
    const { access } = route;
    const credentials = credentialsOf(exchange, !SAFE_METHODS.includes(exchange.method));
    if (access.kind === "public") {
      gate.admitAnybody(credentials);
      if (mounted.kind !== "public")
        throw new TypeError(`${route.id} is public and mounted as ${mounted.kind}`);
      const target = parseTarget(exchange, route, params);
      const { body } = await readJson(exchange, route);
      const request = requestOf(exchange, response, { ...target, body }, signal);
      return answerJson(mounted, exchange, response, () => mounted.run(request), undefined);
    }
    const principal = await gate.admit(access, credentials);
    if (mounted.kind === "websocket") {
      throw new BerthError("not-a-websocket", "This address speaks WebSocket (version 13) only.");
    }
    if (mounted.kind === "public") throw new TypeError(`${route.id} is not public`);
    const target = parseTarget(exchange, route, params);
    const { body, bytes } = await readJson(exchange, route);
    const { alive, release } = aliveOf(principal, signal);
    const request = { ...requestOf(exchange, response, { ...target, body }, signal), principal, alive };
    try {
      if (mounted.kind === "stream") return await answerStream(mounted, exchange, response, request);
      const claim = attemptOf(exchange, route, principal, bytes);
      await answerJson(mounted, exchange, response, () => mounted.run(request), claim);
    } finally {
      release();
    }
  }

  async function readJson(exchange: Exchange, route: Route): Promise<{ body: unknown; bytes: Buffer }> {
    if (route.body === undefined) return { body: undefined, bytes: Buffer.alloc(0) };
    const bytes = await readBody(exchange.request, clock);
    const input = parseJson(bytes, headerOf(exchange.request, "content-type"));
    return { body: parsed(route.body, input, "The body"), bytes };
  }

  function attemptOf(exchange: Exchange, route: Route, principal: Principal, bytes: Buffer) {
    const key = route.idempotent === true ? headerOf(exchange.request, "idempotency-key") : undefined;
    if (key === undefined) return undefined;
    return (): Attempt => ({
      user: principal.kind === "local" ? "local" : principal.userId,
      route: route.id,
      key: checkKey(key),
      hash: hashOf(exchange.path, exchange.search, bytes),
    });
  }

  function sendPage(exchange: Exchange, response: ServerResponse, page: Page): void {
    if (!SAFE_METHODS.includes(exchange.method)) throw methodNotAllowed(exchange.method, ["GET", "HEAD"]);
    setHeaders(response, exchange.requestId, page.headers);
    response.end(page.body);
  }

  async function serve(exchange: Exchange, response: ServerResponse, signal: AbortSignal): Promise<void> {
    try {
      const match = router.match(exchange.method, exchange.path);
      const page = match.kind === "none" ? options.pages(exchange.path) : undefined;
      if (page !== undefined) return sendPage(exchange, response, page);
      if (match.kind === "none") throw pathNotFound(exchange.path);
      if (match.kind === "wrong-method") throw methodNotAllowed(exchange.method, match.allow);
      await serveRoute(match.mounted, match.params, exchange, response, signal);
    } catch (err) {
      // Half an answer is on its way: cut it, so that nobody takes it for the whole.
      if (response.headersSent) {
        if (!isBerthError(err)) fail(exchange, err);
        response.destroy();
      } else sendProblem(exchange, response, fail(exchange, err));
    }
  }

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

  function routeName(exchange: Exchange): string {
    const match = router.match(exchange.method, exchange.path);
    return match.kind === "found" ? match.mounted.route.id : match.kind;
  }

  async function openWebSocket(exchange: Exchange, socket: Duplex, head: Buffer): Promise<void> {
    const match = router.match(exchange.method, exchange.path);
    if (match.kind === "none") throw pathNotFound(exchange.path);
    if (match.kind === "wrong-method") throw methodNotAllowed(exchange.method, match.allow);
    const { mounted } = match;
    const { access } = mounted.route;
    if (mounted.kind !== "websocket" || access.kind === "public") {
      throw new BerthError("not-a-websocket", "This address does not speak WebSocket.");
    }
    const principal = await gate.admit(access, credentialsOf(exchange, true));
    webSockets.check(exchange.request);
    const target = parseTarget(exchange, mounted.route, match.params);
    const { alive, release } = aliveOf(principal, signalOf(socket));
    try {
      const parts = { ...target, body: undefined };
      const request = { ...requestOf(exchange, undefined, parts, alive), principal, alive };
      const talk = await mounted.run(request);
      if (socket.destroyed) return;
      const client = await webSockets.accept(exchange.request, socket, head, log);
      const onCut = () => client.cut(1008, reasonText(alive.reason));
      if (alive.aborted) onCut();
      alive.addEventListener("abort", onCut, { once: true });
      await talk(client).catch((err: unknown) => {
        const problem = fail(exchange, err);
        client.close(1011, problem.code);
      });
      if (!alive.aborted) client.close();
      await client.closed;
    } finally {
      release();
    }
  }

  return {
    request: (request, response, via) => {
      const started = clock.mono();
      const exchange = readExchange(request, via, readClient);
      response.on("error", (err) => log.debug({ err }, "an answer failed"));
      serve(exchange, response, signalOf(response))
        .catch((err: unknown) => log.error({ err }, "an answer could not be sent"))
        .finally(() => {
          const { method } = exchange;
          const served = { method, status: response.statusCode, ms: clock.mono() - started };
          options.onServed?.({ ...served, route: routeName(exchange) });
        });
    },
    upgrade: (request, socket, head, via) => {
      const exchange = readExchange(request, via, readClient);
      socket.on("error", (err) => log.debug({ err }, "a connection failed"));
      openWebSocket(exchange, socket, head).catch((err: unknown) => {
        const problem = fail(exchange, err);
        const body = JSON.stringify(problem);
        const headers = Object.entries(problemHeaders(problem)).map(
          ([name, value]) => `${name}: ${value}\r\n`,
        );
        socket.end(
          `HTTP/1.1 ${problem.status} ${problem.title}\r\nconnection: close\r\nx-request-id: ${problem.requestId}\r\n` +
            `${headers.join("")}content-length: ${Buffer.byteLength(body)}\r\n\r\n${body}`,
        );
      });
    },
    stop: () => stopping.abort(new BerthError("stopping", "The manager stops.")),
  };
}

function reasonText(reason: unknown): string {
  const known: readonly RevocationReason[] = ["account-inactive", "token-ended", "role-changed"];
  return known.find((text) => text === reason) ?? "stopping";
}
