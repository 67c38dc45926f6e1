import { BerthError } from "../kit/errors.ts";
import type { Io } from "./io.ts";

const CTRL_C = 0x03;
const CTRL_D = 0x04;
const BACKSPACE = [0x08, 0x7f];
const ENTER = [0x0a, 0x0d];

/** The first line of stdin, or all of it where it has no line end. */
export async function readLine(io: Io): Promise<string> {
  const parts: Uint8Array[] = [];
  for await (const chunk of io.stdin()) {
    parts.push(chunk);
    if (chunk.includes(0x0a)) break;
  }
  return (Buffer.concat(parts).toString("utf8").split("\n", 1)[0] ?? "").replace(/\r$/, "");
}

/** Asks on the terminal; `hidden` shows nothing of what is typed. Throws `no-terminal`, `interrupted`. */
export async function ask(io: Io, question: string, hidden = false): Promise<string> {
  if (!io.stdinTty || !io.stderrTty) {
    throw new BerthError("no-terminal", `There is no terminal to ask on: ${question.trim()}`);
  }
  if (!hidden) {
    await io.err(question);
    return readLine(io);
  }
  // Before the question is seen: what is typed at once must not show either.
  io.setRaw(true);
  try {
    await io.err(question);
    return await readHidden(io);
  } finally {
    io.setRaw(false);
    await io.err("\n");
  }
}

async function readHidden(io: Io): Promise<string> {
  let typed: number[] = [];
  for await (const chunk of io.stdin()) {
    for (const byte of chunk) {
      if (ENTER.includes(byte) || byte === CTRL_D) return Buffer.from(typed).toString("utf8");
      if (byte === CTRL_C) throw new BerthError("interrupted", "Interrupted.");
      // A character may have several bytes; the terminal's erase key takes all of them.
      if (BACKSPACE.includes(byte))
        typed = [...Buffer.from([...Buffer.from(typed).toString("utf8")].slice(0, -1).join(""))];
      else typed.push(byte);
    }
  }
  return Buffer.from(typed).toString("utf8");
}

/** A password from stdin (`--password-stdin`) or asked for on the terminal. */
export async function readPassword(io: Io, fromStdin: boolean, question: string): Promise<string> {
  if (fromStdin) return readLine(io);
  if (!io.stdinTty) {
    throw new BerthError(
      "no-terminal",
      "There is no terminal to ask for a password on: use --password-stdin.",
    );
  }
  return ask(io, question, true);
}

/** A new password, asked for twice on a terminal. */
export async function readNewPassword(io: Io, fromStdin: boolean): Promise<string> {
  const first = await readPassword(io, fromStdin, "New password: ");
  if (!fromStdin && (await readPassword(io, false, "Again: ")) !== first) {
    throw new BerthError("passwords-differ", "The two passwords differ.");
  }
  return first;
}
