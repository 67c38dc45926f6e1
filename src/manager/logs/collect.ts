import type { Frame } from "../../kit/frames.ts";

export type LogFrame = Extract<Frame, { type: "log" }>;
export type GapFrame = Extract<Frame, { type: "log-gap" }>;
export type EndFrame = Extract<Frame, { type: "log-end" }>;

export type LogLimits = {
  /** The most bytes of output that are kept of a kernel. */
  readonly totalBytes: number;
  /** Of these, how many from the beginning; the rest is the end. */
  readonly headBytes: number;
};

export interface LogKeeper {
  /** Takes the next frame of a log and gives the frames that can be written at once. */
  put(frame: LogFrame | GapFrame): readonly (LogFrame | GapFrame)[];
  /** What was held back: a gap where bytes were dropped, then the end of the log. */
  rest(): readonly (LogFrame | GapFrame)[];
}

/**
 * Keeps the beginning and the end of an output of any length in bounded memory. Bytes of a gap in the
 * source stay missing; all that is dropped here is told by one gap frame.
 */
export function createLogKeeper({ totalBytes, headBytes }: LogLimits): LogKeeper {
  const tailBytes = totalBytes - headBytes;
  let head = 0;
  let held: (LogFrame | GapFrame)[] = [];
  let heldBytes = 0;
  let dropped: { offset: number; until: number } | null = null;

  const drop = (frame: LogFrame | GapFrame) => {
    const length = frame.type === "log" ? frame.bytes.length : frame.dropped;
    dropped = { offset: dropped?.offset ?? frame.offset, until: frame.offset + length };
  };
  const shrink = () => {
    let at = 0;
    for (; heldBytes > tailBytes && at < held.length; at++) {
      const frame = held[at];
      if (frame === undefined) break;
      const excess = heldBytes - tailBytes;
      if (frame.type === "log" && frame.bytes.length > excess) {
        drop({ ...frame, bytes: frame.bytes.subarray(0, excess) });
        held[at] = { ...frame, offset: frame.offset + excess, bytes: frame.bytes.subarray(excess) };
        heldBytes = tailBytes;
        break;
      }
      drop(frame);
      heldBytes -= frame.type === "log" ? frame.bytes.length : 0;
    }
    if (at > 0) held = held.slice(at);
  };

  return {
    put: (frame) => {
      if (held.length === 0 && dropped === null) {
        if (frame.type === "log-gap") return [frame];
        const room = headBytes - head;
        if (frame.bytes.length <= room) {
          head += frame.bytes.length;
          return [frame];
        }
        const first = { ...frame, bytes: frame.bytes.subarray(0, room) };
        const second = { ...frame, offset: frame.offset + room, bytes: frame.bytes.subarray(room) };
        head = headBytes;
        held.push(second);
        heldBytes = second.bytes.length;
        shrink();
        return room > 0 ? [first] : [];
      }
      held.push(frame);
      heldBytes += frame.type === "log" ? frame.bytes.length : 0;
      // Not at each frame: cutting the front of the list costs its length.
      if (heldBytes > tailBytes + 1024 * 1024 || heldBytes > tailBytes * 2) shrink();
      return [];
    },
    rest: () => {
      shrink();
      if (dropped === null) return held;
      const gap: GapFrame = {
        type: "log-gap",
        offset: dropped.offset,
        dropped: dropped.until - dropped.offset,
      };
      return [gap, ...held];
    },
  };
}
