import { MAX_DURATION_MS, SESSION_NAME } from "../../contract/primitives.ts";
import { formatDuration } from "../../kit/duration.ts";
import { isId } from "../../kit/ids.ts";
import { joinWords, momentInWords } from "../scheduling/words.ts";
import type { AdmissionFacts, AdmissionRequest, Refusal } from "./admission-types.ts";
import { checkArgumentSizes } from "./arguments.ts";

/** Ports of a session that the platform keeps for itself. */
const KEPT_PORTS: ReadonlySet<number> = new Set([2000, 2001, 2200, 7681]);
export const MAX_COUNT = 100;
const DAY = 86_400_000;
const MAX_AHEAD_MS = 366 * DAY;
/** A start time may lie this much in the past: clocks differ and requests travel. */
const PAST_GRACE_MS = 60_000;
const MIN_TIMEOUT_MS = 1000;

type Rule = (request: AdmissionRequest, facts: AdmissionFacts) => readonly Refusal[];

function refusal(code: string, field: string, sentence: string, details: Refusal["details"] = {}): Refusal {
  return { code, field, sentence, details };
}

/** The names of `count` sessions: the name itself, or numbered from 1; null where none was given. */
export function expandNames(name: string | null, count: number): readonly (string | null)[] {
  if (count === 1 || name === null) return Array.from({ length: count }, () => name);
  return Array.from({ length: count }, (_, i) => `${name}-${i + 1}`);
}

const isCount = (count: number) => Number.isInteger(count) && count >= 1 && count <= MAX_COUNT;

const countRule: Rule = ({ count }) =>
  isCount(count)
    ? []
    : [
        refusal("invalid-count", "count", `1 to ${MAX_COUNT} sessions can be asked for at once.`, {
          limit: MAX_COUNT,
        }),
      ];

/** What is wrong with a name as such; null when nothing is. Used for renaming as well. */
export function checkName(name: string): Refusal | null {
  const shown = JSON.stringify(name.slice(0, 80));
  if (!SESSION_NAME.test(name)) {
    const rule =
      "a name has 4 to 64 letters, digits, `_`, `.` or `-`, and starts and ends with a letter, digit or `_`";
    return refusal("invalid-name", "name", `${shown} cannot be a session's name: ${rule}.`, {
      minimum: 4,
      maximum: 64,
    });
  }
  if (!isId(name.toLowerCase())) return null;
  return refusal("invalid-name", "name", `${shown} cannot be a session's name: it looks like an id.`);
}

const nameRule: Rule = ({ name, count }, { liveNames }) => {
  if (name === null || !isCount(count)) return [];
  const names = expandNames(name, count).flatMap((each) => each ?? []);
  const wrong = names.map(checkName).find((problem) => problem !== null);
  if (wrong !== null && wrong !== undefined) return [wrong];
  const taken = names.filter((each) => liveNames.has(each));
  if (taken.length === 0) return [];
  const which = taken.length === 1 ? `${taken[0]} is` : `${joinWords(taken.slice(0, 5))} are`;
  const sentence = `You already have a session of this name that has not ended: ${which} taken.`;
  return [refusal("session-name-in-use", "name", sentence, { taken })];
};

const groupRule: Rule = ({ type }, { group }) => {
  const refusals: Refusal[] = [];
  const details = { group: group.name };
  if (!group.active) {
    const sentence = `The resource group ${group.name} is inactive and takes no sessions.`;
    refusals.push(refusal("group-inactive", "group", sentence, details));
  }
  if (!group.allowedTypes.includes(type)) {
    const allowed = group.allowedTypes.length === 0 ? "none" : joinWords(group.allowedTypes);
    const sentence = `The resource group ${group.name} takes no ${type} sessions; it takes ${allowed}.`;
    refusals.push(
      refusal("type-not-allowed", "type", sentence, { ...details, allowed: [...group.allowedTypes] }),
    );
  }
  return refusals;
};

