import type { FinalStatus, SessionResult, SessionStatus, SessionType } from "../../contract/states.ts";
import { formatDuration } from "../../kit/duration.ts";
import { formatSize } from "../../kit/size.ts";

/** What is known about a kernel that is over. */
export type EndFacts = {
  readonly type: SessionType;
  /** Whether its main process ever ran. */
  readonly ran: boolean;
  readonly exitCode: number | null;
  /** Whether the kernel's memory limit made the system end a process of it. */
  readonly oom: boolean;
  /** Whether the agent ended it because its time was over. */
  readonly timedOut: boolean;
  /** Why somebody or something asked for its end; null when nobody did. */
  readonly stopReason: string | null;
  /** Whether the stop was asked for before the process ended by itself, as the agent saw it. */
  readonly stopRequested: boolean;
  /** Why it never ran, as the agent says. */
  readonly failure: { readonly code: string; readonly message: string } | null;
  /** Why the container ended or vanished, as the agent says: `container-removed`, `engine-restarted`, … */
  readonly endReason: string | null;
  readonly image: string;
  readonly node: string | null;
  readonly memBytes: number;
  /** The batch timeout in milliseconds, for the words. */
  readonly timeoutMs: number | null;
  /** The size of its scratch disk in bytes, for the words; null where it has no limit. */
  readonly scratchBytes: number | null;
};

export type SessionEnd = {
  readonly status: FinalStatus;
  /** `UNDEFINED` for everything but a batch. */
  readonly result: SessionResult;
  /** 0–255; null where no process of the session ended with a code. */
  readonly exitCode: number | null;
  readonly statusReason: string;
  readonly sentence: string;
};

export const EXIT_TIMEOUT = 124;
export const EXIT_KILLED = 137;

type Words = { readonly status: FinalStatus; readonly sentence: (facts: EndFacts) => string };
const on = (facts: EndFacts) => (facts.node === null ? "" : ` on ${facts.node}`);
const nodeOf = (facts: EndFacts) => (facts.node === null ? "The node" : `The node ${facts.node}`);
const said = (facts: EndFacts) => {
  const message = facts.failure?.message.trim().replace(/\.$/, "") ?? "";
  return message === "" ? "" : `: ${message}`;
};
const PULL_FAILED = /^: The image \S+ could not be pulled: /;
const terminated = (sentence: string): Words => ({ status: "TERMINATED", sentence: () => sentence });
const error = (sentence: Words["sentence"]): Words => ({ status: "ERROR", sentence });

const STOPS: ReadonlyMap<string, Words> = new Map([
  ["user-requested", terminated("It was terminated on request.")],
  ["admin-requested", terminated("It was terminated by an administrator.")],
  [
    "force-terminated",
    terminated("It was terminated by force; its container is removed once its node answers."),
  ],
  ["owner-deactivated", terminated("It was terminated because its owner's account was deactivated.")],
  [
    "session-lifetime",
    terminated("It was terminated at the end of the longest time that the policy allows."),
  ],
  ["idle-timeout", terminated("It was terminated because it was idle for too long.")],
  ["agent-removed", terminated("It was terminated because its node was removed from the cluster.")],
  ["node-removed", terminated("It was terminated because its node was removed from the cluster.")],
  [
    "terminating-timeout",
    terminated("Its container did not end in time; it is removed once its node answers."),
  ],
  ["pending-timeout", { status: "CANCELLED", sentence: () => "It waited longer than its group allows." }],
  ["scheduled-timeout", error((f) => `${nodeOf(f)} did not take it up in time.`)],
  ["preparing-timeout", error((f) => `Preparing it${on(f)} took too long and was given up.`)],
  ["pulling-timeout", error((f) => `Pulling the image ${f.image}${on(f)} took too long and was given up.`)],
  ["creating-timeout", error((f) => `Creating its container${on(f)} took too long and was given up.`)],
]);

