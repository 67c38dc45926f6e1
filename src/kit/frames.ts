import { z } from "zod";
import { BerthError } from "./errors.ts";

/**
 * Frames of a data stream and of the exec WebSocket: `[type u8][length u32 BE][payload]`. Numbers are
 * big-endian. A type is never given another meaning; a reader skips the types that it does not know.
 */
const TYPES = {
  stdin: 0,
  stdout: 1,
  stderr: 2,
  resize: 3,
  exit: 4,
  error: 5,
  "stdin-eof": 6,
  signal: 7,
  log: 8,
  "log-gap": 9,
  "log-end": 10,
  window: 11,
  open: 12,
} as const;

const HEADER_BYTES = 5;
/** The longest payload that a reader takes, in bytes. */
export const MAX_FRAME_BYTES = 1024 * 1024;
/** The longest run of stream bytes that a writer puts into one frame. */
export const FRAME_CHUNK_BYTES = 32 * 1024;

export type LogStreamName = "stdout" | "stderr";

export type Frame =
  | { readonly type: "stdin" | "stdout" | "stderr"; readonly bytes: Uint8Array }
  | { readonly type: "resize"; readonly cols: number; readonly rows: number }
  | { readonly type: "exit"; readonly code: number; readonly reason?: string | undefined }
  | { readonly type: "error"; readonly code: string; readonly message: string }
  | { readonly type: "stdin-eof" }
  | { readonly type: "signal"; readonly signal: string }
  /** `offset` is the place of the first byte in the kernel's output, both streams counted together. */
  | {
      readonly type: "log";
      readonly offset: number;
      readonly stream: LogStreamName;
      readonly bytes: Uint8Array;
    }
  /** `dropped` bytes from `offset` on are lost. */
  | { readonly type: "log-gap"; readonly offset: number; readonly dropped: number }
  /** Nothing more now; `final` when nothing more will ever come. */
  | { readonly type: "log-end"; readonly offset: number; readonly final: boolean }
  /** The receiver has room for `credit` more bytes of stream payload. */
  | { readonly type: "window"; readonly credit: number }
  | { readonly type: "open"; readonly params: unknown };

const exitPayload = z.object({ code: z.int(), reason: z.string().optional() });
const errorPayload = z.object({ code: z.string(), message: z.string() });
const logEndPayload = z.object({ offset: z.int().nonnegative(), final: z.boolean() });

function bad(sentence: string, cause?: unknown): BerthError {
  return new BerthError("bad-frame", sentence, { cause });
}

function withHeader(type: Frame["type"], payload: Uint8Array): Uint8Array {
  if (payload.length > MAX_FRAME_BYTES) {
    throw bad(`A ${type} frame may carry ${MAX_FRAME_BYTES} bytes and this one has ${payload.length}.`);
  }
  const out = new Uint8Array(HEADER_BYTES + payload.length);
  const view = new DataView(out.buffer);
  view.setUint8(0, TYPES[type]);
  view.setUint32(1, payload.length);
  out.set(payload, HEADER_BYTES);
  return out;
}

const text = (value: string) => new TextEncoder().encode(value);
const json = (value: unknown) => text(JSON.stringify(value));

function integer(value: number, max: number, what: string): number {
  if (!Number.isInteger(value) || value < 0 || value > max) throw bad(`${what} ${value} is out of range.`);
  return value;
}

function numbers(bytes: number, fill: (view: DataView) => void): Uint8Array {
  const out = new Uint8Array(bytes);
  fill(new DataView(out.buffer));
  return out;
}

function setU64(view: DataView, at: number, value: number): void {
  view.setBigUint64(at, BigInt(integer(value, Number.MAX_SAFE_INTEGER, "The offset")));
}

