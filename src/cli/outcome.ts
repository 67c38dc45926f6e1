import type { SessionDetail } from "../contract/sessions.ts";
import { EXIT_BERTH, EXIT_TERMINATED } from "./failures.ts";

/** Ends that the command brought about itself and whose exit code says it all. */
const PLAIN = new Set(["task-finished", "task-failed", "self-terminated"]);
/** Cancelled by somebody before it ran; a session cancelled for other reasons was Berth's doing. */
const BY_PERSON = new Set(["user-requested", "admin-requested", "force-terminated", "owner-deactivated"]);

/** Exit code of `berth run` for a session that has ended. */
export function exitCodeOf(session: SessionDetail): number {
  const { status, exitCode, statusReason } = session;
  if (status === "TERMINATED") return exitCode ?? EXIT_TERMINATED;
  if (status === "CANCELLED" && statusReason !== null && BY_PERSON.has(statusReason)) return EXIT_TERMINATED;
  return EXIT_BERTH;
}

/** The sentence that belongs on stderr after the output, or undefined when the exit code alone says it. */
export function lastWords(session: SessionDetail): string | undefined {
  const { name, status, statusReason, statusMessage, exitCode } = session;
  const plain = statusReason === null || PLAIN.has(statusReason);
  if (status === "TERMINATED" && plain && (exitCode ?? 0) <= 125) return undefined;
  const why = statusMessage ?? `It ended as ${status}.`;
  return `berth: ${name}: ${why} [${statusReason ?? status.toLowerCase()}]`;
}
