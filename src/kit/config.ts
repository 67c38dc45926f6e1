import { readFileSync } from "node:fs";
import { parse as parseToml } from "smol-toml";
import { z } from "zod";
import { isUnit, type Unit, WRITTEN } from "./config-fields.ts";
import { BerthError, messageOf } from "./errors.ts";

type Shape = Readonly<Record<string, z.ZodType>>;
type RawValue = unknown;
type Layer = ReadonlyMap<string, { readonly value: RawValue; readonly source: string }>;

export type ConfigRequest<S extends z.ZodObject<Shape>> = {
  /** Flat object; its keys in camelCase are the configuration's keys. Give defaults with `.default()`. */
  readonly schema: S;
  /** Arguments after the role's name. */
  readonly argv: readonly string[];
  readonly env: Readonly<Record<string, string | undefined>>;
  /** TOML file read when it exists; `--config F` or `BERTH_CONFIG` name another, which must exist. */
  readonly file?: string | undefined;
  /** Other names that flags and files may use: `{ manager: "managerUrl" }`. */
  readonly aliases?: Readonly<Record<string, string>>;
  /** Keys whose flag takes no value (`--x`, `--no-x`). */
  readonly booleans?: readonly string[];
  /** Beginnings of variables' names, the strongest first; `["BERTH_"]` by default. */
  readonly envPrefixes?: readonly string[];
  readonly readFile?: (path: string) => string;
};

export type LoadedConfig<T> = {
  readonly value: T;
  /** Where each key's value came from: "flag --x", "variable BERTH_X", "file F" or "default". */
  readonly sources: Readonly<Record<string, string>>;
  /** Sizes, durations and amounts of CPU as flags and files write them: "16m", "30d", "0.5". */
  readonly written: Readonly<Record<string, string>>;
};

function refuse(sentence: string, field?: string): BerthError {
  return new BerthError("invalid-config", sentence, field === undefined ? {} : { field });
}

/** `managerUrl` → `manager-url`: how flags and files write a key. */
export function kebab(key: string): string {
  return key.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);
}

function camel(name: string): string {
  return name.replace(/[-_]+([a-z0-9])/g, (_, letter: string) => letter.toUpperCase());
}

function envName(prefix: string, key: string): string {
  return prefix + kebab(key).replaceAll("-", "_").toUpperCase();
}

type Names = {
  readonly keys: readonly string[];
  /** The key that a flag or a file's entry means, or undefined. */
  keyOf(name: string): string | undefined;
};

function namesOf(schema: z.ZodObject<Shape>, aliases: Readonly<Record<string, string>>): Names {
  const keys = Object.keys(schema.shape);
  const known = new Set(keys);
  const keyOf = (name: string) => {
    const key = aliases[name] ?? camel(name);
    return known.has(key) ? key : undefined;
  };
  return { keys, keyOf };
}

type Flags = { readonly layer: Layer; readonly configFile: string | undefined };

function readFlags(argv: readonly string[], names: Names, booleans: ReadonlySet<string>): Flags {
  const found = new Map<string, { value: RawValue; source: string }>();
  let configFile: string | undefined;
  const rest = [...argv];
  for (let word = rest.shift(); word !== undefined; word = rest.shift()) {
    const match = /^--([A-Za-z][\w-]*)(?:=([\s\S]*))?$/.exec(word);
    if (match === null) throw refuse(`"${word}" is not expected here: options are written --name value.`);
    const name = match[1] ?? "";
    const inline = match[2];
    const positive = name.startsWith("no-") ? names.keyOf(name.slice(3)) : undefined;
    if (positive !== undefined && booleans.has(positive) && inline === undefined) {
      found.set(positive, { value: false, source: `flag --${name}` });
      continue;
    }
    const key = name === "config" ? "config" : names.keyOf(name);
    if (key === undefined) throw refuse(`--${name} is not a known option.`, name);
    if (booleans.has(key) && inline === undefined) {
      found.set(key, { value: true, source: `flag --${name}` });
      continue;
    }
    const value = inline ?? rest.shift();
    if (value === undefined) throw refuse(`--${name} needs a value.`, name);
    if (key === "config") configFile = value;
    else found.set(key, { value: joined(found.get(key)?.value, value), source: `flag --${name}` });
  }
  return { layer: found, configFile };
}

/** A flag given again makes a list; the schema decides whether a list is allowed. */
function joined(before: RawValue, value: string): RawValue {
  if (before === undefined) return value;
  return Array.isArray(before) ? [...before, value] : [before, value];
}

function readEnv(env: ConfigRequest<z.ZodObject<Shape>>["env"], names: Names, prefixes: readonly string[]) {
  const found = new Map<string, { value: RawValue; source: string }>();
  for (const key of names.keys) {
    const name = prefixes
      .map((prefix) => envName(prefix, key))
      .find((variable) => (env[variable] ?? "") !== "");
    if (name !== undefined) found.set(key, { value: env[name], source: `variable ${name}` });
  }
  return found;
}

