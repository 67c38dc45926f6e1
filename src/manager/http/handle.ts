import type { z } from "zod";
import type { Route } from "../../contract/route.ts";
import type { Principal } from "../accounts/principal.ts";

/** What every handler knows of its request; parameters, query and body went through the route's schemas. */
export type RequestOf<Params, Query, Body> = {
  readonly params: Params;
  readonly query: Query;
  readonly body: Body;
  readonly requestId: string;
  /** Address of the client, behind a trusted proxy the one it tells. */
  readonly address: string;
  /** Whether the client speaks HTTPS, to us or to the proxy before us. */
  readonly secure: boolean;
  /** Aborts when the client goes away or the manager stops. */
  readonly signal: AbortSignal;
  /** A request header, in lower case; several are joined as HTTP does. */
  header(name: string): string | undefined;
  /** Adds a header to the answer. */
  setHeader(name: string, value: string): void;
};

/** A request of somebody who has the right that the route needs. */
export type AllowedRequest<Params, Query, Body> = RequestOf<Params, Query, Body> & {
  readonly principal: Principal;
  /**
   * Aborts as `signal` does, and also when the principal's account or token ends: for everything that goes on after
   * its first answer.
   */
  readonly alive: AbortSignal;
};

/** A body that is made while it is sent. The iteration is pulled only as fast as the client reads. */
export type StreamAnswer = {
  /** When it differs from the route's. */
  readonly contentType?: string;
  readonly body: AsyncIterable<Uint8Array | string>;
};

/** An open WebSocket with binary messages. */
export type ClientSocket = {
  /** Resolves when the client has taken enough that more may follow; a client that left is no error. */
  send(message: Uint8Array): Promise<void>;
  /** Messages in order; ends when the socket closes. A client that sends 8 MiB ahead of the reader is cut. */
  readonly messages: AsyncIterable<Uint8Array>;
  /** Resolves when it is closed by either side. */
  readonly closed: Promise<void>;
  close(code?: number, reason?: string): void;
};

type Handled = RequestOf<unknown, unknown, unknown>;
type HandledAllowed = AllowedRequest<unknown, unknown, unknown>;

/** A route with the function that serves it, as `createApi` takes them. */
export type Mounted = { readonly route: Route } & (
  | { readonly kind: "public"; run(request: Handled): Promise<unknown> }
  | {
      readonly kind: "answer";
      /** With an Idempotency-Key the handler and the keeping of its answer are one transaction. */
      readonly whole: boolean;
      run(request: HandledAllowed): Promise<unknown>;
    }
  | { readonly kind: "stream"; run(request: HandledAllowed): Promise<StreamAnswer> }
  | {
      readonly kind: "websocket";
      run(request: HandledAllowed): Promise<(socket: ClientSocket) => Promise<void>>;
    }
);

type Handler<P extends z.ZodType, Q extends z.ZodType, B extends z.ZodType, Out> = (
  request: AllowedRequest<z.output<P>, z.output<Q>, z.output<B>>,
) => Promise<Out>;

type PublicHandler<P extends z.ZodType, Q extends z.ZodType, B extends z.ZodType, Out> = (
  request: RequestOf<z.output<P>, z.output<Q>, z.output<B>>,
) => Promise<Out>;

function expect(route: Route<z.ZodType, z.ZodType, z.ZodType, z.ZodType>, kinds: readonly string[]): void {
  if (!kinds.includes(route.answer.kind)) {
    throw new TypeError(`${route.id} answers with ${route.answer.kind}: mount it with the function for that`);
  }
}

/**
 * Serves a route that answers with JSON or with nothing. The schemas of the route check what goes in. `whole` is for
 * creates that must happen exactly once for an Idempotency-Key, even when the manager is killed in the middle: they
 * run inside a transaction and so must wait for nothing but the store.
 */
export function handle<P extends z.ZodType, Q extends z.ZodType, B extends z.ZodType, O extends z.ZodType>(
  route: Route<P, Q, B, O>,
  run: Handler<P, Q, B, z.output<O>>,
  { whole = false }: { readonly whole?: boolean } = {},
): Mounted {
  expect(route, ["json", "empty"]);
  if (route.access.kind === "public") throw new TypeError(`${route.id} is public: use handlePublic`);
  return { kind: "answer", whole, route, run: run as Handler<z.ZodType, z.ZodType, z.ZodType, unknown> };
}

/** Serves a public route that answers with JSON or with nothing. */
export function handlePublic<
  P extends z.ZodType,
  Q extends z.ZodType,
  B extends z.ZodType,
  O extends z.ZodType,
>(route: Route<P, Q, B, O>, run: PublicHandler<P, Q, B, z.output<O>>): Mounted {
  expect(route, ["json", "empty"]);
  if (route.access.kind !== "public") throw new TypeError(`${route.id} is not public: use handle`);
  return { kind: "public", route, run: run as PublicHandler<z.ZodType, z.ZodType, z.ZodType, unknown> };
}

/** Serves a route that answers with a stream. What is thrown before the stream is returned becomes an error answer. */
export function handleStream<
  P extends z.ZodType,
  Q extends z.ZodType,
  B extends z.ZodType,
  O extends z.ZodType,
>(route: Route<P, Q, B, O>, run: Handler<P, Q, B, StreamAnswer>): Mounted {
  expect(route, ["stream"]);
  if (route.access.kind === "public") throw new TypeError(`${route.id} is public: not built for streams`);
  return { kind: "stream", route, run: run as Handler<z.ZodType, z.ZodType, z.ZodType, StreamAnswer> };
}

/**
 * Serves a WebSocket route. `run` decides on the request (what it throws becomes an error answer) and returns what
 * talks on the open socket; the socket is closed when that ends, and with it when `alive` aborts.
 */
export function handleWebSocket<
  P extends z.ZodType,
  Q extends z.ZodType,
  B extends z.ZodType,
  O extends z.ZodType,
>(route: Route<P, Q, B, O>, run: Handler<P, Q, B, (socket: ClientSocket) => Promise<void>>): Mounted {
  expect(route, ["websocket"]);
  return {
    kind: "websocket",
    route,
    run: run as Handler<z.ZodType, z.ZodType, z.ZodType, (socket: ClientSocket) => Promise<void>>,
  };
}
