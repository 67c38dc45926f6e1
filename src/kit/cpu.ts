import { BerthError } from "./errors.ts";
import { MIN_CPU } from "./slots.ts";

function invalid(text: string, field: string, why: string): BerthError {
  const sentence = `${field}: "${text}" is not an amount of CPU: ${why}. Write it as 2, 0.5 or 500m (0.1 or more).`;
  return new BerthError("invalid-cpu", sentence, { field, details: { minimumMilli: MIN_CPU } });
}

/**
 * Milli-cores of an amount of CPU: "2" is 2000, "0.5" is 500, "250m" is 250. Throws `invalid-cpu` for
 * anything else, for a share finer than a milli-core and for less than `MIN_CPU`; the sentence begins
 * with `field`.
 */
export function parseCpu(text: string, field = "cpu"): number {
  const trimmed = text.trim();
  const match = /^(\d+)(?:\.(\d+))?(m?)$/i.exec(trimmed);
  if (match === null)
    throw invalid(text, field, trimmed.startsWith("-") ? "it is negative" : "it is not a number");
  const digits = match[3] === "" ? 3 : 0;
  const fraction = (match[2] ?? "").replace(/0+$/, "");
  if (fraction.length > digits) throw invalid(text, field, "it is finer than a thousandth of a core");
  const milli = Number((match[1] ?? "") + fraction.padEnd(digits, "0"));
  if (!Number.isSafeInteger(milli)) throw invalid(text, field, "it is too large");
  if (milli < MIN_CPU) throw invalid(text, field, `the least is ${formatCpu(MIN_CPU)}`);
  return milli;
}

/** Milli-cores as cores, the way people write them: 500 is "0.5", 2000 is "2". */
export function formatCpu(milli: number): string {
  return String(milli / 1000);
}
