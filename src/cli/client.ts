import { z } from "zod";
import type { Route } from "../contract/route.ts";
import { backoffMs } from "../kit/backoff.ts";
import type { Clock } from "../kit/clock.ts";
import { BerthError, isBerthError } from "../kit/errors.ts";
import { VERSION } from "../kit/version.ts";
import { ApiError, isTransient } from "./failures.ts";
import { ANSWER_MS, codeOf, connectionFault, parseOrNull, problemOf } from "./faults.ts";
import type { Target } from "./target.ts";
import { tlsOptions } from "./tls.ts";
import { openWebSocket, type WebSocketLink } from "./websocket.ts";

const ATTEMPTS = 5;
const WAITS = { firstMs: 200, maxMs: 3000 };

export type CallInput<P extends z.ZodType, Q extends z.ZodType, B extends z.ZodType> = {
  readonly params?: z.input<P>;
  readonly query?: z.input<Q>;
  readonly body?: z.input<B>;
};

export type CallOptions = {
  readonly signal?: AbortSignal;
  /** Whether asking again is harmless although the route is neither a GET nor honours a key. */
  readonly repeatable?: boolean;
  /** How often to try; 1 means that nothing is tried again. */
  readonly attempts?: number;
};

type Plain = { readonly params?: unknown; readonly query?: unknown; readonly body?: unknown };
type AnyRoute = Pick<Route, "id" | "method" | "path" | "answer" | "idempotent">;

/** The public API, typed by the contract's routes. Everything thrown is a `BerthError`. */
export interface Client {
  readonly target: Target;
  /** Calls a route that answers with JSON. */
  call<P extends z.ZodType, Q extends z.ZodType, B extends z.ZodType, O extends z.ZodType>(
    route: Route<P, Q, B, O>,
    input?: CallInput<P, Q, B>,
    options?: CallOptions,
  ): Promise<z.output<O>>;
  /** Calls a route whose answer is empty. */
  send<P extends z.ZodType, Q extends z.ZodType, B extends z.ZodType>(
    route: Route<P, Q, B>,
    input?: CallInput<P, Q, B>,
    options?: CallOptions,
  ): Promise<void>;
  /** All items of a list, page after page; `max` bounds them. */
  list<P extends z.ZodType, Q extends z.ZodType, B extends z.ZodType, I>(
    route: Route<P, Q, B, z.ZodType<{ items: I[]; next: string | null }>>,
    input?: CallInput<P, Q, B>,
    max?: number,
  ): Promise<I[]>;
  /** Opens a streaming answer. It is not tried again: the caller knows from where to go on. */
  stream<P extends z.ZodType, Q extends z.ZodType, B extends z.ZodType>(
    route: Route<P, Q, B>,
    input: CallInput<P, Q, B>,
    options: { readonly signal: AbortSignal; readonly headers?: Readonly<Record<string, string>> },
  ): Promise<AsyncIterable<Uint8Array>>;
  socket<P extends z.ZodType>(
    route: Route<P>,
    input: { readonly params?: z.input<P> },
    signal?: AbortSignal,
  ): Promise<WebSocketLink>;
}

function entriesOf(value: unknown): [string, unknown][] {
  return typeof value === "object" && value !== null ? Object.entries(value) : [];
}

/** The path and query of a call. Throws `not-found` for a name that no path can carry. */
export function pathOf(path: string, { params, query }: Plain): string {
  const values = new Map(entriesOf(params));
  const filled = path.replace(/\{(\w+)\}/g, (_, key: string) => {
    const text = String(values.get(key) ?? "");
    if (["", ".", ".."].includes(text)) throw new BerthError("not-found", `"${text}" is not a ${key}.`);
    return encodeURIComponent(text);
  });
  const search = new URLSearchParams();
  for (const [key, value] of entriesOf(query)) if (value !== undefined) search.set(key, String(value));
  return search.size === 0 ? filled : `${filled}?${search}`;
}