const VANISHED: ReadonlyMap<string, Words> = new Map([
  [
    "container-removed",
    error((f) => `Its container was removed${on(f)}, by hand or because Berth was uninstalled there.`),
  ],
  [
    "engine-restarted",
    error((f) => `The container engine${on(f)} was restarted, which ended its container.`),
  ],
  ["node-restarted", error((f) => `${nodeOf(f)} was restarted, which ended it.`)],
  [
    "disk-full",
    {
      status: "TERMINATED" as const,
      sentence: (f: EndFacts) =>
        f.scratchBytes === null
          ? "It was ended because it used up its disk space."
          : `It was ended because it used more than its ${formatSize(f.scratchBytes)} of disk.`,
    },
  ],
]);

const FAILURES: ReadonlyMap<string, (facts: EndFacts) => string> = new Map([
  ["image-not-found", (f) => `The image ${f.image} was not found${said(f)}. Check its name and tag.`],
  [
    "image-pull-failed",
    // The agent's sentence begins with the same words, without the node.
    (f) => `The image ${f.image} could not be pulled${on(f)}${said(f).replace(PULL_FAILED, ": ")}.`,
  ],
  ["image-pull-denied", (f) => `The registry refused to hand out the image ${f.image}${said(f)}.`],
  [
    "registry-unreachable",
    (f) => `The registry of the image ${f.image} could not be reached${on(f)}${said(f)}.`,
  ],
  ["host-environment", (f) => `The host environment is not possible${on(f)}${said(f)}.`],
  ["disk-full", (f) => `${nodeOf(f)} has no disk space left${said(f)}.`],
  [
    "image-missing",
    (f) => `${nodeOf(f)} does not have the image ${f.image} and was not to pull it${said(f)}.`,
  ],
  ["engine-unreachable", (f) => `The container engine${on(f)} does not answer${said(f)}.`],
  ["engine-refused", (f) => `The container engine${on(f)} refused it${said(f)}.`],
  ["engine-unavailable", (f) => `The container engine${on(f)} does not answer${said(f)}.`],
  ["scratch-failed", (f) => `Its scratch disk could not be made${on(f)}${said(f)}.`],
  ["create-failed", (f) => `Its container could not be created${on(f)}${said(f)}.`],
  ["start-failed", (f) => `Its container could not be started${on(f)}${said(f)}.`],
]);

const SIGNALS: Readonly<Record<number, string>> = {
  1: "SIGHUP",
  2: "SIGINT",
  3: "SIGQUIT",
  4: "SIGILL",
  6: "SIGABRT",
  7: "SIGBUS",
  8: "SIGFPE",
  9: "SIGKILL",
  11: "SIGSEGV",
  13: "SIGPIPE",
  15: "SIGTERM",
  24: "SIGXCPU",
  25: "SIGXFSZ",
};

function endWith(
  facts: EndFacts,
  status: FinalStatus,
  exitCode: number | null,
  statusReason: string,
  sentence: string,
): SessionEnd {
  const success = exitCode === 0 && status === "TERMINATED";
  const result = facts.type !== "batch" ? "UNDEFINED" : success ? "SUCCESS" : "FAILURE";
  return { status, result, exitCode, statusReason, sentence };
}

function stopped(facts: EndFacts, reason: string): SessionEnd {
  const words = STOPS.get(reason) ?? terminated(`It was terminated: ${reason}.`);
  if (facts.ran) {
    // A deadline of an early phase cannot have ended what ran; the request to end it did.
    return endWith(facts, words.status, EXIT_KILLED, reason, words.sentence(facts));
  }
  const status = words.status === "ERROR" ? "ERROR" : "CANCELLED";
  const before = status === "CANCELLED" ? " It had not started." : "";
  return endWith(facts, status, null, reason, `${words.sentence(facts)}${before}`);
}

