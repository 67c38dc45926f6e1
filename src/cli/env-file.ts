import { readFileSync } from "node:fs";
import { BerthError, messageOf } from "../kit/errors.ts";
import { decodeUtf8 } from "./utf8.ts";

type Variables = Readonly<Record<string, string | undefined>>;

function assignment(text: string, where: string, caller: Variables): [string, string] {
  const equals = text.indexOf("=");
  const name = equals < 0 ? text : text.slice(0, equals);
  if (name === "" || /\s/.test(name)) {
    throw new BerthError("invalid-environment", `${where}: "${text}" is neither NAME=VALUE nor NAME.`);
  }
  if (equals >= 0) return [name, text.slice(equals + 1)];
  const value = caller[name];
  if (value === undefined) {
    throw new BerthError("invalid-environment", `${where}: the variable ${name} is not set here.`);
  }
  // What the runtime puts in the place of bytes that are no text.
  if (value.includes("\ufffd")) {
    const sentence = `${where}: the value that ${name} has here is not UTF-8 text (or holds U+FFFD).`;
    throw new BerthError("invalid-environment", sentence);
  }
  return [name, value];
}

/**
 * Variables of an env-file: a line each, `NAME=VALUE` taken as it stands, or `NAME` for the caller's value;
 * empty lines and those that begin with `#` are skipped. Throws `invalid-environment` with the line's number.
 */
export function parseEnvFile(text: string, file: string, caller: Variables): Record<string, string> {
  const lines = text.replace(/^\ufeff/, "").split(/\r?\n/);
  const pairs = lines.flatMap((line, index) => {
    const start = line.trimStart();
    if (start === "" || start.startsWith("#")) return [];
    return [assignment(start, `${file}, line ${index + 1}`, caller)];
  });
  return Object.fromEntries(pairs);
}

function readText(file: string): string {
  let bytes: Uint8Array;
  try {
    bytes = readFileSync(file);
  } catch (error) {
    const sentence = `--env-file: ${file} cannot be read: ${messageOf(error)}.`;
    throw new BerthError("invalid-environment", sentence);
  }
  const text = decodeUtf8(bytes);
  if (text !== undefined) return text;
  throw new BerthError("invalid-environment", `--env-file: ${file} is not UTF-8 text.`);
}

/** The variables of `--env-file` and `-e`; the later one wins, and `-e` over every file. */
export function readEnvironment(
  files: readonly string[],
  words: readonly string[],
  caller: Variables,
): Record<string, string> {
  const fromFiles = files.flatMap((file) => {
    return Object.entries(parseEnvFile(readText(file), file, caller));
  });
  return Object.fromEntries([...fromFiles, ...words.map((word) => assignment(word, "-e", caller))]);
}
