import { type FileHandle, open, readFile } from "node:fs/promises";
import type { LogEvent } from "./event.ts";
import type { Segment } from "./recovery.ts";
import { type Frame, FrameKind, MAX_FRAME_PAYLOAD, parseFrames, SEGMENT_HEADER_BYTES } from "./segment.ts";

export type ReadOptions = {
  /** Where to begin, in bytes of output. */
  readonly offset: number;
  /** Wait for more until the log is final; otherwise end where it ends now. */
  readonly follow: boolean;
  readonly signal?: AbortSignal;
};

/** What a reader needs of a log that may still be written. */
export type Reading = {
  segments(): readonly Segment[];
  position(): number;
  isFinal(): boolean;
  isClosed(): boolean;
  flush(): Promise<void>;
  /** Resolves at the next change, or when the signal aborts. */
  changed(signal: AbortSignal | undefined): Promise<void>;
};

const BLOCK_BYTES = 512 * 1024;
const OUTPUT_BYTES = MAX_FRAME_PAYLOAD;

type Cursor = { segment: Segment; handle: FileHandle; filePos: number; offset: number };

/** Follows a log from an offset. Output that is not kept any more is told as a gap. */
export async function* readLog(source: Reading, options: ReadOptions): AsyncGenerator<LogEvent> {
  const { follow, signal } = options;
  await source.flush();
  let at = Math.min(options.offset, source.position());
  let cursor: Cursor | undefined;
  try {
    while (signal?.aborted !== true) {
      const segment = source.segments().find((candidate) => at < candidate.end);
      if (segment === undefined) {
        const position = source.position();
        if (at < position) yield { kind: "gap", offset: at, droppedBytes: position - at };
        at = position;
        if (!follow || source.isFinal() || source.isClosed()) {
          yield { kind: "end", offset: at, final: source.isFinal() };
          return;
        }
        await source.changed(signal);
        continue;
      }
      if (at < segment.start.offset) {
        yield { kind: "gap", offset: at, droppedBytes: segment.start.offset - at };
        at = segment.start.offset;
      }
      if (cursor?.segment !== segment) {
        await cursor?.handle.close();
        cursor = undefined;
        const handle = await openKept(segment);
        if (handle === undefined) {
          yield { kind: "gap", offset: at, droppedBytes: segment.end - at };
          at = segment.end;
          continue;
        }
        cursor = { segment, handle, filePos: SEGMENT_HEADER_BYTES, offset: segment.start.offset };
      }
      for (const event of await readBlock(cursor, at)) {
        yield event;
        at = event.offset + event.bytes.length;
      }
    }
  } finally {
    await cursor?.handle.close();
  }
}

async function openKept(segment: Segment): Promise<FileHandle | undefined> {
  try {
    return await open(segment.path, "r");
  } catch {
    return undefined;
  }
}

type Output = Extract<LogEvent, { kind: "output" }>;

/** Reads on from the cursor and returns the output from offset `from`; never past what is written. */
async function readBlock(cursor: Cursor, from: number): Promise<Output[]> {
  const length = Math.min(BLOCK_BYTES, cursor.segment.size - cursor.filePos);
  const block = Buffer.allocUnsafe(length);
  const { bytesRead } = await cursor.handle.read(block, 0, length, cursor.filePos);
  const { frames, usedBytes } = parseFrames(block.subarray(0, bytesRead));
  if (usedBytes === 0) throw new Error(`the log segment ${cursor.segment.path} is damaged`);
  const start = cursor.offset;
  cursor.filePos += usedBytes;
  for (const frame of frames) cursor.offset += frame.payload.length;
  return mergeFrames(frames, start, from);
}

/** Joins neighbouring frames of one stream, so that a log of short lines is not sent line by line. */
function mergeFrames(frames: readonly Frame[], start: number, from: number): Output[] {
  const events: Output[] = [];
  let run: Buffer[] = [];
  let runBytes = 0;
  let runStream: 1 | 2 = 1;
  let runOffset = start;
  const emit = () => {
    const bytes = run.length === 1 ? run[0] : Buffer.concat(run, runBytes);
    if (bytes !== undefined && runBytes > 0) {
      events.push({ kind: "output", offset: runOffset, stream: runStream, bytes });
    }
    run = [];
    runBytes = 0;
  };
  let offset = start;
  for (const { kind, payload } of frames) {
    const frameOffset = offset;
    offset += payload.length;
    if (offset <= from || payload.length === 0) continue;
    const skip = Math.max(0, from - frameOffset);
    const stream = kind === FrameKind.stdout ? 1 : 2;
    if (stream !== runStream || runBytes + payload.length - skip > OUTPUT_BYTES) emit();
    if (run.length === 0) {
      runOffset = frameOffset + skip;
      runStream = stream;
    }
    run.push(skip > 0 ? payload.subarray(skip) : payload);
    runBytes += payload.length - skip;
  }
  emit();
  return events;
}

/** The last bytes kept of one stream, at most `maxBytes`. */
export async function readTail(
  segments: readonly Segment[],
  stream: 1 | 2,
  maxBytes: number,
): Promise<Buffer> {
  const parts: Buffer[] = [];
  let bytes = 0;
  for (const segment of segments.toReversed()) {
    const { frames } = parseFrames((await readFile(segment.path)).subarray(SEGMENT_HEADER_BYTES));
    const own = frames.filter((frame) => frame.kind === stream).map((frame) => frame.payload);
    parts.unshift(...own);
    bytes += own.reduce((sum, part) => sum + part.length, 0);
    if (bytes >= maxBytes) break;
  }
  const all = Buffer.concat(parts);
  return all.subarray(Math.max(0, all.length - maxBytes));
}
