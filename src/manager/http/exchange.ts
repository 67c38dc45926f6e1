import type { IncomingMessage, ServerResponse } from "node:http";
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

/** Headers of everything that is no page. */
const API_HEADERS: Readonly<Record<string, string>> = {
  "cache-control": "no-store",
  "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
  "cross-origin-resource-policy": "same-origin",
  "referrer-policy": "no-referrer",
  "x-content-type-options": "nosniff",
  "x-frame-options": "DENY",
};

export function setHeaders(
  response: ServerResponse,
  requestId: string,
  more: Readonly<Record<string, string>>,
) {
  response.setHeader("x-request-id", requestId);
  for (const [name, value] of Object.entries({ ...API_HEADERS, ...more })) response.setHeader(name, value);
}

export function sendJson(response: ServerResponse, requestId: string, status: number, body: unknown): void {
  const bytes = Buffer.from(JSON.stringify(body));
  setHeaders(response, requestId, {
    "content-type": "application/json; charset=utf-8",
    "content-length": String(bytes.length),
  });
  response.statusCode = status;
  response.end(bytes);
}

export function sendEmpty(response: ServerResponse, requestId: string): void {
  setHeaders(response, requestId, {});
  response.statusCode = 204;
  response.end();
}

/** Headers that a refusal has besides its body. */
export function problemHeaders(problem: Problem): Record<string, string> {
  const headers: Record<string, string> = { "content-type": "application/problem+json; charset=utf-8" };
  if (problem.status === 401) headers["www-authenticate"] = 'Bearer realm="berth"';
  const { allow, retryAfterSeconds } = problem.details ?? {};
  if (problem.status === 405 && Array.isArray(allow)) headers.allow = allow.join(", ");
  if (typeof retryAfterSeconds === "number") headers["retry-after"] = String(Math.ceil(retryAfterSeconds));
  return headers;
}

export function sendProblem(exchange: Exchange, response: ServerResponse, problem: Problem): void {
  const { request, requestId } = exchange;
  const bytes = Buffer.from(JSON.stringify(problem));
  setHeaders(response, requestId, { ...problemHeaders(problem), "content-length": String(bytes.length) });
  // What is left of a body that nobody reads would be taken for the next request.
  if (!request.complete) response.setHeader("connection", "close");
  response.statusCode = problem.status;
  response.end(bytes);
}

export function methodNotAllowed(method: string, allow: readonly string[]): BerthError {
  return new BerthError("method-not-allowed", `${method} is not possible here: ${allow.join(", ")} is.`, {
    details: { allow },
  });
}

export function pathNotFound(path: string): BerthError {
  return new BerthError("not-found", `There is nothing at ${path.slice(0, 200)}. The API is under /api/v1.`);
}
