import { BerthError } from "./errors.ts";

const UNITS: Readonly<Record<string, bigint>> = {
  "": 1n,
  b: 1n,
  k: 1n << 10n,
  m: 1n << 20n,
  g: 1n << 30n,
  t: 1n << 40n,
  p: 1n << 50n,
};

const FORM = /^(\d+(?:_\d+)*)(?:\.(\d+))?\s*(?:([kmgtp])(?:i?b|i?bytes?)?|(b|bytes?))?$/i;

function invalid(text: string, field: string, why: string): BerthError {
  return new BerthError(
    "invalid-size",
    `${field}: "${text}" is not a size: ${why}. Write it as 512m or 1.5 GiB.`,
    {
      field,
    },
  );
}

/**
 * Bytes of a size such as "512m", "1.5 GiB", "1_000" or "12345 B". Every unit is a power of 1024; a
 * part of a byte is dropped ("1.1k" is 1126). A number without a unit must be whole. Throws
 * `invalid-size`, whose sentence begins with `field`.
 */
export function parseSize(text: string, field = "size"): number {
  const match = FORM.exec(text.trim());
  if (match === null) {
    const why = text.trim().startsWith("-")
      ? "it is negative"
      : "it needs a number and a unit (k, m, g, t or p)";
    throw invalid(text, field, why);
  }
  const whole = (match[1] ?? "").replaceAll("_", "");
  const fraction = match[2] ?? "";
  const prefix = match[3]?.toLowerCase() ?? "";
  if (prefix === "" && /[1-9]/.test(fraction)) throw invalid(text, field, "a part of a byte needs a unit");
  const bytes = (BigInt(whole + fraction) * (UNITS[prefix] ?? 1n)) / 10n ** BigInt(fraction.length);
  if (bytes > BigInt(Number.MAX_SAFE_INTEGER)) throw invalid(text, field, "it is beyond 8 PiB");
  return Number(bytes);
}

const LONG_UNITS = ["bytes", "KiB", "MiB", "GiB", "TiB", "PiB"] as const;

/** A size for people, with at most two decimals: "1 byte", "103.45 KiB", "1.5 GiB". */
export function formatSize(bytes: number): string {
  let value = bytes;
  let unit = 0;
  while (Math.abs(Number(value.toFixed(2))) >= 1024 && unit < LONG_UNITS.length - 1) {
    value /= 1024;
    unit += 1;
  }
  if (unit === 0) return Math.abs(bytes) === 1 ? `${bytes} byte` : `${bytes} bytes`;
  return `${Number(value.toFixed(2))} ${LONG_UNITS[unit]}`;
}

/** The shortest exact form that `parseSize` reads back to the same bytes: "930", "512m", "1g". */
export function formatSizeShort(bytes: number): string {
  const units = ["", "k", "m", "g", "t", "p"];
  let value = bytes;
  let unit = 0;
  while (value !== 0 && value % 1024 === 0 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${value}${units[unit]}`;
}
