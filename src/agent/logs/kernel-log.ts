import { type FileHandle, open, rm } from "node:fs/promises";
import { join } from "node:path";
import type { Logger } from "../../kit/log.ts";
import type { OutputChunk } from "../engine/engine.ts";
import type { LogEvent } from "./event.ts";
import { type Reading, type ReadOptions, readLog, readTail } from "./reader.ts";
import { recoverSegments, type Segment, syncDirectory } from "./recovery.ts";
import {
  encodeFrames,
  encodeSegmentHeader,
  FrameKind,
  type PendingChunk,
  SEGMENT_HEADER_BYTES,
  segmentName,
} from "./segment.ts";

export type StreamCounts = { readonly stdout: number; readonly stderr: number };

/** The stored output of one kernel. Offsets count bytes of output from its start. */
export interface KernelLog {
  /** Stores output; resolves when there is room for more, which is before it is on disk. Never rejects. */
  append(chunk: OutputChunk): Promise<void>;
  /** Adds a line of ours, which readers get on stderr. */
  note(line: string): Promise<void>;
  /** Resolves when everything appended so far is in the file. */
  flush(): Promise<void>;
  /** Nothing follows: flushes, marks the end and syncs to disk. */
  finish(): Promise<void>;
  /** Closes the file without marking the end. */
  close(): Promise<void>;
  /** Bytes that the container wrote to each stream, dropped ones included. */
  counts(): StreamCounts;
  endOffset(): number;
  isFinal(): boolean;
  /** The last bytes kept of a stream, at most `maxBytes`. */
  tail(stream: 1 | 2, maxBytes: number): Promise<Buffer>;
  read(options: ReadOptions): AsyncIterable<LogEvent>;
}

export type KernelLogOptions = {
  readonly dir: string;
  /** Bytes on disk at most; the oldest output goes first. */
  readonly limitBytes: number;
  readonly log: Logger;
};

const LEAST_LIMIT = 256 * 1024;
const MAX_SEGMENT = 8 * 1024 * 1024;
const HIGH_WATER = 1024 * 1024;

