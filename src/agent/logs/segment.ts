/**
 * A log on disk is a row of segment files. A segment begins with a header (where it starts) and holds frames
 * `[kind u8][length u32 BE][payload]`.
 */

/** Output of the container, a sentence of ours inside it, or the mark that nothing follows. */
export const FrameKind = { stdout: 1, stderr: 2, note: 3, end: 4 } as const;
export type FrameKind = (typeof FrameKind)[keyof typeof FrameKind];

export const SEGMENT_HEADER_BYTES = 32;
export const FRAME_HEADER_BYTES = 5;
/** Largest payload of one frame, in bytes. */
export const MAX_FRAME_PAYLOAD = 32 * 1024;

const MAGIC = Buffer.from("BERTHLG1");

/** Positions at a segment's start: offset in the output, and how much of it each stream had given. */
export type SegmentStart = { readonly offset: number; readonly stdout: number; readonly stderr: number };

export function encodeSegmentHeader(start: SegmentStart): Buffer {
  const header = Buffer.alloc(SEGMENT_HEADER_BYTES);
  MAGIC.copy(header);
  header.writeBigUInt64BE(BigInt(start.offset), 8);
  header.writeBigUInt64BE(BigInt(start.stdout), 16);
  header.writeBigUInt64BE(BigInt(start.stderr), 24);
  return header;
}

/** The start that a segment's header tells, or undefined when it is not a whole header of ours. */
export function decodeSegmentHeader(bytes: Buffer): SegmentStart | undefined {
  if (bytes.length < SEGMENT_HEADER_BYTES || !bytes.subarray(0, 8).equals(MAGIC)) return undefined;
  const read = (at: number) => Number(bytes.readBigUInt64BE(at));
  return { offset: read(8), stdout: read(16), stderr: read(24) };
}

export type PendingChunk = { readonly kind: FrameKind; readonly bytes: Uint8Array };

/** Encodes chunks as frames; neighbours of one kind share frames, long ones are cut. */
export function encodeFrames(chunks: readonly PendingChunk[]): Buffer {
  const parts: Uint8Array[] = [];
  let at = 0;
  while (at < chunks.length) {
    const kind = chunks[at]?.kind ?? FrameKind.end;
    let end = at;
    while (end < chunks.length && chunks[end]?.kind === kind) end += 1;
    const run = Buffer.concat(chunks.slice(at, end).map((chunk) => chunk.bytes));
    for (let from = 0; from === 0 || from < run.length; from += MAX_FRAME_PAYLOAD) {
      const payload = run.subarray(from, from + MAX_FRAME_PAYLOAD);
      const header = Buffer.alloc(FRAME_HEADER_BYTES);
      header.writeUInt8(kind, 0);
      header.writeUInt32BE(payload.length, 1);
      parts.push(header, payload);
    }
    at = end;
  }
  return Buffer.concat(parts);
}

export type Frame = { readonly kind: FrameKind; readonly payload: Buffer };

function isKind(value: number): value is FrameKind {
  return value >= FrameKind.stdout && value <= FrameKind.end;
}

export type ParsedFrames = {
  readonly frames: readonly Frame[];
  /** Bytes that whole frames took; what follows is half a frame, or not a frame at all. */
  readonly usedBytes: number;
  readonly corrupt: boolean;
};

/** Takes all whole frames from the start of `bytes`. Payloads are views of it. */
export function parseFrames(bytes: Buffer): ParsedFrames {
  const frames: Frame[] = [];
  let at = 0;
  while (at + FRAME_HEADER_BYTES <= bytes.length) {
    const kind = bytes.readUInt8(at);
    const length = bytes.readUInt32BE(at + 1);
    if (!isKind(kind) || length > MAX_FRAME_PAYLOAD) return { frames, usedBytes: at, corrupt: true };
    const end = at + FRAME_HEADER_BYTES + length;
    if (end > bytes.length) break;
    frames.push({ kind, payload: bytes.subarray(at + FRAME_HEADER_BYTES, end) });
    at = end;
  }
  return { frames, usedBytes: at, corrupt: false };
}

/** File name of the segment that starts at this offset; names sort by offset. */
export function segmentName(offset: number): string {
  return `${String(offset).padStart(16, "0")}.seg`;
}
