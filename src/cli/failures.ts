import type { Problem } from "../contract/errors.ts";
import { BerthError, type ErrorDetails, isBerthError, messageOf } from "../kit/errors.ts";
import type { Io } from "./io.ts";
import { clean } from "./text.ts";

export const EXIT_REFUSED = 1;
export const EXIT_USAGE = 2;
/** Of `run` and `exec`: Berth itself refused or failed, apart from what a session's command returns. */
export const EXIT_BERTH = 125;
export const EXIT_TERMINATED = 137;
export const EXIT_INTERRUPTED = 130;
/** As of a program that SIGPIPE ended: whoever read the output has gone. */
export const EXIT_PIPE_CLOSED = 141;

/** The command line itself is wrong. */
export function usage(sentence: string): BerthError {
  return new BerthError("usage", sentence);
}

/** A refusal or failure that the manager answered with. */
export class ApiError extends BerthError {
  readonly problem: Problem;

  constructor(problem: Problem) {
    super(problem.code, problem.detail, {
      ...(problem.field === undefined ? {} : { field: problem.field }),
      ...(problem.details === undefined ? {} : { details: plainDetails(problem.details) }),
    });
    this.name = "ApiError";
    this.problem = problem;
  }
}

function plainDetails(details: Readonly<Record<string, unknown>>): ErrorDetails {
  const out: Record<string, string | number | boolean | null> = {};
  for (const [key, value] of Object.entries(details)) {
    const plain = typeof value === "string" || typeof value === "number" || typeof value === "boolean";
    out[key] = plain ? value : JSON.stringify(value ?? null);
  }
  return out;
}

/** Whether the failure is the network's or a manager that is just starting, so that trying again may help. */
export function isTransient(error: unknown): boolean {
  if (error instanceof ApiError) return [502, 503, 504].includes(error.problem.status);
  return isBerthError(error) && (error.code === "unreachable" || error.code === "timed-out");
}

function lines(error: unknown): string[] {
  if (!isBerthError(error)) return [`berth: internal fault: ${messageOf(error)} [internal]`];
  const inner = error instanceof ApiError ? (error.problem.errors ?? []) : [];
  const [only] = inner;
  if (inner.length === 1 && only !== undefined) return [`berth: ${only.message} [${only.code}]`];
  const request =
    error instanceof ApiError && error.problem.status >= 500 ? ` (request ${error.problem.requestId})` : "";
  // The sentence of several refusals is often the first of them again.
  const repeats = only !== undefined && error.message.startsWith(only.message);
  const sentence = repeats ? `There are ${inner.length} reasons against it.` : error.message;
  return [
    `berth: ${sentence}${request} [${error.code}]`,
    ...inner.map((item) => `  - ${item.message} [${item.code}]`),
  ];
}

function asJson(error: unknown): Record<string, unknown> {
  if (error instanceof ApiError) return error.problem;
  if (!isBerthError(error)) return { code: "internal", detail: messageOf(error) };
  const { code, message, field, details } = error;
  return { code, detail: message, ...(field && { field }), ...(details && { details }) };
}

/** Tells a person (or, as JSON, a program) on stderr what went wrong. */
export async function reportFailure(io: Io, error: unknown, json: boolean): Promise<void> {
  const text = json ? JSON.stringify(asJson(error)) : lines(error).map(clean).join("\n");
  await io.err(`${text}\n`).catch(() => {});
  if (!isBerthError(error) && io.env.BERTH_DEBUG !== undefined && error instanceof Error) {
    await io.err(`${error.stack ?? ""}\n`).catch(() => {});
  }
}