function readToml(path: string, mustExist: boolean, read: (path: string) => string): unknown {
  let text: string;
  try {
    text = read(path);
  } catch (err) {
    const missing = err instanceof Error && "code" in err && err.code === "ENOENT";
    if (missing && !mustExist) return {};
    throw refuse(`The configuration file ${path} cannot be read: ${messageOf(err)}.`, "config");
  }
  try {
    return parseToml(text);
  } catch (err) {
    throw refuse(`The configuration file ${path} is not valid TOML: ${messageOf(err)}`, "config");
  }
}

function readFileLayer(path: string, table: unknown, names: Names): Layer {
  const found = new Map<string, { value: RawValue; source: string }>();
  for (const [name, value] of Object.entries(table ?? {})) {
    const key = names.keyOf(name);
    if (key === undefined) throw refuse(`${name} in ${path} is not a known key.`, name);
    if (found.has(key)) throw refuse(`${name} in ${path} is given twice under two names.`, name);
    found.set(key, { value, source: `file ${path}` });
  }
  return found;
}

function explain(error: z.ZodError, sources: Readonly<Record<string, string>>): BerthError {
  const issue = error.issues[0];
  const key = String(issue?.path[0] ?? "");
  const source = sources[key] ?? "default";
  if (source === "default") {
    const where = `give --${kebab(key)}, ${envName("BERTH_", key)} or ${kebab(key)} in the configuration file`;
    return refuse(`${kebab(key)} is needed: ${where}.`, key);
  }
  return refuse(`${kebab(key)} (${source}): ${issue?.message ?? "not valid"}`, key);
}

/**
 * Reads a role's configuration: flags before `BERTH_*` variables before the TOML file before the schema's
 * defaults. Throws `invalid-config` with a sentence that names the key and where its value came from; an
 * unknown flag or key in the file is refused, an unknown variable is not ours to judge.
 */
export function loadConfig<S extends z.ZodObject<Shape>>(
  request: ConfigRequest<S>,
): LoadedConfig<z.output<S>> {
  const names = namesOf(request.schema, request.aliases ?? {});
  const flags = readFlags(request.argv, names, new Set(request.booleans ?? []));
  const named = flags.configFile ?? (request.env.BERTH_CONFIG || undefined);
  const path = named ?? request.file;
  const read = request.readFile ?? ((file: string) => readFileSync(file, "utf8"));
  const table = path === undefined ? {} : readToml(path, named !== undefined, read);
  const layers: Layer[] = [
    flags.layer,
    readEnv(request.env, names, request.envPrefixes ?? ["BERTH_"]),
    readFileLayer(path ?? "", table, names),
  ];

  const raw: Record<string, RawValue> = {};
  const sources: Record<string, string> = {};
  for (const key of names.keys) {
    const hit = layers.map((layer) => layer.get(key)).find((entry) => entry !== undefined);
    sources[key] = hit?.source ?? "default";
    if (hit !== undefined) raw[key] = hit.value;
  }
  const result = request.schema.safeParse(raw);
  if (!result.success) throw explain(result.error, sources);
  return { value: result.data, sources, written: writtenForms(request.schema, result.data) };
}

/** A field as it was before it became optional or got a default; undefined when it is that already. */
function innerOf(field: z.ZodType): z.ZodType | undefined {
  const inner = field instanceof z.ZodOptional || field instanceof z.ZodDefault ? field.unwrap() : undefined;
  return inner instanceof z.ZodType ? inner : undefined;
}

function unitOf(field: z.ZodType): Unit | undefined {
  const { unit } = field.meta() ?? {};
  if (isUnit(unit)) return unit;
  const inner = innerOf(field);
  return inner === undefined ? undefined : unitOf(inner);
}

function writtenForms(schema: z.ZodObject<Shape>, value: Readonly<Record<string, unknown>>) {
  const forms: Record<string, string> = {};
  for (const [key, field] of Object.entries(schema.shape)) {
    const unit = unitOf(field);
    const amount = value[key];
    if (unit !== undefined && typeof amount === "number") forms[key] = WRITTEN[unit](amount);
  }
  return forms;
}

/** The description of a field, also when it was given before the field became optional or got a default. */
function descriptionOf(field: z.ZodType): string {
  if (field.description !== undefined) return field.description;
  const inner = innerOf(field);
  return inner === undefined ? "" : descriptionOf(inner);
}

/**
 * One line for each key: its flag, its variable and its description, for `--help`. `variables` names those whose
 * variable is not made from the key.
 */
export function describeConfig(
  schema: z.ZodObject<Shape>,
  variables: Readonly<Record<string, string>> = {},
): string {
  const rows = Object.entries(schema.shape).map(
    ([key, field]) =>
      [`--${kebab(key)}`, variables[key] ?? envName("BERTH_", key), descriptionOf(field)] as const,
  );
  const widths = [0, 1].map((column) => Math.max(...rows.map((row) => (row[column] ?? "").length)));
  return rows
    .map(
      ([flag, variable, about]) =>
        `  ${flag.padEnd(widths[0] ?? 0)}  ${variable.padEnd(widths[1] ?? 0)}  ${about}`,
    )
    .join("\n");
}
