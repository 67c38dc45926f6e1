import type { z } from "zod";
import { type Problem, statusOf } from "../../contract/errors.ts";
import { BerthError, type Fault, isBerthError } from "../../kit/errors.ts";

const TITLES: Readonly<Record<number, string>> = {
  400: "Bad request",
  401: "Not signed in",
  403: "Not permitted",
  404: "Not found",
  405: "Method not allowed",
  409: "Conflict",
  413: "Too large",
  415: "Unsupported media type",
  422: "Refused",
  429: "Too many requests",
  500: "Internal fault",
  503: "Not available",
  507: "No space left",
};

const INTERNAL = new BerthError(
  "internal",
  "Something went wrong in the manager. Its log has the cause under this request id.",
);

/** The answer for anything that was thrown; what is not meant for people is told as `internal`. */
export function problemOf(thrown: unknown, requestId: string): Problem {
  const error = isBerthError(thrown) ? thrown : INTERNAL;
  const status = statusOf(error.code);
  return {
    type: `urn:berth:error:${error.code}`,
    title: TITLES[status] ?? "Error",
    status,
    code: error.code,
    detail: error.message,
    ...(error.field === undefined ? {} : { field: error.field }),
    ...(error.details === undefined ? {} : { details: error.details }),
    ...(error.faults === undefined ? {} : { errors: error.faults.map(faultOf) }),
    requestId,
  };
}

function faultOf({ code, field, sentence, details }: Fault) {
  return {
    code,
    ...(field === undefined ? {} : { field }),
    message: sentence,
    ...(details === undefined ? {} : { details }),
  };
}

type Issue = z.core.$ZodIssue;

const pathOf = (issue: Issue) => issue.path.map(String).join(".");

/** Of a union's branches the one that came furthest: a sentence of ours, else the one with the fewest complaints. */
function bestBranch(branches: readonly (readonly Issue[])[]): readonly Issue[] {
  const told = branches.find((issues) => issues.some((issue) => issue.code === "custom"));
  if (told !== undefined) return told;
  const fitting = branches.filter(
    (issues) => !issues.some((issue) => issue.code === "invalid_type" && issue.path.length === 0),
  );
  return [...(fitting.length > 0 ? fitting : branches)].sort((a, b) => a.length - b.length)[0] ?? [];
}

const KINDS: Readonly<Record<string, string>> = {
  string: "a text",
  number: "a number",
  int: "a whole number",
  boolean: "true or false",
  array: "a list",
  object: "an object",
  record: "an object",
};

function sizeSentence(issue: Issue & { readonly code: "too_small" | "too_big" }, name: string): string {
  const most = issue.code === "too_big";
  const limit = most ? issue.maximum : issue.minimum;
  const words = most ? "at most" : "at least";
  if (issue.origin === "string") return `${name} must have ${words} ${limit} characters.`;
  if (issue.origin === "array") return `${name} must have ${words} ${limit} entries.`;
  return `${name} must be ${words} ${limit}.`;
}

/** Zod's own words begin like this; every other message is a sentence of ours. */
const GENERIC = /^(Invalid|Too (small|big)|Unrecognized)/;

function sentenceOf(issue: Issue, name: string, absent: boolean): string {
  if (absent) return `${name} is needed.`;
  if (issue.code === "invalid_type") return `${name} must be ${KINDS[issue.expected] ?? issue.expected}.`;
  if (!GENERIC.test(issue.message)) return issue.message;
  if (issue.code === "too_small" || issue.code === "too_big") return sizeSentence(issue, name);
  if (issue.code === "invalid_value")
    return `${name} must be one of: ${issue.values.map(String).join(", ")}.`;
  return `${name} is not valid: ${issue.message}.`;
}

function valueAt(input: unknown, path: readonly PropertyKey[]): unknown {
  let value = input;
  for (const key of path) {
    if (typeof value !== "object" || value === null) return undefined;
    value = Reflect.get(value, key);
  }
  return value;
}

function faultsOf(issue: Issue, input: unknown, root: string): Fault[] {
  if (issue.code === "unrecognized_keys") {
    return issue.keys.map((key) => {
      const field = [...issue.path.map(String), key].join(".");
      return { code: "unknown-field", field, sentence: `${field} is not known here.` };
    });
  }
  const absent = valueAt(input, issue.path) === undefined && issue.code !== "custom";
  if (issue.code === "invalid_union" && !absent) {
    const nested = bestBranch(issue.errors);
    if (nested.length > 0) {
      return nested.flatMap((inner) =>
        faultsOf({ ...inner, path: [...issue.path, ...inner.path] }, input, root),
      );
    }
  }
  const field = pathOf(issue);
  const sentence = sentenceOf(issue, field === "" ? root : field, absent);
  return [{ code: "invalid-value", ...(field === "" ? {} : { field }), sentence }];
}

/**
 * The refusal of a request that its schema does not take: the first fault as sentence and field, all of them under
 * `errors`. `root` names the whole, such as "The body".
 */
export function invalidRequest(error: z.ZodError, input: unknown, root: string): BerthError {
  const faults = error.issues.flatMap((issue) => faultsOf(issue, input, root));
  const first = faults[0];
  return new BerthError("invalid-request", first?.sentence ?? `${root} is not valid.`, {
    ...(first?.field === undefined ? {} : { field: first.field }),
    faults,
  });
}
