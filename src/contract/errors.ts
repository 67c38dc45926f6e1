import { z } from "zod";

/** An error answer (RFC 9457, `application/problem+json`). */
export const problem = z.object({
  type: z.string().meta({ description: "`urn:berth:error:<code>`" }),
  title: z.string(),
  status: z.int(),
  code: z.string().meta({ description: "Stable code that a program may test" }),
  detail: z.string().meta({ description: "A sentence for a person: the limit or fact, and what to do" }),
  field: z.string().optional(),
  details: z.record(z.string(), z.unknown()).optional(),
  /** All refusals, where a request was refused for several reasons. */
  errors: z
    .array(
      z.object({
        code: z.string(),
        field: z.string().optional(),
        message: z.string(),
        details: z.record(z.string(), z.unknown()).optional(),
      }),
    )
    .optional(),
  requestId: z.string(),
});
export type Problem = z.infer<typeof problem>;

/** HTTP status of each error code that is not 400. Features add theirs here, so that the list stays one. */
export const ERROR_STATUS: Readonly<Record<string, number>> = {
  "invalid-json": 400,
  "invalid-utf8": 400,
  "invalid-request": 400,
  "invalid-cursor": 400,
  "not-signed-in": 401,
  "wrong-credentials": 401,
  "token-ended": 401,
  "account-inactive": 401,
  "not-permitted": 403,
  "wrong-origin": 403,
  "not-found": 404,
  "session-not-found": 404,
  "image-not-found": 404,
  "group-not-found": 404,
  "agent-not-found": 404,
  "user-not-found": 404,
  "token-not-found": 404,
  "join-token-not-found": 404,
  "policy-not-found": 404,
  "method-not-allowed": 405,
  "name-in-use": 409,
  "session-name-in-use": 409,
  "email-in-use": 409,
  conflict: 409,
  "session-not-running": 409,
  "session-ended": 409,
  "in-use": 409,
  "idempotency-mismatch": 409,
  "idempotency-in-flight": 409,
  "last-superadmin": 409,
  "agent-lost": 409,
  "body-too-large": 413,
  "unsupported-media-type": 415,
  "admission-refused": 422,
  "account-locked": 429,
  "too-many-requests": 429,
  internal: 500,
  "not-ready": 503,
  "agent-unreachable": 503,
  "disk-full": 507,
};

/** HTTP status of an error code; a code without an entry is a bad request. */
export function statusOf(code: string): number {
  return ERROR_STATUS[code] ?? 400;
}
