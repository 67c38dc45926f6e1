import { z } from "zod";
import { parseCpu } from "../kit/cpu.ts";
import { formatDuration, parseDuration } from "../kit/duration.ts";
import { isBerthError } from "../kit/errors.ts";
import { parseSize } from "../kit/size.ts";

/** Runs a parser of ours inside zod, so that its sentence reaches the person with the field's name. */
function parsed(parse: (text: string) => number) {
  return (text: string, context: z.core.$RefinementCtx<string>): number => {
    try {
      return parse(text);
    } catch (error) {
      if (!isBerthError(error)) throw error;
      context.issues.push({ code: "custom", message: error.message, input: text });
      return z.NEVER;
    }
  };
}

/** Bytes: an integer, or a text with a unit such as `512m` or `1.5 GiB`. */
export const sizeInput = z
  .union([
    z.int().min(0),
    z
      .string()
      .max(40)
      .transform(parsed((text) => parseSize(text))),
  ])
  .meta({ description: "Bytes as an integer, or a text with a unit: 512m, 1.5 GiB", example: "1g" });

/** CPU: an integer counts milli-cores, a text cores (`0.5`) or milli-cores (`250m`). */
export const cpuInput = z
  .union([
    z.int().min(0),
    z
      .string()
      .max(20)
      .transform(parsed((text) => parseCpu(text))),
  ])
  .meta({ description: "Milli-cores as an integer, or a text: 0.5 (cores), 250m", example: "0.5" });

/** The longest duration that anything takes, ten years: a moment that far ahead is still a date. */
export const MAX_DURATION_MS = 3650 * 86_400_000;
export const DURATION_LIMIT = `The longest duration is ${formatDuration(MAX_DURATION_MS)} (10 years).`;

/** A duration of at most ten years: an integer counts milliseconds, a text has units (`90s`, `1h30m`). */
export const durationInput = z
  .union([
    z.int().min(0),
    z
      .string()
      .max(40)
      .transform(parsed((text) => parseDuration(text))),
  ])
  .refine((ms) => ms <= MAX_DURATION_MS, DURATION_LIMIT)
  .meta({ description: "Milliseconds as an integer, or a text with units: 90s, 1h30m", example: "10m" });

export const id = z.uuid().meta({ description: "An id (UUIDv7)" });
/** Milliseconds since the epoch on the wire of the API are RFC 3339 texts. */
export const timestamp = z.iso.datetime({ offset: true }).meta({ description: "RFC 3339 time" });

export const SESSION_NAME = /^(?=.{4,64}$)[A-Za-z0-9_][A-Za-z0-9_.-]*[A-Za-z0-9_]$/;
export const sessionName = z
  .string()
  .regex(
    SESSION_NAME,
    "A session name has 4 to 64 letters, digits, `_`, `.` or `-`, and starts and ends with a letter, digit or `_`.",
  );

/** Name of a thing an administrator makes: a resource group, a policy, a token. */
export const plainName = z
  .string()
  .regex(
    /^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$/,
    "A name has 1 to 64 letters, digits, `_`, `.` or `-`, and starts with a letter or digit.",
  );

// Control characters, halves of surrogate pairs, line separators, and marks that turn the order of what is read.
const UNPRINTABLE = /[\p{Cc}\p{Cs}\p{Zl}\p{Zp}\u202A-\u202E\u2066-\u2069]/u;

/** A text for people on one line: in lists, logs and terminals it can change nothing but itself. */
export const plainText = z
  .string()
  .refine((text) => !UNPRINTABLE.test(text), "It holds a line break, a control character or broken Unicode.");

export const label = plainText.trim().min(1).max(100);

export const tag = plainText.trim().min(1).max(64);

export const email = plainText
  .max(254)
  .regex(/^[^\s@]+@[^\s@]+$/, "An e-mail address looks like name@host.")
  .transform((text) => text.toLowerCase());

/** Resource slots as the API shows them: cpu in milli-cores, mem and shm in bytes. */
export const slotsOutput = z
  .object({ cpu: z.int(), mem: z.int(), shm: z.int() })
  .catchall(z.int())
  .meta({ description: "cpu in milli-cores, mem and shm in bytes" });

export const nodeSlots = z.object({ cpu: z.int(), mem: z.int() }).catchall(z.int());

const readDigits = (text: unknown) => (typeof text === "string" && /^\d+$/.test(text) ? Number(text) : text);

/** A whole number in a query: digits alone, where plain coercion would also take `0x10`, `1e2` and an empty text. */
export function queryInteger(min: number, max = Number.MAX_SAFE_INTEGER) {
  return z.preprocess(readDigits, z.int().min(min).max(max));
}

/** The same with a value for when it is absent, which the description of the API then tells. */
export function queryIntegerOr(absent: number, min: number, max = Number.MAX_SAFE_INTEGER) {
  return z.preprocess(readDigits, z.int().min(min).max(max).default(absent));
}

/** Parameters of every list: a cursor from the page before, and the page's size. */
export const pageQuery = {
  cursor: z.string().max(400).optional(),
  limit: queryIntegerOr(50, 1, 200),
};

export function page<Item extends z.ZodType>(item: Item) {
  return z.object({
    items: z.array(item),
    /** Cursor of the next page; null on the last one. */
    next: z.string().nullable(),
  });
}
