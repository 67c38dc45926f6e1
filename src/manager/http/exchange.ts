import type { IncomingMessage, ServerResponse } from "node:http";
import type { Duplex } from "node:stream";
import type { Problem } from "../../contract/errors.ts";
import { BerthError } from "../../kit/errors.ts";
import type { Credentials } from "./access.ts";
import type { Client, ClientReader } from "./client.ts";

/** How a request reached us. */
export type Via = "network" | "local";

/** One request as it came in, before anything of it is trusted. */
export type Exchange = {
  readonly request: IncomingMessage;
  readonly via: Via;
  readonly requestId: string;
  readonly client: Client;
  readonly method: string;
  readonly path: string;
  readonly search: string;
};

/** One request with where its answer goes. */
export type Bindings = {
  readonly exchange: Exchange;
  /** Aborts when the connection closes or the manager stops. */
  readonly signal: AbortSignal;
  /** Where the answer goes; a request for another protocol has its bare connection instead. */
  readonly target:
    | { readonly kind: "response"; readonly response: ServerResponse }
    | { readonly kind: "upgrade"; readonly socket: Duplex; readonly head: Buffer };
};

const REQUEST_ID = /^[\w.-]{8,100}$/;

export function headerOf(request: IncomingMessage, name: string): string | undefined {
  const value = request.headers[name.toLowerCase()];
  return Array.isArray(value) ? value.join(", ") : value;
}

/** Takes the client's request id when it has the form of one, so that its log and ours tell of the same thing. */
function requestIdOf(request: IncomingMessage): string {
  const given = headerOf(request, "x-request-id");
  return given !== undefined && REQUEST_ID.test(given) ? given : crypto.randomUUID();
}

export function readExchange(request: IncomingMessage, via: Via, readClient: ClientReader): Exchange {
  const target = request.url ?? "/";
  const at = target.indexOf("?");
  const client =
    via === "local"
      ? { address: "local", secure: false, host: "localhost" }
      : readClient({
          remoteAddress: request.socket.remoteAddress ?? "",
          encrypted: "encrypted" in request.socket && request.socket.encrypted === true,
          header: (name) => headerOf(request, name),
        });
  return {
    request,
    via,
    requestId: requestIdOf(request),
    client,
    method: request.method ?? "GET",
    path: at < 0 ? target : target.slice(0, at),
    search: at < 0 ? "" : target.slice(at + 1),
  };
}

export function credentialsOf(exchange: Exchange, sensitive: boolean): Credentials {
  const { request, via, client } = exchange;
  return {
    via,
    client,
    authorization: headerOf(request, "authorization"),
    cookie: headerOf(request, "cookie"),
    origin: headerOf(request, "origin"),
    sensitive,
  };
}

/** Headers of everything that does not set its own. */
const COMMON_HEADERS: Readonly<Record<string, string>> = {
  "cache-control": "no-store",
  "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
  "cross-origin-resource-policy": "same-origin",
  "referrer-policy": "no-referrer",
  "x-content-type-options": "nosniff",
  "x-frame-options": "DENY",
};

/** What is in the head of every answer, whoever makes it. */
export function commonHeaders({ requestId }: Exchange): Readonly<Record<string, string>> {
  return { ...COMMON_HEADERS, "x-request-id": requestId };
}

export function jsonAnswer(status: number, body: unknown, headers: Readonly<Record<string, string>> = {}) {
  const text = JSON.stringify(body);
  return new Response(text, {
    status,
    headers: {
      "content-type": "application/json; charset=utf-8",
      "content-length": String(Buffer.byteLength(text)),
      ...headers,
    },
  });
}

/** A refusal, with the headers that belong to it. */
export function problemAnswer({ request }: Exchange, problem: Problem): Response {
  const headers: Record<string, string> = { "content-type": "application/problem+json; charset=utf-8" };
  if (problem.status === 401) headers["www-authenticate"] = 'Bearer realm="berth"';
  const { allow, retryAfterSeconds } = problem.details ?? {};
  if (problem.status === 405 && Array.isArray(allow)) headers.allow = allow.join(", ");
  if (typeof retryAfterSeconds === "number") headers["retry-after"] = String(Math.ceil(retryAfterSeconds));
  // What is left of a body that nobody reads would be taken for the next request.
  if (!request.complete) headers.connection = "close";
  return jsonAnswer(problem.status, problem, headers);
}

export function notAllowed(method: string, allow: readonly string[]): BerthError {
  return new BerthError("method-not-allowed", `${method} is not possible here: ${allow.join(", ")} is.`, {
    details: { allow },
  });
}

export function pathNotFound(path: string): BerthError {
  return new BerthError("not-found", `There is nothing at ${path.slice(0, 200)}. The API is under /api/v1.`);
}