/** Opens a kernel's log, keeping what an earlier process stored; half-written frames are cut off. */
export async function openKernelLog({ dir, limitBytes, log }: KernelLogOptions): Promise<KernelLog> {
  const limit = Math.max(limitBytes, LEAST_LIMIT);
  const segmentBytes = Math.min(MAX_SEGMENT, Math.floor(limit / 4));
  const recovered = await recoverSegments(dir);
  const segments: Segment[] = recovered.segments;
  const position = { ...recovered.position };
  let final = recovered.final;
  let closed = false;
  let file: FileHandle | undefined;
  let pending: PendingChunk[] = [];
  let pendingBytes = 0;
  let flushing: Promise<void> | undefined;
  let waiters: (() => void)[] = [];
  let lost = 0;

  function changed(): void {
    const woken = waiters;
    waiters = [];
    for (const wake of woken) wake();
  }

  async function startSegment(): Promise<{ segment: Segment; handle: FileHandle }> {
    await file?.close();
    file = undefined;
    const path = join(dir, segmentName(position.offset));
    const handle = await open(path, "w", 0o600);
    try {
      await handle.write(encodeSegmentHeader(position));
    } catch (err) {
      await handle.close();
      await rm(path, { force: true });
      throw err;
    }
    file = handle;
    const segment: Segment = {
      path,
      start: { ...position },
      end: position.offset,
      size: SEGMENT_HEADER_BYTES,
    };
    segments.push(segment);
    return { segment, handle };
  }

  async function writable(nextBytes: number): Promise<{ segment: Segment; handle: FileHandle }> {
    const last = segments.at(-1);
    const joins = last !== undefined && last.end === position.offset;
    const empty = last?.size === SEGMENT_HEADER_BYTES;
    if (last === undefined || !joins || (!empty && last.size + nextBytes > segmentBytes)) {
      await dropOldest();
      return startSegment();
    }
    file ??= await open(last.path, "r+");
    return { segment: last, handle: file };
  }

  async function dropOldest(): Promise<void> {
    const total = () => segments.reduce((sum, segment) => sum + segment.size, 0);
    while (segments.length > 1 && total() + segmentBytes > limit) {
      const oldest = segments.shift();
      if (oldest !== undefined) await rm(oldest.path, { force: true });
    }
  }

  function advance(chunks: readonly PendingChunk[]): void {
    for (const { kind, bytes } of chunks) {
      position.offset += bytes.length;
      if (kind === FrameKind.stdout) position.stdout += bytes.length;
      if (kind === FrameKind.stderr) position.stderr += bytes.length;
    }
  }

  /** Output that cannot be stored is lost, never in the container's way; readers see it as a gap. */
  async function writeBatch(chunks: readonly PendingChunk[]): Promise<void> {
    const bytes = encodeFrames(chunks);
    try {
      const { segment, handle } = await writable(bytes.length);
      const { bytesWritten } = await handle.write(bytes, 0, bytes.length, segment.size);
      if (bytesWritten < bytes.length) {
        await handle.truncate(segment.size);
        throw new Error("the disk took only a part of the output");
      }
      segment.size += bytes.length;
      advance(chunks);
      segment.end = position.offset;
      lost = 0;
    } catch (err) {
      if (lost === 0) log.error({ err, dir }, "output could not be stored and is lost");
      lost += bytes.length;
      advance(chunks);
    }
  }

  function takeBatch(): PendingChunk[] {
    let bytes = 0;
    let count = 0;
    while (count < pending.length && (count === 0 || bytes < segmentBytes / 2)) {
      bytes += pending[count]?.bytes.length ?? 0;
      count += 1;
    }
    const batch = pending.slice(0, count);
    pending = pending.slice(count);
    pendingBytes -= bytes;
    return batch;
  }

  async function flushAll(): Promise<void> {
    while (pending.length > 0) {
      await writeBatch(takeBatch());
      changed();
    }
    flushing = undefined;
  }

  function put(kind: FrameKind, bytes: Uint8Array): Promise<void> {
    if (final || closed || bytes.length === 0) return Promise.resolve();
    // A chunk never exceeds a batch, so that a segment's size stays bounded.
    const step = Math.floor(segmentBytes / 2);
    for (let from = 0; from < bytes.length; from += step) {
      pending.push({ kind, bytes: bytes.subarray(from, from + step) });
    }
    pendingBytes += bytes.length;
    // In the next turn of the loop, so that what arrives in this one shares a write.
    flushing ??= new Promise((resolve) => setImmediate(() => resolve(flushAll())));
    return pendingBytes > HIGH_WATER ? flushing : Promise.resolve();
  }

  const flush = async (): Promise<void> => {
    while (flushing !== undefined) await flushing;
  };

  async function finish(): Promise<void> {
    await flush();
    if (final || closed) return;
    final = true;
    try {
      const { segment, handle } = await writable(0);
      const bytes = encodeFrames([{ kind: FrameKind.end, bytes: new Uint8Array() }]);
      await handle.write(bytes, 0, bytes.length, segment.size);
      segment.size += bytes.length;
      await handle.sync();
      await syncDirectory(dir);
    } catch (err) {
      log.error({ err, dir }, "the end of a log could not be stored");
    }
    await close();
  }

  async function close(): Promise<void> {
    await flush();
    closed = true;
    await file?.close();
    file = undefined;
    changed();
  }

  const reading: Reading = {
    segments: () => segments,
    position: () => position.offset,
    isFinal: () => final,
    isClosed: () => closed,
    flush,
    changed: (signal) =>
      new Promise((resolve) => {
        if (signal?.aborted) return resolve();
        const wake = () => {
          signal?.removeEventListener("abort", wake);
          resolve();
        };
        signal?.addEventListener("abort", wake, { once: true });
        waiters.push(wake);
      }),
  };

  return {
    append: ({ stream, bytes }) => put(stream === 1 ? FrameKind.stdout : FrameKind.stderr, bytes),
    note: (line) => put(FrameKind.note, Buffer.from(`${line}\n`)),
    flush,
    finish,
    close,
    counts: () => ({ stdout: position.stdout, stderr: position.stderr }),
    endOffset: () => position.offset,
    isFinal: () => final,
    tail: async (stream, maxBytes) => {
      await flush();
      return readTail(segments, stream, maxBytes);
    },
    read: (options) => readLog(reading, options),
  };
}
