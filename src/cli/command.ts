import type { Clock } from "../kit/clock.ts";
import { BerthError } from "../kit/errors.ts";
import type { Client } from "./client.ts";
import { usage } from "./failures.ts";
import type { Io } from "./io.ts";
import { type Cell, type Column, facts, type TimeStyle, table, when } from "./text.ts";

/** What completion offers for an argument or an option's value. */
export type Completes = "sessions" | "running" | "images" | "nodes" | "groups" | "users" | "files";

export type OptionSpec = {
  /** As commander takes it: `-e, --env <K=V>`. */
  readonly flags: string;
  readonly help: string;
  /** Whether it may be given more than once. */
  readonly many?: boolean;
  readonly choices?: readonly string[];
  readonly completes?: Completes;
};

export type CommandSpec = {
  /** Name and arguments as commander takes them: `show <session>`. */
  readonly usage: string;
  readonly summary: string;
  readonly options?: readonly OptionSpec[];
  readonly examples: readonly string[];
  readonly completes?: Completes;
  /** Exit code when Berth refuses or fails; 1 if not given. */
  readonly failCode?: number;
  /** Whether words behind `--` (or behind the last argument) are a command to pass on. */
  readonly tail?: boolean;
  readonly hidden?: boolean;
  /** The exit code; nothing means 0. */
  readonly run: (invocation: Invocation) => Promise<number | undefined>;
};

export type FamilySpec = {
  readonly name: string;
  readonly summary: string;
  readonly commands: readonly CommandSpec[];
};

export interface Options {
  text(name: string): string | undefined;
  /** Whether the flag was given; `no-wait` means that `--no-wait` was. */
  flag(name: string): boolean;
  many(name: string): readonly string[];
  /** A whole number. Throws `invalid-number`, naming the option. */
  integer(name: string): number | undefined;
  /** `on` or `off`. */
  onOff(name: string): boolean | undefined;
}

/** One call of a command: what was given and what it may use. */
export type Invocation = {
  readonly args: readonly string[];
  /** The words behind `--`, or undefined where there was none. */
  readonly tail: readonly string[] | undefined;
  readonly options: Options;
  readonly json: boolean;
  readonly io: Io;
  readonly clock: Clock;
  /** The manager, found and connected to at the first use. */
  readonly client: () => Promise<Client>;
  readonly show: Show;
};

/** Ways to print what a command has to say. */
export interface Show {
  json(value: unknown): Promise<void>;
  line(text: string): Promise<void>;
  /** A note on stderr: not part of the output. */
  note(text: string): Promise<void>;
  /** A table; `empty` says what to do when there are no rows. */
  table(
    columns: readonly (Column | string)[],
    rows: readonly (readonly Cell[])[],
    empty: string,
  ): Promise<void>;
  facts(pairs: readonly (readonly [string, string | null | undefined])[]): Promise<void>;
  when(at: string | null): string;
}

export function createShow(io: Io, style: TimeStyle): Show {
  const colours = io.stdoutTty && (io.env.NO_COLOR ?? "") === "" && io.env.TERM !== "dumb";
  return {
    json: (value) => io.out(`${JSON.stringify(value, null, 2)}\n`),
    line: (text) => io.out(`${text}\n`),
    note: (text) => io.err(`${text}\n`),
    table: async (columns, rows, empty) => {
      if (rows.length === 0) return io.err(`${empty}\n`);
      const full = columns.map((column) => (typeof column === "string" ? { title: column } : column));
      return io.out(table(full, rows, colours));
    },
    facts: (pairs) => io.out(facts(pairs)),
    when: (at) => when(at, style),
  };
}

const camel = (name: string) => name.replace(/-([a-z])/g, (_, letter: string) => letter.toUpperCase());

/** Reads what commander collected, by the options' long names. */
export function readOptions(values: Readonly<Record<string, unknown>>): Options {
  const text = (name: string): string | undefined => {
    const value = values[camel(name)];
    return typeof value === "string" ? value : undefined;
  };
  return {
    text,
    flag: (name) => {
      const off = name.startsWith("no-") ? values[camel(name.slice(3))] === false : false;
      return off || values[camel(name)] === true;
    },
    many: (name) => {
      const value: unknown = values[camel(name)];
      return Array.isArray(value) ? value.filter((item): item is string => typeof item === "string") : [];
    },
    integer: (name) => {
      const given = text(name);
      return given === undefined ? undefined : parseInteger(given, `--${name}`);
    },
    onOff: (name) => {
      const given = text(name);
      return given === undefined ? undefined : given === "on";
    },
  };
}

/** Throws `invalid-number` with a sentence that begins with `field`. */
export function parseInteger(text: string, field: string): number {
  const value = Number(text);
  if (!/^[+-]?\d+$/.test(text.trim()) || !Number.isSafeInteger(value)) {
    throw new BerthError("invalid-number", `${field}: "${text}" is not a whole number.`, { field });
  }
  return value;
}

/** The argument at a place, which commander has made sure of. */
export function argument({ args }: Invocation, index = 0): string {
  const value = args[index];
  if (value === undefined) throw usage("An argument is missing.");
  return value;
}

export const ON_OFF = ["on", "off"] as const;

/** The value with only the keys that are given. */
export function given<T extends Record<string, unknown>>(
  value: T,
): { [K in keyof T]?: Exclude<T[K], undefined> } {
  const out: { [K in keyof T]?: Exclude<T[K], undefined> } = {};
  for (const key in value) {
    const entry = value[key];
    if (isGiven(entry)) out[key] = entry;
  }
  return out;
}

function isGiven<T>(value: T): value is Exclude<T, undefined> {
  return value !== undefined;
}

/** One of a list of words. Throws `usage`, naming them. */
export function oneOf<T extends string>(words: readonly T[], text: string | undefined, field: string) {
  if (text === undefined) return undefined;
  const found = words.find((word) => word === text);
  if (found === undefined) throw usage(`${field}: "${text}" is not one of ${words.join(", ")}.`);
  return found;
}
