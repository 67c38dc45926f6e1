import type { GapFrame, LogFrame } from "./collect.ts";

const NEWLINE = 10;
/** The most that a tail keeps in memory, whatever the number of lines. */
const MAX_TAIL_BYTES = 16 * 1024 * 1024;

function newlines(bytes: Uint8Array): number {
  let count = 0;
  for (let at = bytes.indexOf(NEWLINE); at >= 0; at = bytes.indexOf(NEWLINE, at + 1)) count++;
  return count;
}

/** The frame without its first `lines` lines; `lines` is at most the number of its newlines. */
function skipLines(frame: LogFrame, lines: number): LogFrame {
  let at = 0;
  for (let left = lines; left > 0; left--) at = frame.bytes.indexOf(NEWLINE, at) + 1;
  return { ...frame, offset: frame.offset + at, bytes: frame.bytes.subarray(at) };
}

export interface Tail {
  put(frame: LogFrame | GapFrame): void;
  /** The frames of the last lines; a line that was not ended counts as one. */
  frames(): readonly (LogFrame | GapFrame)[];
}

/** Keeps the last `lines` lines of an output, the lines of both streams counted together. */
export function createTail(lines: number): Tail {
  let kept: { frame: LogFrame | GapFrame; lines: number }[] = [];
  let start = 0;
  let held = 0;
  let heldBytes = 0;

  const sizeOf = (frame: LogFrame | GapFrame) => (frame.type === "log" ? frame.bytes.length : 0);
  const forget = () => {
    // One line more than asked for: the last one may not be ended yet.
    for (let first = kept[start]; first !== undefined; first = kept[start]) {
      if (held - first.lines <= lines && heldBytes <= MAX_TAIL_BYTES) break;
      held -= first.lines;
      heldBytes -= sizeOf(first.frame);
      start++;
    }
    if (start > 1024) {
      kept = kept.slice(start);
      start = 0;
    }
  };

  return {
    put: (frame) => {
      const entry = { frame, lines: frame.type === "log" ? newlines(frame.bytes) : 0 };
      kept.push(entry);
      held += entry.lines;
      heldBytes += sizeOf(frame);
      forget();
    },
    frames: () => {
      const all = kept.slice(start);
      const last = all.findLast((entry) => sizeOf(entry.frame) > 0)?.frame;
      const open = last?.type === "log" && last.bytes.at(-1) !== NEWLINE ? 1 : 0;
      let excess = held + open - lines;
      const out: (LogFrame | GapFrame)[] = [];
      for (const { frame, lines: inFrame } of all) {
        if (excess > 0 && frame.type === "log") {
          const skipped = Math.min(excess, inFrame);
          excess -= skipped;
          const left = skipLines(frame, skipped);
          // A frame of which lines are still to be skipped holds only the start of one of them.
          if (excess > 0 || left.bytes.length === 0) continue;
          out.push(left);
        } else if (excess <= 0) out.push(frame);
      }
      return lines === 0 ? [] : out;
    },
  };
}
