import { randomUUID } from "node:crypto";
import { type FileHandle, mkdir, open, readdir, rename, rm, stat } from "node:fs/promises";
import { join } from "node:path";
import type { WallMs } from "../../kit/clock.ts";
import { encodeFrame, readFrames } from "../../kit/frames.ts";
import { createLogKeeper, type GapFrame, type LogFrame, type LogLimits } from "./collect.ts";

/** Which log: a kernel's generation. */
export type LogKey = { readonly kernelId: string; readonly generation: number };

export interface LogFiles {
  /**
   * Stores a whole log, bounded by the limits, replacing one that is there. When it resolves the log is
   * safely on disk; when it rejects nothing of it is left. Gives the bytes of output that were stored.
   */
  store(key: LogKey, frames: AsyncIterable<LogFrame | GapFrame>, limits: LogLimits): Promise<number>;
  /** The frames of a stored log, or null when there is none. */
  open(key: LogKey): Promise<AsyncIterable<LogFrame | GapFrame> | null>;
  /** Deletes what is older than `before`, and then the oldest until all together is at most `maxBytes`. */
  prune(before: WallMs, maxBytes: number): Promise<number>;
}

const WRITE_BYTES = 256 * 1024;
const SUFFIX = ".log";

/** Gathers small frames, so that a log of short lines is not one write for each. */
function createWriter(file: FileHandle) {
  let parts: Uint8Array[] = [];
  let held = 0;
  const flush = async () => {
    if (held === 0) return;
    const all = Buffer.concat(parts);
    parts = [];
    held = 0;
    await file.writeFile(all);
  };
  const add = async (frames: readonly (LogFrame | GapFrame)[]): Promise<number> => {
    let bytes = 0;
    for (const frame of frames) {
      const encoded = encodeFrame(frame);
      parts.push(encoded);
      held += encoded.length;
      if (frame.type === "log") bytes += frame.bytes.length;
      if (held >= WRITE_BYTES) await flush();
    }
    return bytes;
  };
  return { add, flush };
}

async function syncFolder(dir: string): Promise<void> {
  const handle = await open(dir, "r");
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}

async function* readLog(path: string): AsyncGenerator<LogFrame | GapFrame> {
  for await (const frame of readFrames(Bun.file(path).stream())) {
    if (frame.type === "log" || frame.type === "log-gap") yield frame;
  }
}

/** The logs of ended kernels as files of frames below `dir`, which is made when it is not there. */
export function createLogFiles(dir: string): LogFiles {
  const pathOf = (key: LogKey) => join(dir, `${key.kernelId}.g${key.generation}${SUFFIX}`);

  async function writeAll(
    path: string,
    frames: AsyncIterable<LogFrame | GapFrame>,
    limits: LogLimits,
  ): Promise<number> {
    const keeper = createLogKeeper(limits);
    const file = await open(path, "wx", 0o600);
    try {
      const writer = createWriter(file);
      let bytes = 0;
      for await (const frame of frames) bytes += await writer.add(keeper.put(frame));
      bytes += await writer.add(keeper.rest());
      await writer.flush();
      await file.sync();
      return bytes;
    } finally {
      await file.close();
    }
  }

  async function store(
    key: LogKey,
    frames: AsyncIterable<LogFrame | GapFrame>,
    limits: LogLimits,
  ): Promise<number> {
    await mkdir(dir, { recursive: true, mode: 0o700 });
    const temporary = join(dir, `.${key.kernelId}.${randomUUID()}`);
    try {
      const bytes = await writeAll(temporary, frames, limits);
      await rename(temporary, pathOf(key));
      await syncFolder(dir);
      return bytes;
    } catch (error) {
      await rm(temporary, { force: true });
      throw error;
    }
  }

  async function list() {
    const names = await readdir(dir).catch(() => []);
    const found = names.map(async (name) => {
      const path = join(dir, name);
      const info = await stat(path).catch(() => null);
      return info === null ? [] : [{ path, name, bytes: info.size, at: info.mtimeMs }];
    });
    return (await Promise.all(found)).flat().sort((a, b) => a.at - b.at);
  }

  return {
    store,
    open: async (key) => {
      const path = pathOf(key);
      return (await Bun.file(path).exists()) ? readLog(path) : null;
    },
    prune: async (before, maxBytes) => {
      const files = await list();
      let total = files.reduce((sum, file) => sum + file.bytes, 0);
      let removed = 0;
      for (const file of files) {
        if (file.at >= before && total <= maxBytes) break;
        // A temporary file that is young is being written.
        if (!file.name.endsWith(SUFFIX) && file.at >= before) continue;
        await rm(file.path, { force: true });
        total -= file.bytes;
        removed++;
      }
      return removed;
    },
  };
}