function payloadOf(frame: Frame): Uint8Array {
  switch (frame.type) {
    case "stdin":
    case "stdout":
    case "stderr":
      return frame.bytes;
    case "resize":
      return numbers(4, (view) => {
        view.setUint16(0, integer(frame.cols, 0xffff, "The width"));
        view.setUint16(2, integer(frame.rows, 0xffff, "The height"));
      });
    case "exit":
      return json({ code: frame.code, reason: frame.reason });
    case "error":
      return json({ code: frame.code, message: frame.message });
    case "stdin-eof":
      return new Uint8Array(0);
    case "signal":
      return text(frame.signal);
    case "log": {
      const head = numbers(9, (view) => {
        setU64(view, 0, frame.offset);
        view.setUint8(8, TYPES[frame.stream]);
      });
      return Buffer.concat([head, frame.bytes]);
    }
    case "log-gap":
      return numbers(16, (view) => {
        setU64(view, 0, frame.offset);
        setU64(view, 8, frame.dropped);
      });
    case "log-end":
      return json({ offset: frame.offset, final: frame.final });
    case "window":
      return numbers(4, (view) => view.setUint32(0, integer(frame.credit, 0xffffffff, "The credit")));
    case "open":
      return json(frame.params);
  }
}

/** The bytes of one frame. Throws `bad-frame` when the payload passes `MAX_FRAME_BYTES`. */
export function encodeFrame(frame: Frame): Uint8Array {
  return withHeader(frame.type, payloadOf(frame));
}

/** The frame as one or more: stream bytes beyond `FRAME_CHUNK_BYTES` are split, the rest passes unchanged. */
export function* splitFrame(frame: Frame): Generator<Frame> {
  if (!("bytes" in frame) || frame.bytes.length <= FRAME_CHUNK_BYTES) {
    yield frame;
    return;
  }
  for (let at = 0; at < frame.bytes.length; at += FRAME_CHUNK_BYTES) {
    const bytes = frame.bytes.subarray(at, at + FRAME_CHUNK_BYTES);
    yield frame.type === "log" ? { ...frame, offset: frame.offset + at, bytes } : { ...frame, bytes };
  }
}

/** Where frames can be written: `write` resolves when there is room for more. */
export interface FrameSink {
  write(bytes: Uint8Array): Promise<void>;
}

/** Writes a frame (in chunks where it is long); resolves when the sink has room for more. */
export async function writeFrame(sink: FrameSink, frame: Frame): Promise<void> {
  for (const part of splitFrame(frame)) await sink.write(encodeFrame(part));
}

type TypeName = keyof typeof TYPES;
const NAMES = new Map<number, TypeName>();
for (const name of Object.keys(TYPES)) {
  if (name in TYPES) {
    const known = name as TypeName;
    NAMES.set(TYPES[known], known);
  }
}

function parseJson(payload: Uint8Array, type: string): unknown {
  try {
    return JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(payload));
  } catch (cause) {
    throw bad(`A ${type} frame does not hold valid JSON.`, cause);
  }
}

function checked<T>(schema: z.ZodType<T>, payload: Uint8Array, type: string): T {
  const result = schema.safeParse(parseJson(payload, type));
  if (!result.success) throw bad(`A ${type} frame has a wrong form.`, result.error);
  return result.data;
}

function viewOf(payload: Uint8Array, type: string, atLeast: number): DataView {
  if (payload.length < atLeast) throw bad(`A ${type} frame is shorter than ${atLeast} bytes.`);
  return new DataView(payload.buffer, payload.byteOffset, payload.byteLength);
}

function getU64(view: DataView, at: number): number {
  const value = view.getBigUint64(at);
  if (value > BigInt(Number.MAX_SAFE_INTEGER)) throw bad(`The offset ${value} is out of range.`);
  return Number(value);
}

function logStreamName(code: number): LogStreamName {
  if (code === TYPES.stdout) return "stdout";
  if (code === TYPES.stderr) return "stderr";
  throw bad(`A log frame names the unknown stream ${code}.`);
}

