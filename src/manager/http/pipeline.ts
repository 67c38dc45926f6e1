import { RESPONSE_ALREADY_SENT } from "@hono/node-server/utils/response";
import type { z } from "zod";
import type { Route } from "../../contract/route.ts";
import type { Clock } from "../../kit/clock.ts";
import { BerthError } from "../../kit/errors.ts";
import type { Logger } from "../../kit/log.ts";
import type { Principal } from "../accounts/principal.ts";
import type { RevocationReason, Revocations } from "../accounts/revocations.ts";
import type { Gate } from "./access.ts";
import { decodeParams, parseJson, parseQuery, readBody } from "./body.ts";
import { type Bindings, credentialsOf, type Exchange, headerOf, jsonAnswer } from "./exchange.ts";
import type { AllowedRequest, Mounted, RequestOf } from "./handle.ts";
import { type Attempt, checkKey, hashOf, type Idempotency } from "./idempotency.ts";
import { invalidRequest, problemOf } from "./problems.ts";
import { sendStream } from "./streams.ts";
import { createWebSockets } from "./websocket.ts";

export type PipelineOptions = {
  readonly gate: Gate;
  readonly revocations: Revocations;
  readonly idempotency: Idempotency;
  readonly clock: Clock;
  readonly log: Logger;
  /** Tells the log of a fault of ours. */
  readonly report: (exchange: Exchange, thrown: unknown) => void;
  /** Checks every answer against its schema: for tests and development, where a mismatch becomes a 500. */
  readonly checkAnswers: boolean;
};

/** Answers a request for a route: access, schemas, handler, answer. Nothing is read before access is decided. */
export type Pipeline = (
  bindings: Bindings,
  mounted: Mounted,
  params: Readonly<Record<string, string>>,
) => Promise<Response>;

type Kind<K extends Mounted["kind"]> = Extract<Mounted, { kind: K }>;
type Parts = { readonly params: unknown; readonly query: unknown; readonly body: unknown };
type Upgrade = Extract<Bindings["target"], { kind: "upgrade" }>;

function parsed(schema: z.ZodType | undefined, input: unknown, root: string): unknown {
  if (schema === undefined) return undefined;
  const result = schema.safeParse(input);
  if (!result.success) throw invalidRequest(result.error, input, root);
  return result.data;
}

function parseTarget({ search }: Exchange, route: Route, params: Readonly<Record<string, string>>) {
  return {
    params: parsed(route.params, decodeParams(params), "The path"),
    query: parsed(route.query, parseQuery(new URLSearchParams(search)), "The query"),
  };
}

function requestOf({ exchange, target }: Bindings, parts: Parts, signal: AbortSignal) {
  const { requestId, client, request } = exchange;
  const made: RequestOf<unknown, unknown, unknown> = {
    ...parts,
    requestId,
    address: client.address,
    secure: client.secure,
    signal,
    header: (name) => headerOf(request, name),
    setHeader: (name, value) => {
      if (target.kind === "response") target.response.setHeader(name, value);
    },
  };
  return made;
}

function attemptOf(exchange: Exchange, route: Route, principal: Principal, bytes: Buffer) {
  const key = route.idempotent === true ? headerOf(exchange.request, "idempotency-key") : undefined;
  if (key === undefined) return undefined;
  const attempt: Attempt = {
    user: principal.kind === "local" ? "local" : principal.userId,
    route: route.id,
    key: checkKey(key),
    hash: hashOf(exchange.path, exchange.search, bytes),
  };
  return attempt;
}

const SAFE_METHODS = ["GET", "HEAD"];

export const notAWebSocket = () =>
  new BerthError("not-a-websocket", "This address speaks WebSocket (version 13) only.");