export function createClient({ target, clock }: { readonly target: Target; readonly clock: Clock }): Client {
  const headers = (extra: Readonly<Record<string, string>>): Record<string, string> => ({
    "user-agent": `berth/${VERSION}`,
    ...(target.token === undefined ? {} : { authorization: `Bearer ${target.token}` }),
    ...extra,
  });
  const reach: BunFetchRequestInit = {
    redirect: "manual",
    // The WebSocket of `exec` and the look at a certificate go straight to the manager, so all of it does.
    proxy: false,
    ...(target.socket === undefined ? { tls: tlsOptions(target.trust) } : { unix: target.socket }),
  };

  /** One request up to the head of its answer; a refusal is thrown as `ApiError`. */
  async function request(route: AnyRoute, input: Plain, init: BunFetchRequestInit): Promise<Response> {
    const response = await fetch(target.url + pathOf(route.path, input), {
      ...reach,
      method: route.method,
      ...init,
    }).catch((error: unknown) => {
      if (init.signal?.aborted && init.signal.reason === error) throw error;
      throw connectionFault(target, error);
    });
    if (response.ok) return response;
    const text = await response.text().catch(() => "");
    throw new ApiError(problemOf(response.status, text, response.headers.get("x-request-id")));
  }

  async function exchange(route: AnyRoute, input: Plain, key: string | undefined, options: CallOptions) {
    const timeout = AbortSignal.timeout(ANSWER_MS);
    const signal = options.signal === undefined ? timeout : AbortSignal.any([options.signal, timeout]);
    const body = input.body === undefined ? undefined : JSON.stringify(input.body);
    const response = await request(route, input, {
      headers: headers({
        accept: "application/json",
        ...(body === undefined ? {} : { "content-type": "application/json" }),
        ...(key === undefined ? {} : { "idempotency-key": key }),
      }),
      ...(body === undefined ? {} : { body }),
      signal,
    }).catch((error: unknown) => {
      throw connectionFault(target, error);
    });
    return response.text().catch((error: unknown) => {
      throw connectionFault(target, error);
    });
  }

  function mayRepeat(route: AnyRoute, options: CallOptions, error: unknown): boolean {
    if (options.signal?.aborted) return false;
    if (isBerthError(error) && error.code === "idempotency-in-flight") return true;
    if (!isTransient(error)) return false;
    if (route.method === "GET" || route.idempotent || options.repeatable) return true;
    // Nobody took the request, so nothing can have happened.
    return isBerthError(error) && ["ECONNREFUSED", "ENOENT"].includes(codeOf(error.cause));
  }

  async function attempt(route: AnyRoute, input: Plain, options: CallOptions): Promise<string> {
    const key = route.idempotent ? crypto.randomUUID() : undefined;
    const attempts = options.attempts ?? ATTEMPTS;
    for (let tried = 1; ; tried++) {
      try {
        return await exchange(route, input, key, options);
      } catch (error) {
        if (tried >= attempts || !mayRepeat(route, options, error)) throw error;
        await clock.sleep(backoffMs(tried, { ...WAITS, jitter: Math.random }), options.signal);
      }
    }
  }

  const client: Client = {
    target,
    call: async (route, input = {}, options = {}) => {
      const { answer } = route;
      if (answer.kind !== "json") throw new TypeError(`${route.id} does not answer with JSON`);
      const parsed = answer.schema.safeParse(parseOrNull(await attempt(route, input, options)));
      if (parsed.success) return parsed.data;
      const path = parsed.error.issues[0]?.path.join(".") ?? "";
      const sentence = `The answer to ${route.id} is not understood (${path}): the manager is of another version.`;
      throw new BerthError("unexpected-answer", sentence, { cause: parsed.error });
    },
    send: async (route, input = {}, options = {}) => {
      await attempt(route, input, options);
    },
    list: async (route, input = {}, max = Number.POSITIVE_INFINITY) => {
      const items = [];
      let cursor: string | undefined;
      do {
        const limit = Math.min(200, max - items.length);
        const query: unknown = { ...Object.fromEntries(entriesOf(input.query)), limit, cursor };
        const page = await client.call({ ...route, query: z.unknown() }, { ...input, query });
        items.push(...page.items);
        cursor = page.next ?? undefined;
      } while (cursor !== undefined && items.length < max);
      return items;
    },
    stream: async (route, input, { signal, headers: extra = {} }) => {
      const late = new AbortController();
      const cancel = clock.after(ANSWER_MS, () => late.abort(new DOMException("late", "TimeoutError")));
      try {
        const response = await request(route, input, {
          headers: headers(extra),
          signal: AbortSignal.any([signal, late.signal]),
        });
        return faultsNamed(target, response.body ?? new ReadableStream<Uint8Array>());
      } finally {
        cancel();
      }
    },
    socket: (route, input, signal) =>
      openWebSocket({
        target,
        path: pathOf(route.path, input),
        headers: headers({}),
        ...(signal === undefined ? {} : { signal }),
      }),
  };
  return client;
}

async function* faultsNamed(target: Target, body: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  try {
    yield* body;
  } catch (error) {
    throw connectionFault(target, error);
  }
}
