import { mkdir, open, readdir, readFile, rm, truncate } from "node:fs/promises";
import { join } from "node:path";
import {
  decodeSegmentHeader,
  FrameKind,
  parseFrames,
  SEGMENT_HEADER_BYTES,
  type SegmentStart,
} from "./segment.ts";

/** One file of a log. `end` is the offset after its last byte of output, `size` the file's bytes in use. */
export type Segment = { readonly path: string; readonly start: SegmentStart; end: number; size: number };

export type RecoveredLog = {
  readonly segments: Segment[];
  readonly position: SegmentStart;
  readonly final: boolean;
};

type Scan = { readonly segment: Segment; readonly position: SegmentStart; readonly final: boolean };

async function scanSegment(path: string): Promise<Scan | undefined> {
  const bytes = await readFile(path);
  const start = decodeSegmentHeader(bytes);
  if (start === undefined) return undefined;
  const { frames, usedBytes } = parseFrames(bytes.subarray(SEGMENT_HEADER_BYTES));
  const size = SEGMENT_HEADER_BYTES + usedBytes;
  if (size < bytes.length) await truncate(path, size);
  const position = { ...start };
  let final = false;
  for (const { kind, payload } of frames) {
    position.offset += payload.length;
    if (kind === FrameKind.stdout) position.stdout += payload.length;
    if (kind === FrameKind.stderr) position.stderr += payload.length;
    if (kind === FrameKind.end) final = true;
  }
  return { segment: { path, start, end: position.offset, size }, position, final };
}

/** Makes the folder when it is missing, reads its segments, cuts half frames and removes files without a header. */
export async function recoverSegments(dir: string): Promise<RecoveredLog> {
  await mkdir(dir, { recursive: true, mode: 0o700 });
  const names = (await readdir(dir)).filter((name) => name.endsWith(".seg")).sort();
  const scans: Scan[] = [];
  for (const name of names) {
    const path = join(dir, name);
    const scan = await scanSegment(path);
    if (scan === undefined) await rm(path, { force: true });
    else scans.push(scan);
  }
  const last = scans.at(-1);
  return {
    segments: scans.map((scan) => scan.segment),
    position: last?.position ?? { offset: 0, stdout: 0, stderr: 0 },
    final: last?.final ?? false,
  };
}

/** Makes a rename or a new file in the folder survive a power loss. */
export async function syncDirectory(dir: string): Promise<void> {
  const handle = await open(dir, "r");
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}
