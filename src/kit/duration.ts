import { BerthError } from "./errors.ts";

const UNITS = [
  ["d", 86_400_000],
  ["h", 3_600_000],
  ["m", 60_000],
  ["s", 1000],
  ["ms", 1],
] as const;

// One group for each unit, largest first, so that "1h30m" is read and "30m1h" or "1h1h" is not.
const NUMBER = "(\\d+(?:\\.\\d+)?)";
const FORM = new RegExp(`^${UNITS.map(([unit]) => `(?:${NUMBER}\\s*${unit}(?![a-z])\\s*)?`).join("")}$`);

function invalid(text: string, field: string, why: string): BerthError {
  const sentence = `${field}: "${text}" is not a duration: ${why}. Write it as 90s, 10m, 1h30m or 1d.`;
  return new BerthError("invalid-duration", sentence, { field });
}

/**
 * Milliseconds of a duration such as "90s", "10m", "1h30m", "1d" or "500ms". Units go from the largest
 * to the smallest, each once. A number without a unit is refused, because nobody can tell what it
 * counts. Throws `invalid-duration`, whose sentence begins with `field`.
 */
export function parseDuration(text: string, field = "duration"): number {
  const trimmed = text.trim().toLowerCase();
  if (/^\d+(\.\d+)?$/.test(trimmed)) throw invalid(text, field, "it has no unit");
  if (trimmed.startsWith("-")) throw invalid(text, field, "it is negative");
  const match = trimmed === "" ? null : FORM.exec(trimmed);
  if (match === null) throw invalid(text, field, "its units are d, h, m, s and ms, largest first");
  const ms = UNITS.reduce((sum, [, factor], index) => sum + Number(match[index + 1] ?? 0) * factor, 0);
  if (ms > Number.MAX_SAFE_INTEGER) throw invalid(text, field, "it is too long");
  return Math.round(ms);
}

/** A duration for people that `parseDuration` reads back: "1h30m", "45s", "1s500ms", "0s". */
export function formatDuration(ms: number): string {
  let rest = Math.round(Math.abs(ms));
  if (rest === 0) return "0s";
  let out = ms < 0 ? "-" : "";
  for (const [unit, factor] of UNITS) {
    const count = Math.floor(rest / factor);
    if (count > 0) out += `${count}${unit}`;
    rest -= count * factor;
  }
  return out;
}
