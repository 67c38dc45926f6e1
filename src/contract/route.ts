import type { z } from "zod";
import type { Permission } from "./permissions.ts";

/** Who may call a route. There is no default: a route without an access does not compile. */
export type Access =
  | { readonly kind: "public" }
  | { readonly kind: "signed-in" }
  | { readonly kind: "permission"; readonly permission: Permission };

export type Method = "GET" | "POST" | "PUT" | "PATCH" | "DELETE";

/** How a route answers: JSON of a schema, a stream of a media type, or a WebSocket. */
export type Answer<Output extends z.ZodType> =
  | { readonly kind: "json"; readonly status: 200 | 201 | 202; readonly schema: Output }
  | { readonly kind: "empty"; readonly status: 204 }
  | { readonly kind: "stream"; readonly contentType: string; readonly description: string }
  | { readonly kind: "websocket"; readonly description: string };

/** One route of the public API: what it takes, what it gives and which right it needs. */
export type Route<
  Params extends z.ZodType = z.ZodType,
  Query extends z.ZodType = z.ZodType,
  Body extends z.ZodType = z.ZodType,
  Output extends z.ZodType = z.ZodType,
> = {
  /** Stable name, `operationId` in OpenAPI: `sessions.create`. */
  readonly id: string;
  readonly method: Method;
  /** Path below the origin, with parameters in braces: `/api/v1/sessions/{session}`. */
  readonly path: string;
  readonly tag: string;
  readonly summary: string;
  readonly description?: string;
  readonly access: Access;
  readonly params?: Params;
  readonly query?: Query;
  readonly body?: Body;
  readonly answer: Answer<Output>;
  /** Whether the route honours an `Idempotency-Key` header. */
  readonly idempotent?: boolean;
  /** Error codes that are special to the route, for the documentation. */
  readonly errors?: readonly string[];
};

/** Keeps the exact types of a route's schemas. */
export function defineRoute<
  Params extends z.ZodType,
  Query extends z.ZodType,
  Body extends z.ZodType,
  Output extends z.ZodType,
>(route: Route<Params, Query, Body, Output>): Route<Params, Query, Body, Output> {
  return route;
}

export const PUBLIC: Access = { kind: "public" };
export const SIGNED_IN: Access = { kind: "signed-in" };

export function needs(permission: Permission): Access {
  return { kind: "permission", permission };
}