const commandRule: Rule = ({ type, command }) => {
  const empty =
    command === null || command.length === 0 || (typeof command !== "string" && command[0] === "");
  if (type === "batch" && (empty || (typeof command === "string" && command.trim() === ""))) {
    return [refusal("command-missing", "command", "A batch session needs a command to run.")];
  }
  if (type === "interactive" && command !== null) {
    const sentence = "An interactive session runs no command of its own. Ask for a batch session.";
    return [refusal("command-not-allowed", "command", sentence)];
  }
  const argv = command === null ? [] : typeof command === "string" ? [command] : command;
  if (argv.every((arg) => arg.isWellFormed() && !arg.includes("\0"))) {
    return checkArgumentSizes(command ?? [], "command");
  }
  return [
    refusal("invalid-command", "command", "The command holds a NUL or text that is not valid Unicode."),
  ];
};

const startRule: Rule = ({ type, startsAt }, { now }) => {
  if (startsAt === null) return [];
  if (type !== "batch") {
    return [refusal("starts-at-not-allowed", "startsAt", "Only a batch session can have a start time.")];
  }
  if (!Number.isSafeInteger(startsAt)) return [refusal("invalid-starts-at", "startsAt", "This is no time.")];
  if (startsAt < now - PAST_GRACE_MS) {
    const sentence = `The start time ${momentInWords(startsAt)} has passed; it is ${momentInWords(now)}.`;
    return [refusal("starts-at-past", "startsAt", sentence)];
  }
  if (startsAt <= now + MAX_AHEAD_MS) return [];
  const latest = momentInWords(now + MAX_AHEAD_MS);
  const sentence = `The start time lies more than a year ahead; the latest is ${latest}.`;
  return [refusal("starts-at-too-far", "startsAt", sentence, { latest })];
};

const timeoutRule: Rule = ({ type, timeoutMs }, { policy }) => {
  if (timeoutMs === null) return [];
  if (type !== "batch")
    return [refusal("timeout-not-allowed", "timeout", "Only a batch session can have a timeout.")];
  if (!Number.isSafeInteger(timeoutMs) || timeoutMs < MIN_TIMEOUT_MS) {
    const sentence = `A timeout is at least ${formatDuration(MIN_TIMEOUT_MS)}.`;
    return [refusal("invalid-timeout", "timeout", sentence, { minimumMs: MIN_TIMEOUT_MS })];
  }
  if (timeoutMs > MAX_DURATION_MS) {
    const sentence = `A timeout is at most ${formatDuration(MAX_DURATION_MS)}, which is 10 years.`;
    return [refusal("invalid-timeout", "timeout", sentence, { maximumMs: MAX_DURATION_MS })];
  }
  const limit = policy.maxSessionLifetimeMs;
  if (limit === null || timeoutMs <= limit) return [];
  const sentence =
    `The timeout of ${formatDuration(timeoutMs)} is beyond the ${formatDuration(limit)} that your policy ` +
    `${policy.name} allows a session.`;
  return [refusal("timeout-above-policy", "timeout", sentence, { limitMs: limit })];
};

function portProblem(port: number, facts: AdmissionFacts): Refusal | null {
  const refuse = (code: string, sentence: string) => refusal(code, "preopenPorts", sentence, { port });
  if (!Number.isInteger(port) || port < 1024 || port > 65_535) {
    return refuse("invalid-port", `${port} cannot be opened: a port is between 1024 and 65535.`);
  }
  if (KEPT_PORTS.has(port)) {
    return refuse(
      "reserved-port",
      `Port ${port} is kept for the platform, as are ${[...KEPT_PORTS].join(", ")}.`,
    );
  }
  const service = facts.image.servicePorts.find(({ ports }) => ports.includes(port));
  if (service === undefined) return null;
  return refuse("service-port", `Port ${port} already belongs to the app ${service.name} of the image.`);
}

const portsRule: Rule = ({ preopenPorts }, facts) =>
  preopenPorts.flatMap((port, i) => {
    if (preopenPorts.indexOf(port) === i) return portProblem(port, facts) ?? [];
    return refusal("duplicate-port", "preopenPorts", `Port ${port} is given twice.`, { port });
  });

const modelRule: Rule = ({ type, hasModelFolder }) =>
  type !== "inference" || hasModelFolder === true
    ? []
    : [
        refusal(
          "model-folder-missing",
          "mounts",
          "An inference session needs a folder with a model among its mounts.",
        ),
      ];

/** The rules about the form of a request, each for itself. */
export const FORM_RULES: readonly Rule[] = [
  countRule,
  nameRule,
  groupRule,
  commandRule,
  startRule,
  timeoutRule,
  portsRule,
  modelRule,
];
