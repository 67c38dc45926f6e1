import { formatCpu } from "../kit/cpu.ts";
import { formatSize } from "../kit/size.ts";

const CONTROL = /[^\P{Cc}\n\t]/gu;

/** The text without control characters, so that a name or message cannot steer the terminal. */
export function clean(text: string): string {
  return text.replace(CONTROL, "");
}

const oneLine = (text: string) => clean(text.replace(/[\n\t]+/g, " "));

export type Column = { readonly title: string; readonly right?: boolean };
/** A cell: a plain text, or a text with a colour of the terminal. */
export type Cell = string | { readonly text: string; readonly colour: Colour };
export type Colour = "green" | "yellow" | "red" | "dim";

const CODES: Readonly<Record<Colour, string>> = { green: "32", yellow: "33", red: "31", dim: "2" };

export function paint(text: string, colour: Colour): string {
  return `\u001b[${CODES[colour]}m${text}\u001b[0m`;
}

/** Lines of a table, two spaces between columns; widths count wide characters as the terminal shows them. */
export function table(
  columns: readonly Column[],
  rows: readonly (readonly Cell[])[],
  colours = false,
): string {
  const textOf = (cell: Cell | undefined) => oneLine(typeof cell === "string" ? cell : (cell?.text ?? ""));
  const widths = columns.map((column, index) =>
    Math.max(Bun.stringWidth(column.title), ...rows.map((row) => Bun.stringWidth(textOf(row[index])))),
  );
  const line = (cells: readonly Cell[]) =>
    columns
      .map((column, index) => {
        const cell = cells[index];
        const text = textOf(cell);
        const space = " ".repeat(Math.max(0, (widths[index] ?? 0) - Bun.stringWidth(text)));
        const shown = colours && typeof cell === "object" ? paint(text, cell.colour) : text;
        return column.right ? space + shown : shown + space;
      })
      .join("  ")
      .trimEnd();
  return `${[columns.map((column) => column.title), ...rows].map(line).join("\n")}\n`;
}

/** Lines of `Key:  value`, with empty values left out. */
export function facts(pairs: readonly (readonly [string, string | null | undefined])[]): string {
  const shown = pairs.filter((pair): pair is [string, string] => Boolean(pair[1]));
  const width = Math.max(...shown.map(([key]) => key.length), 0) + 1;
  return shown.map(([key, value]) => `${`${key}:`.padEnd(width + 1)}${oneLine(value)}\n`).join("");
}

const STEPS = [
  ["d", 86_400_000],
  ["h", 3_600_000],
  ["m", 60_000],
  ["s", 1000],
] as const;

/** A span in its largest unit: `3d`, `5h`, `12m`, `0s`. */
export function span(ms: number): string {
  for (const [unit, size] of STEPS) if (ms >= size) return `${Math.floor(ms / size)}${unit}`;
  return "0s";
}

export type TimeStyle = { readonly now: number; readonly utc: boolean };

/** A time as people read it: `5m ago`, `in 2h`; with `utc` the time itself. `-` for none. */
export function when(at: string | null, { now, utc }: TimeStyle): string {
  if (at === null) return "-";
  const time = Date.parse(at);
  if (utc || Number.isNaN(time)) return Number.isNaN(time) ? at : new Date(time).toISOString();
  return time > now ? `in ${span(time - now)}` : `${span(now - time)} ago`;
}

export function ordinal(n: number): string {
  const tens = n % 100;
  if (tens >= 11 && tens <= 13) return `${n}th`;
  return `${n}${["th", "st", "nd", "rd"][n % 10] ?? "th"}`;
}

/** Slots in words: `2 CPUs, 1 GiB`; further slots with their names. */
export function slotsText(slots: Readonly<Record<string, number>>): string {
  const { cpu = 0, mem = 0, shm = 0, ...rest } = slots;
  const parts = [`${formatCpu(cpu)} ${cpu === 1000 ? "CPU" : "CPUs"}`, formatSize(mem)];
  if (shm > 0) parts.push(`shm ${formatSize(shm)}`);
  for (const [name, amount] of Object.entries(rest)) if (amount > 0) parts.push(`${amount} ${name}`);
  return parts.join(", ");
}

/** A command as a shell would take it. */
export function commandText(command: readonly string[] | string): string {
  if (typeof command === "string") return command;
  const word = (text: string) =>
    /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`;
  return command.map(word).join(" ");
}
