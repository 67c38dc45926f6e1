import type { LogSink } from "./follow.ts";

const NEWLINE = 0x0a;

/** A sink that passes whole lines on, each with a prefix, so that several can share a terminal. */
export function createLineSink(prefix: string, sink: LogSink): LogSink & { end(): Promise<void> } {
  const held: Record<"stdout" | "stderr", Uint8Array> = {
    stdout: new Uint8Array(0),
    stderr: new Uint8Array(0),
  };
  const start = new TextEncoder().encode(prefix);

  const lines = (bytes: Uint8Array): Uint8Array => {
    const parts: Uint8Array[] = [];
    let at = 0;
    while (at < bytes.length) {
      const end = bytes.indexOf(NEWLINE, at) + 1;
      parts.push(start, bytes.subarray(at, end));
      at = end;
    }
    return Buffer.concat(parts);
  };
  return {
    write: async (stream, bytes, offset) => {
      const all = Buffer.concat([held[stream], bytes]);
      const end = all.lastIndexOf(NEWLINE) + 1;
      held[stream] = all.subarray(end);
      if (end > 0) await sink.write(stream, lines(all.subarray(0, end)), offset);
    },
    gap: sink.gap,
    end: async () => {
      for (const stream of ["stdout", "stderr"] as const) {
        if (held[stream].length > 0) {
          await sink.write(stream, Buffer.concat([start, held[stream], new Uint8Array([NEWLINE])]), 0);
        }
      }
    },
  };
}