function notStarted(facts: EndFacts, failure: { code: string; message: string }): SessionEnd {
  if (failure.code === "command-not-found") return exited(facts, 127);
  if (failure.code === "command-not-executable") return exited(facts, 126);
  const words = FAILURES.get(failure.code) ?? ((f: EndFacts) => `It could not be started${on(f)}${said(f)}.`);
  return endWith(facts, "ERROR", null, failure.code, words(facts));
}

function outOfMemory(facts: EndFacts): SessionEnd {
  const code = facts.exitCode === null || facts.exitCode === 0 ? EXIT_KILLED : facts.exitCode;
  const given = formatSize(facts.memBytes);
  const sentence = `Memory ran out: the session was given ${given} and needed more. Ask for more memory.`;
  return endWith(facts, "TERMINATED", code, "out-of-memory", sentence);
}

function exited(facts: EndFacts, code: number): SessionEnd {
  const done = (reason: string, sentence: string) => endWith(facts, "TERMINATED", code, reason, sentence);
  if (facts.type !== "batch") {
    return done("self-terminated", `Its main process ended by itself with exit code ${code}.`);
  }
  if (code === 0) {
    const note = facts.oom ? " A process of it was ended on the way because memory ran out." : "";
    return done("task-finished", `The command finished.${note}`);
  }
  if (code === 126)
    return done("task-failed", "The command was found but cannot be executed (exit code 126).");
  if (code === 127) return done("task-failed", "The command was not found (exit code 127).");
  if (code > 128 && code <= 192) {
    const name = SIGNALS[code - 128] ?? `signal ${code - 128}`;
    return done("task-failed", `The command was ended by ${name} (exit code ${code}).`);
  }
  return done("task-failed", `The command failed with exit code ${code}.`);
}

/**
 * How a session ended, in codes and in words. The causes are weighed in this order: a stop that came
 * first, a start that failed, the timeout, memory, a container that vanished, and else the exit code
 * of the command as it is. A stop or a kill gives 137, a timeout 124.
 */
export function describeEnd(facts: EndFacts): SessionEnd {
  const { stopReason, failure, exitCode } = facts;
  const endedByItself = exitCode !== null && facts.ran && !facts.stopRequested;
  if (stopReason !== null && !endedByItself && failure?.code !== "command-not-found") {
    return stopped(facts, stopReason);
  }
  if (failure !== null) return notStarted(facts, failure);
  if (facts.timedOut) {
    const limit = facts.timeoutMs === null ? "" : ` of ${formatDuration(facts.timeoutMs)}`;
    return endWith(facts, "TERMINATED", EXIT_TIMEOUT, "task-timeout", `It ran into its time limit${limit}.`);
  }
  if (facts.oom && !(facts.type === "batch" && exitCode === 0)) return outOfMemory(facts);
  const endReason = facts.endReason ?? "unknown";
  const vanished = VANISHED.get(endReason);
  if (vanished !== undefined) {
    // The code that the engine tells of a container it lost is not that of the command.
    const code = vanished.status === "ERROR" ? null : (exitCode ?? EXIT_KILLED);
    return endWith(facts, vanished.status, code, endReason, vanished.sentence(facts));
  }
  if (exitCode !== null) return exited(facts, exitCode);
  const where = facts.node === null ? "its node" : facts.node;
  return endWith(
    facts,
    "ERROR",
    null,
    facts.endReason ?? "unknown",
    `It ended on ${where} and nothing says why.`,
  );
}

/** The stop reason that goes with a phase that lasted too long, such as `pulling-timeout`. */
export function deadlineReason(state: SessionStatus): string {
  return `${state.toLowerCase()}-timeout`;
}

/** What is told of a session whose node does not answer; its state stays as it is. */
export function agentLostWords(node: string): { readonly statusReason: string; readonly sentence: string } {
  return {
    statusReason: "agent-lost",
    sentence: `Its node ${node} does not answer. The session may still run there and is not moved.`,
  };
}
