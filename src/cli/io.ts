import { readFileSync } from "node:fs";
import { hostname } from "node:os";
import { BerthError } from "../kit/errors.ts";
import { isUtf8 } from "./utf8.ts";

export type SignalName = "SIGINT" | "SIGTERM" | "SIGHUP" | "SIGQUIT" | "SIGWINCH";

/** Everything a command may touch of the process it runs in; tests give one of their own. */
export interface Io {
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly stdinTty: boolean;
  readonly stdoutTty: boolean;
  readonly stderrTty: boolean;
  /** Whether the process runs as root. */
  readonly root: boolean;
  readonly hostname: string;
  /** Whether the words of the command line are text: others reach us with their bytes replaced. */
  readonly argvIsText: boolean;
  /**
   * Writes; resolves once the receiver took it. Throws `output-closed` when the receiver is gone and `output-failed`
   * when it could not be written for another reason, such as a full disk.
   */
  out(data: string | Uint8Array): Promise<void>;
  err(data: string | Uint8Array): Promise<void>;
  /** The bytes of stdin, read only as fast as they are taken. */
  stdin(): AsyncIterable<Uint8Array>;
  /** Raw mode of the terminal on stdin; does nothing where stdin is none. */
  setRaw(on: boolean): void;
  /** Size of the terminal in characters. */
  size(): { readonly cols: number; readonly rows: number };
  /** Calls `fn` for each such signal instead of the default; the result ends that. */
  onSignal(name: SignalName, fn: () => void): () => void;
}

/** What a failed write means; only a pipe without a reader is a reader that has gone. */
export function writeFault(cause: Error): BerthError {
  if ("code" in cause && cause.code === "EPIPE") {
    return new BerthError("output-closed", "Nobody reads the output any more.", { cause });
  }
  const why = cause.message.replace(/^[A-Z]+: /, "").replace(/, write$/, "");
  return new BerthError("output-failed", `The output cannot be written: ${why}.`, { cause });
}

function writer(stream: NodeJS.WriteStream) {
  return (data: string | Uint8Array): Promise<void> =>
    new Promise((resolve, reject) => {
      if (data.length === 0) return resolve();
      stream.write(data, (cause) => {
        if (!cause) return resolve();
        reject(writeFault(cause));
      });
    });
}

/** Runs stty on our stdin; its output, or undefined where there is no stty or it failed. */
function stty(...argv: readonly string[]): string | undefined {
  try {
    const { success, stdout } = Bun.spawnSync(["stty", ...argv], { stdin: "inherit", stderr: "ignore" });
    return success ? stdout.toString().trim() : undefined;
  } catch {
    return undefined;
  }
}

/**
 * Switches raw mode. The runtime's own keeps turning line feeds into carriage return and line feed, which spoils what
 * full-screen programs draw, so stty does it where there is one.
 */
function rawMode(stdin: NodeJS.ReadStream): (on: boolean) => void {
  let before: string | undefined;
  return (on) => {
    if (!stdin.isTTY) return;
    if (on) {
      before = stty("-g");
      if (before === undefined || stty("raw", "-echo") === undefined) stdin.setRawMode(true);
    } else if (before === undefined || stty(before) === undefined) {
      stdin.setRawMode(false);
    }
  };
}

/** The runtime puts U+FFFD in the place of bytes that are no UTF-8; a person may also have typed that character. */
function argvIsText(): boolean {
  if (!process.argv.some((word) => word.includes("\ufffd"))) return true;
  try {
    return isUtf8(readFileSync("/proc/self/cmdline"));
  } catch {
    return true;
  }
}

/** The process's own streams, terminal and signals. */
export function processIo(): Io {
  // A closed pipe is told by the callback of the write that met it; the event needs a listener all the same.
  for (const stream of [process.stdout, process.stderr]) {
    stream.removeAllListeners("error");
    stream.on("error", () => {});
  }
  const { stdin, stdout, stderr } = process;
  // One iterator for all readers: breaking off one of its own would close stdin for the next question.
  let chunks: AsyncIterator<Uint8Array> | undefined;
  const next = (): Promise<IteratorResult<Uint8Array>> => {
    chunks ??= stdin[Symbol.asyncIterator]();
    return chunks.next();
  };
  const terminal = stdout.isTTY ? stdout : stderr;
  return {
    env: process.env,
    stdinTty: stdin.isTTY === true,
    stdoutTty: stdout.isTTY === true,
    stderrTty: stderr.isTTY === true,
    root: process.getuid?.() === 0,
    hostname: hostname(),
    argvIsText: argvIsText(),
    out: writer(stdout),
    err: writer(stderr),
    stdin: () => ({ [Symbol.asyncIterator]: () => ({ next }) }),
    setRaw: rawMode(stdin),
    size: () => ({ cols: terminal.columns || 80, rows: terminal.rows || 24 }),
    onSignal: (name, fn) => {
      process.on(name, fn);
      return () => process.off(name, fn);
    },
  };
}
