import { z } from "zod";
import { formatCpu, parseCpu } from "./cpu.ts";
import { formatDuration, parseDuration } from "./duration.ts";
import { messageOf } from "./errors.ts";
import { formatSizeShort, parseSize } from "./size.ts";

/** Fields for a configuration schema. Each takes what a TOML file gives (typed) and what a flag gives (text). */

/** How a field's number is written in flags and files, by the unit in its metadata. */
export const WRITTEN = {
  bytes: formatSizeShort,
  "milli-cores": formatCpu,
  ms: formatDuration,
} as const;
export type Unit = keyof typeof WRITTEN;

export function isUnit(text: unknown): text is Unit {
  return typeof text === "string" && Object.hasOwn(WRITTEN, text);
}

const measured = (unit: Unit) => ({ unit });

const NAMELESS = "it";

/** Turns a parser of text that throws into a field; the loader puts the key's name before the sentence. */
function parsed<T>(parse: (text: string) => T) {
  return (text: string, ctx: z.RefinementCtx): T => {
    try {
      return parse(text);
    } catch (err) {
      ctx.addIssue({ code: "custom", message: messageOf(err).replace(`${NAMELESS}: `, "") });
      return z.NEVER;
    }
  };
}

const wholeNumber = z.int("must be a whole number").nonnegative("must not be negative");
const text = z.string("must be text").trim();

/** Bytes: `"10g"`, or a whole number of bytes. */
export const sizeField = () =>
  z
    .union([wholeNumber, text.transform(parsed((value) => parseSize(value, NAMELESS)))], {
      error: 'must be a size such as "10g"',
    })
    .meta(measured("bytes"));

/** Milli-cores: `"0.5"`, `"2"`, `"500m"`; a bare number in a file counts cores. 0 is allowed. */
export const cpuField = () =>
  z
    .union([z.number(), text], { error: 'must be an amount of CPU such as "0.5"' })
    .transform((value) => String(value))
    .transform(parsed((value) => (value === "0" ? 0 : parseCpu(value, NAMELESS))))
    .meta(measured("milli-cores"));

/** Milliseconds: `"90s"`, `"10m"`. */
export const durationField = () =>
  text.transform(parsed((value) => parseDuration(value, NAMELESS))).meta(measured("ms"));

const BOOLEANS: Readonly<Record<string, boolean>> = {
  true: true,
  false: false,
  yes: true,
  no: false,
  on: true,
  off: false,
  "1": true,
  "0": false,
};

/** `true` or `false`; text may also say yes, no, on, off, 1, 0. */
export const booleanField = () =>
  z.union([z.boolean(), text], { error: "must be true or false" }).transform((value, ctx): boolean => {
    const known = typeof value === "boolean" ? value : BOOLEANS[value.toLowerCase()];
    if (known !== undefined) return known;
    ctx.addIssue({ code: "custom", message: "must be true or false" });
    return z.NEVER;
  });

/** A whole number between `min` and `max`, both allowed. */
export const integerField = (min: number, max: number) =>
  z
    .union([z.number(), text.regex(/^-?\d+$/).transform(Number)], { error: "must be a whole number" })
    .refine((value) => Number.isInteger(value) && value >= min && value <= max, {
      error: `must be a whole number between ${min} and ${max}`,
    });

/** Texts: an array in a file, a flag given several times, or one text; commas separate in all of them. */
export const listField = () =>
  z
    .union([z.array(text), text.transform((value) => [value])], { error: "must be a list of texts" })
    .transform((values) =>
      values.flatMap((value) => value.split(",").map((part) => part.trim())).filter((part) => part !== ""),
    );
