import type { OutputChunk } from "./engine.ts";

const HEADER = 8;

/** Takes the engine's framed stream apart: 8 bytes of header (stream, length), then the payload. */
export interface Demuxer {
  /** Chunks that these bytes complete or continue, in order. Throws `RangeError` on what is no frame. */
  push(bytes: Uint8Array): OutputChunk[];
}

/**
 * A demultiplexer that passes payloads on as they come, without waiting for whole frames and without
 * copying: a frame of any length costs no memory.
 */
export function createDemuxer(): Demuxer {
  const header = new Uint8Array(HEADER);
  let have = 0;
  let stream: 1 | 2 = 1;
  let left = 0;

  function takeHeader(bytes: Uint8Array, at: number): number {
    const part = bytes.subarray(at, at + HEADER - have);
    header.set(part, have);
    have += part.length;
    if (have === HEADER) {
      const kind = header[0];
      // 0 is standard input: engines echo it as output.
      if (kind !== 0 && kind !== 1 && kind !== 2) throw new RangeError(`no frame of output: stream ${kind}`);
      stream = kind === 2 ? 2 : 1;
      left = new DataView(header.buffer).getUint32(4);
      have = 0;
    }
    return at + part.length;
  }

  return {
    push: (bytes) => {
      const chunks: OutputChunk[] = [];
      for (let at = 0; at < bytes.length; ) {
        if (left === 0) {
          at = takeHeader(bytes, at);
          continue;
        }
        const payload = bytes.subarray(at, at + left);
        chunks.push({ stream, bytes: payload });
        left -= payload.length;
        at += payload.length;
      }
      return chunks;
    },
  };
}

/** The bytes of a stream as they come; ends with it and stops it when the reader stops. */
export async function* bytesOf(source: AsyncIterable<unknown>): AsyncGenerator<Uint8Array> {
  for await (const piece of source) {
    if (piece instanceof Uint8Array) yield piece;
    else if (typeof piece === "string") yield Buffer.from(piece);
  }
}

/** Joins neighbours of one stream: the engine gives a log line by line, and each chunk costs its readers a turn. */
export function joinChunks(chunks: readonly OutputChunk[]): OutputChunk[] {
  const joined: OutputChunk[] = [];
  for (let at = 0; at < chunks.length; ) {
    const first = chunks[at];
    let end = at + 1;
    while (end < chunks.length && chunks[end]?.stream === first?.stream) end += 1;
    if (first !== undefined) {
      const bytes =
        end === at + 1 ? first.bytes : Buffer.concat(chunks.slice(at, end).map((one) => one.bytes));
      joined.push({ stream: first.stream, bytes });
    }
    at = end;
  }
  return joined;
}

/** Output of a stream: framed, or, with a terminal, as it is. */
export async function* outputOf(
  source: AsyncIterable<unknown>,
  framed: boolean,
): AsyncGenerator<OutputChunk> {
  const demuxer = createDemuxer();
  for await (const bytes of bytesOf(source)) {
    if (framed) yield* joinChunks(demuxer.push(bytes));
    else yield { stream: 1, bytes };
  }
}

/** The JSON values of a stream that carries one per line. */
export async function* jsonLines(source: AsyncIterable<unknown>): AsyncGenerator<unknown> {
  const decoder = new TextDecoder();
  let rest = "";
  for await (const bytes of bytesOf(source)) {
    const lines = (rest + decoder.decode(bytes, { stream: true })).split("\n");
    rest = lines.pop() ?? "";
    for (const line of lines) if (line.trim() !== "") yield JSON.parse(line);
  }
  if (rest.trim() !== "") yield JSON.parse(rest);
}
