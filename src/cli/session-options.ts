import type { CreateSessionInput } from "../contract/sessions.ts";
import type { Clock } from "../kit/clock.ts";
import { parseCpu } from "../kit/cpu.ts";
import { parseDuration } from "../kit/duration.ts";
import { BerthError } from "../kit/errors.ts";
import { parseSize } from "../kit/size.ts";
import { given, type Invocation, type OptionSpec, parseInteger } from "./command.ts";
import { readEnvironment } from "./env-file.ts";

/** What `run` and `start` have in common. */
export const SESSION_OPTIONS: readonly OptionSpec[] = [
  { flags: "--image <image>", help: "image to run in (default: host)", completes: "images" },
  { flags: "--cpu <n>", help: "CPU cores: 2, 0.5, 250m" },
  { flags: "--mem <size>", help: "memory: 512m, 1.5g" },
  { flags: "--shm <size>", help: "shared memory, a part of the memory: 64m" },
  {
    flags: "-e, --env <name=value>",
    help: "environment variable; a name alone takes the value it has here",
    many: true,
  },
  { flags: "--env-file <file>", help: "file with a variable on each line", many: true, completes: "files" },
  { flags: "--name <name>", help: "name, 4 to 64 letters, digits, _ . -" },
  { flags: "--group <group>", help: "resource group", completes: "groups" },
  { flags: "--priority <n>", help: "0 to 100 (default 10); above 10 needs a right" },
  { flags: "--tag <tag>", help: "tag to find it by", many: true },
  { flags: "--port <port>", help: "port that the session will serve, 1024 to 65535", many: true },
  { flags: "--count <n>", help: "number of identical sessions" },
];

/** A start time: RFC 3339, local time without an offset, or `+30m` from now. Throws `invalid-time`. */
export function parseStart(text: string, clock: Clock): string {
  if (text.startsWith("+")) {
    return new Date(clock.wall() + parseDuration(text.slice(1), "--start-at")).toISOString();
  }
  const isDate = /^\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?:Z|[+-]\d{2}:\d{2})?)?$/i.test(
    text,
  );
  // A date alone would be read as UTC, and a time behind it as local.
  const time = isDate
    ? Date.parse(text.length === 10 ? `${text}T00:00` : text.replace(" ", "T"))
    : Number.NaN;
  if (Number.isNaN(time)) {
    const sentence = `--start-at: "${text}" is not a time. Write 2027-01-31T08:00, 2027-01-31T08:00Z or +30m.`;
    throw new BerthError("invalid-time", sentence, { field: "startsAt" });
  }
  return new Date(time).toISOString();
}

function optional<T>(text: string | undefined, parse: (text: string) => T): T | undefined {
  return text === undefined ? undefined : parse(text);
}

/** The request that the options ask for. Throws with the option's name where a value makes no sense. */
export function sessionRequest(
  { options, io, clock }: Invocation,
  type: "batch" | "interactive",
): CreateSessionInput {
  return given({
    type,
    name: options.text("name"),
    image: options.text("image"),
    group: options.text("group"),
    slots: given({
      cpu: optional(options.text("cpu"), (text) => parseCpu(text, "--cpu")),
      mem: optional(options.text("mem"), (text) => parseSize(text, "--mem")),
      shm: optional(options.text("shm"), (text) => parseSize(text, "--shm")),
    }),
    environment: readEnvironment(options.many("env-file"), options.many("env"), io.env),
    priority: options.integer("priority"),
    tags: [...options.many("tag")],
    startsAt: optional(options.text("start-at"), (text) => parseStart(text, clock)),
    timeout: optional(options.text("timeout"), (text) => parseDuration(text, "--timeout")),
    preopenPorts: options.many("port").map((text) => parseInteger(text, "--port")),
    count: options.integer("count"),
    useEntrypoint: options.flag("entrypoint") || undefined,
  });
}
