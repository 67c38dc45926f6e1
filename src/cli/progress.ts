import { api } from "../contract/api.ts";
import type { SessionDetail } from "../contract/sessions.ts";
import { isFinal } from "../contract/states.ts";
import { formatSize } from "../kit/size.ts";
import type { Client } from "./client.ts";
import type { Invocation } from "./command.ts";
import type { Io } from "./io.ts";
import { clean, ordinal } from "./text.ts";

/** One line on a terminal's stderr that is written over and over; nothing where stderr is no terminal. */
export interface StatusLine {
  readonly shown: boolean;
  update(text: string): void;
  clear(): void;
  /** Clears it for good: what is written from now on is the command's own. */
  close(): void;
}

export function createStatusLine(io: Io): StatusLine {
  let visible = "";
  let closed = false;
  const write = (text: string) => {
    io.err(text).catch(() => {});
  };
  const clear = () => {
    if (visible !== "") write("\r\u001b[2K");
    visible = "";
  };
  return {
    shown: io.stderrTty,
    update: (text) => {
      if (closed || !io.stderrTty) return;
      const line = shorten(clean(text.replaceAll("\n", " ")), io.size().cols - 1);
      if (line === visible) return;
      visible = line;
      write(`\r\u001b[2K${line}`);
    },
    clear,
    close: () => {
      closed = true;
      clear();
    },
  };
}

function shorten(text: string, width: number): string {
  if (Bun.stringWidth(text) <= width) return text;
  let out = "";
  for (const character of text) {
    if (Bun.stringWidth(out + character) > width - 1) break;
    out += character;
  }
  return `${out}…`;
}

export function bytesProgress(done: number, total: number): string {
  if (total <= 0) return done > 0 ? formatSize(done) : "";
  return `${Math.floor((Math.min(done, total) / total) * 100)} % of ${formatSize(total)}`;
}

/** What a session that does not run yet waits for, in one line. */
export function waitText(session: SessionDetail): string {
  const { name, status, statusMessage, queuePosition, pull, group } = session;
  if (pull !== null && status === "PULLING") {
    const progress = bytesProgress(pull.doneBytes, pull.totalBytes);
    return `${name}: pulling ${session.image}${progress === "" ? "" : `, ${progress}`}`;
  }
  const place = queuePosition === null ? "" : `, ${ordinal(queuePosition)} in group ${group}`;
  const why = statusMessage === null ? "" : `: ${statusMessage}`;
  return `${name} is ${status}${place}${why}`;
}

export const POLL_MS = 1000;

/**
 * Shows on the status line what a session waits for, until it runs or `signal` aborts. Never throws: whoever
 * follows the session learns of failures anyway.
 */
export async function showProgress(
  { clock }: Pick<Invocation, "clock">,
  client: Client,
  id: string,
  line: StatusLine,
  signal: AbortSignal,
): Promise<void> {
  if (!line.shown) return;
  try {
    for (;;) {
      const session = await client.call(api.sessions.get, { params: { session: id } }, { signal });
      if (isFinal(session.status) || session.status === "RUNNING" || signal.aborted) break;
      line.update(waitText(session));
      await clock.sleep(POLL_MS, signal);
    }
  } catch {
    // The line is a convenience.
  }
  line.clear();
}
