import { formatCpu } from "../../kit/cpu.ts";
import { formatSize } from "../../kit/size.ts";

/** One slot in words: "4 CPUs", "1 CPU", "0.5 CPUs", "8 GiB", "2 cuda.device". */
export function slotInWords(name: string, amount: number): string {
  if (name === "cpu") return `${formatCpu(amount)} ${amount === 1000 ? "CPU" : "CPUs"}`;
  if (name === "mem" || name.endsWith(".mem")) {
    const size = formatSize(amount);
    return name === "mem" ? size : `${size} of ${name}`;
  }
  return `${amount} ${name}`;
}

/** Joins words as a person would: "a", "a and b", "a, b and c". */
export function joinWords(parts: readonly string[], last = "and"): string {
  if (parts.length <= 1) return parts[0] ?? "";
  return `${parts.slice(0, -1).join(", ")} ${last} ${parts.at(-1)}`;
}

/**
 * Slots in words: "4 CPUs, 8 GiB and 1 cuda.device". Only the slots in `names` are told; negative
 * amounts, of a node that holds more than it now has, are told as 0.
 */
export function slotsInWords(
  slots: Readonly<Record<string, number>>,
  names: readonly string[] = Object.keys(slots).filter((name) => (slots[name] ?? 0) > 0),
): string {
  return joinWords(names.map((name) => slotInWords(name, Math.max(0, slots[name] ?? 0))));
}

export function plural(count: number, one: string, many = `${one}s`): string {
  return `${count} ${count === 1 ? one : many}`;
}

/** The last moment that is written as a date; a later one is told, and planned with, as not known. */
export const LAST_MOMENT = Date.UTC(9999, 11, 31, 23, 59, 59);

/** A moment as people and programs read it, in UTC to the second. Never throws. */
export function momentInWords(at: number): string {
  if (!(at <= LAST_MOMENT)) return "a moment after the year 9999";
  if (at < 0) return "a moment before the year 1970";
  return `${new Date(at).toISOString().slice(0, 19)}Z`;
}