export function createPipeline(options: PipelineOptions): Pipeline {
  const { gate, revocations, idempotency, clock, log, report, checkAnswers } = options;
  const webSockets = createWebSockets({ clock });

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
    mounted: Kind<"answer" | "public">,
    handler: () => Promise<unknown>,
    attempt: Attempt | undefined,
  ): Promise<Response> {
    const { route } = mounted;
    const run = () => checkedBody(route, handler);
    if (route.answer.kind !== "json") {
      await run();
      return new Response(null, { status: 204 });
    }
    const { status } = route.answer;
    if (attempt === undefined) return jsonAnswer(status, await run());
    const { replayed, body } = await once(mounted, attempt, status, run);
    return jsonAnswer(status, body, replayed ? { "idempotency-replayed": "true" } : {});
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

  /** Streams go straight to the connection, which tells how fast they are read and when their reader is gone. */
  async function answerStream(
    mounted: Kind<"stream">,
    { exchange, target }: Bindings,
    request: AllowedRequest<unknown, unknown, unknown>,
  ): Promise<Response> {
    const answer = await mounted.run(request);
    const declared = mounted.route.answer.kind === "stream" ? mounted.route.answer.contentType : "";
    const headers = {
      "content-type": answer.contentType ?? declared,
      // Proxies such as nginx would hold a stream back.
      "x-accel-buffering": "no",
    };
    if (exchange.method === "HEAD" || target.kind !== "response") return new Response(null, { headers });
    for (const [name, value] of Object.entries(headers)) target.response.setHeader(name, value);
    await sendStream(target.response, answer, request.alive);
    return RESPONSE_ALREADY_SENT;
  }

  async function answerPublic(
    mounted: Kind<"public">,
    bindings: Bindings,
    params: Readonly<Record<string, string>>,
  ): Promise<Response> {
    const { exchange, signal } = bindings;
    const { route } = mounted;
    gate.admitAnybody(credentialsOf(exchange, !SAFE_METHODS.includes(exchange.method)));
    const target = parseTarget(exchange, route, params);
    const { body } = await readJson(exchange, route);
    const request = requestOf(bindings, { ...target, body }, signal);
    return answerJson(mounted, () => mounted.run(request), undefined);
  }

  async function answerAllowed(
    mounted: Kind<"answer" | "stream">,
    bindings: Bindings,
    params: Readonly<Record<string, string>>,
    principal: Principal,
  ): Promise<Response> {
    const { exchange, signal } = bindings;
    const { route } = mounted;
    const target = parseTarget(exchange, route, params);
    const { body, bytes } = await readJson(exchange, route);
    const { alive, release } = aliveOf(principal, signal);
    const request = { ...requestOf(bindings, { ...target, body }, signal), principal, alive };
    try {
      if (mounted.kind === "stream") return await answerStream(mounted, bindings, request);
      const attempt = attemptOf(exchange, route, principal, bytes);
      return await answerJson(mounted, () => mounted.run(request), attempt);
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

  async function openWebSocket(
    mounted: Kind<"websocket">,
    bindings: Bindings,
    { socket, head }: Upgrade,
    params: Readonly<Record<string, string>>,
    principal: Principal,
  ): Promise<Response> {
    const { exchange, signal } = bindings;
    webSockets.check(exchange.request);
    const target = parseTarget(exchange, mounted.route, params);
    const { alive, release } = aliveOf(principal, signal);
    try {
      const parts = { ...target, body: undefined };
      const talk = await mounted.run({ ...requestOf(bindings, parts, alive), principal, alive });
      if (socket.destroyed) return RESPONSE_ALREADY_SENT;
      const client = await webSockets.accept(exchange.request, socket, head, log);
      const onCut = () => client.cut(1008, reasonText(alive.reason));
      if (alive.aborted) onCut();
      alive.addEventListener("abort", onCut, { once: true });
      await talk(client).catch((err: unknown) => {
        report(exchange, err);
        client.close(1011, problemOf(err, exchange.requestId).code);
      });
      if (!alive.aborted) client.close();
      await client.closed;
      return RESPONSE_ALREADY_SENT;
    } finally {
      release();
    }
  }

  return async (bindings, mounted, params) => {
    const { exchange, target } = bindings;
    const { access, id } = mounted.route;
    const upgrade = target.kind === "upgrade" ? target : undefined;
    if (upgrade !== undefined && mounted.kind !== "websocket") {
      throw new BerthError("not-a-websocket", "This address does not speak WebSocket.");
    }
    if (access.kind === "public") {
      if (mounted.kind !== "public") throw new TypeError(`${id} is public and mounted as ${mounted.kind}`);
      return answerPublic(mounted, bindings, params);
    }
    if (mounted.kind === "public") throw new TypeError(`${id} is not public`);
    const sensitive = upgrade !== undefined || !SAFE_METHODS.includes(exchange.method);
    const principal = await gate.admit(access, credentialsOf(exchange, sensitive));
    if (mounted.kind !== "websocket") return answerAllowed(mounted, bindings, params, principal);
    if (upgrade === undefined) throw notAWebSocket();
    return openWebSocket(mounted, bindings, upgrade, params, principal);
  };
}

function reasonText(reason: unknown): string {
  const known: readonly RevocationReason[] = ["account-inactive", "token-ended", "role-changed"];
  return known.find((text) => text === reason) ?? "stopping";
}
