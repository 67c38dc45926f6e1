import { type Problem, problem } from "../contract/errors.ts";
import { BerthError, isBerthError, messageOf } from "../kit/errors.ts";
import type { Target } from "./target.ts";
import { certificateFault } from "./tls.ts";

/** Time for one answer, in ms; streams have it until their head arrives. */
export const ANSWER_MS = 30_000;

/** The refusal in an answer; one is made up where a proxy answered instead of a manager. */
export function problemOf(status: number, text: string, requestId: string | null): Problem {
  const parsed = problem.safeParse(parseOrNull(text));
  if (parsed.success) return parsed.data;
  const detail = `The answer has status ${status} and is not Berth's. Is this the address of a manager?`;
  const code = status >= 500 ? "unreachable" : "unexpected-answer";
  return { type: "", title: "", status, code, detail, requestId: requestId ?? "unknown" };
}

export function parseOrNull(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

export function codeOf(error: unknown): string {
  return error instanceof Error && "code" in error ? String(error.code) : "";
}

/** A server that expects TLS cuts a plain request without a word. */
function cutWords({ url, socket }: Target): string {
  if (socket !== undefined || !url.startsWith("http:")) return "the connection was cut.";
  return `the connection was cut. If the manager uses HTTPS, write ${url.replace("http:", "https:")}.`;
}

/** Says what a failed connection means. */
export function connectionFault(target: Target, error: unknown): BerthError {
  if (isBerthError(error)) return error;
  const where = target.socket ?? target.url;
  const certificate = certificateFault(target.url, target.trust, `${codeOf(error)} ${messageOf(error)}`);
  if (certificate !== undefined) return certificate;
  if (error instanceof Error && error.name === "TimeoutError") {
    return new BerthError("timed-out", `${where} did not answer within ${ANSWER_MS / 1000} s.`);
  }
  const why: Readonly<Record<string, string>> = {
    ECONNREFUSED: "nothing listens there. Is the manager running?",
    ENOENT: "the socket does not exist. Is the manager running?",
    ENOTFOUND: "its name is not known. Check the address.",
    EACCES: "only root may use the manager's socket.",
    ECONNRESET: cutWords(target),
  };
  const sentence = why[codeOf(error)] ?? `${messageOf(error)}.`;
  return new BerthError("unreachable", `Cannot reach Berth at ${where}: ${sentence}`, { cause: error });
}