function decodePayload(type: TypeName, payload: Uint8Array): Frame {
  switch (type) {
    case "stdin":
    case "stdout":
    case "stderr":
      return { type, bytes: payload };
    case "resize": {
      const view = viewOf(payload, type, 4);
      return { type, cols: view.getUint16(0), rows: view.getUint16(2) };
    }
    case "exit":
      return { type, ...checked(exitPayload, payload, type) };
    case "error":
      return { type, ...checked(errorPayload, payload, type) };
    case "stdin-eof":
      return { type };
    case "signal":
      return { type, signal: new TextDecoder().decode(payload) };
    case "log": {
      const view = viewOf(payload, type, 9);
      const stream = logStreamName(view.getUint8(8));
      return { type, offset: getU64(view, 0), stream, bytes: payload.subarray(9) };
    }
    case "log-gap": {
      const view = viewOf(payload, type, 16);
      return { type, offset: getU64(view, 0), dropped: getU64(view, 8) };
    }
    case "log-end":
      return { type, ...checked(logEndPayload, payload, type) };
    case "window":
      return { type, credit: viewOf(payload, type, 4).getUint32(0) };
    case "open":
      return { type, params: parseJson(payload, type) };
  }
}

export interface FrameDecoder {
  /** Takes the next bytes, split anywhere, and gives the frames that they complete. Throws `bad-frame`. */
  push(chunk: Uint8Array): Frame[];
  /** As `push`, but stops after one frame; `rest` holds what followed it, and the decoder is empty again. */
  pushFirst(chunk: Uint8Array): { readonly frame: Frame; readonly rest: Uint8Array } | undefined;
  /** Bytes of a frame that has begun and not ended: above 0 at the end of a stream it was cut off. */
  pending(): number;
}

/** Puts frames together from bytes. What it returns may share memory with the chunks that it was given. */
export function createFrameDecoder(): FrameDecoder {
  let parts: Uint8Array[] = [];
  let held = 0;
  let needed = HEADER_BYTES;

  const hold = (chunk: Uint8Array): Uint8Array | undefined => {
    if (chunk.length > 0) parts.push(chunk);
    held += chunk.length;
    if (held < needed) return undefined;
    const [first] = parts;
    const all = parts.length === 1 && first !== undefined ? first : Buffer.concat(parts);
    parts = [];
    held = 0;
    return all;
  };
  const keep = (bytes: Uint8Array, wanted: number) => {
    parts = bytes.length > 0 ? [bytes] : [];
    held = bytes.length;
    needed = wanted;
  };
  /** The end of the frame that starts at `at`, or undefined while it is not all there. */
  const endOfFrame = (all: Uint8Array, at: number): number | undefined => {
    const left = all.length - at;
    if (left < HEADER_BYTES) {
      keep(all.subarray(at), HEADER_BYTES);
      return undefined;
    }
    const length = new DataView(all.buffer, all.byteOffset + at).getUint32(1);
    if (length > MAX_FRAME_BYTES) {
      throw bad(`A frame of ${length} bytes was announced; ${MAX_FRAME_BYTES} is the most.`);
    }
    if (left >= HEADER_BYTES + length) return at + HEADER_BYTES + length;
    keep(all.subarray(at), HEADER_BYTES + length);
    return undefined;
  };
  const read = (all: Uint8Array, max: number): { frames: Frame[]; rest: Uint8Array } => {
    const frames: Frame[] = [];
    let at = 0;
    while (frames.length < max) {
      const end = endOfFrame(all, at);
      if (end === undefined) return { frames, rest: new Uint8Array(0) };
      const name = NAMES.get(all[at] ?? -1);
      if (name !== undefined) frames.push(decodePayload(name, all.subarray(at + HEADER_BYTES, end)));
      at = end;
    }
    needed = HEADER_BYTES;
    return { frames, rest: all.subarray(at) };
  };

  return {
    push: (chunk) => {
      const all = hold(chunk);
      return all === undefined ? [] : read(all, Number.POSITIVE_INFINITY).frames;
    },
    pushFirst: (chunk) => {
      const all = hold(chunk);
      if (all === undefined) return undefined;
      const { frames, rest } = read(all, 1);
      const [frame] = frames;
      return frame === undefined ? undefined : { frame, rest };
    },
    pending: () => held,
  };
}

/** Reads frames from a stream of bytes until it ends. Throws `bad-frame` on garbage or a frame cut off. */
export async function* readFrames(source: AsyncIterable<Uint8Array>): AsyncGenerator<Frame> {
  const decoder = createFrameDecoder();
  for await (const chunk of source) yield* decoder.push(chunk);
  if (decoder.pending() > 0) throw bad("The stream ended in the middle of a frame.");
}
