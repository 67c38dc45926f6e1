import type { OutputChunk } from "../engine/engine.ts";
import type { KernelLog, StreamCounts } from "./kernel-log.ts";

/** Bytes of each stream at the start of the engine's log that are stored already. */
export type Join = {
  readonly skip: { readonly stdout: number; readonly stderr: number };
  /** False when the engine's log does not show where the stored output ends in it. */
  readonly proven: boolean;
};

/** How much of the stored end of a stream must be found again, in bytes. */
const PROOF_BYTES = 4096;
/** Output is looked through in pieces of this size, because the engine gives it line by line. */
const SCAN_BYTES = 64 * 1024;
/**
 * Below this much stored output the engine still has all of it: its log is rotated far later, even when each byte were
 * a line of its own.
 */
const NEVER_ROTATED_BYTES = 1024 * 1024;

type StreamScan = { take(bytes: Uint8Array): void; result(): { skip: number; proven: boolean } };

/**
 * Looks in one stream of the engine's log for the place where the stored output ends: at its byte count when the
 * engine still has everything, at `reached` when that much of the engine's log was read before, elsewhere when the
 * engine dropped its beginning.
 */
function scanStream(stored: number, tail: Buffer, reached: number | undefined): StreamScan {
  let seen = 0;
  let carry = Buffer.alloc(0);
  let waiting: Uint8Array[] = [];
  let waitingBytes = 0;
  let expected = false;
  let again = false;
  let first: number | undefined;
  let matches = 0;

  function scan(): void {
    const window = Buffer.concat([carry, ...waiting]);
    const base = seen - carry.length;
    seen += waitingBytes;
    waiting = [];
    waitingBytes = 0;
    for (let at = window.indexOf(tail); at !== -1; at = window.indexOf(tail, at + 1)) {
      const end = base + at + tail.length;
      first ??= end;
      matches += 1;
      if (end === stored) expected = true;
      if (end === reached) again = true;
    }
    carry = window.subarray(Math.max(0, window.length - tail.length + 1));
  }

  function result() {
    scan();
    if (again && reached !== undefined) return { skip: reached, proven: true };
    if (expected) return { skip: stored, proven: true };
    if (first === undefined) return { skip: 0, proven: reached === 0 };
    return { skip: first, proven: matches === 1 && tail.length === PROOF_BYTES };
  }

  if (stored === 0 || tail.length === 0) {
    return { take: () => {}, result: () => ({ skip: stored, proven: true }) };
  }
  return {
    take: (bytes) => {
      waiting.push(bytes);
      waitingBytes += bytes.length;
      if (waitingBytes >= SCAN_BYTES) scan();
    },
    result,
  };
}

/**
 * Finds where `log` ends in the engine's own log, which `replay` gives from its beginning and without following.
 * `reached`: how much of each stream an earlier replay gave, all of which is stored.
 */
export async function findJoin(
  log: KernelLog,
  replay: AsyncIterable<OutputChunk>,
  reached?: StreamCounts,
): Promise<Join> {
  await log.flush();
  const counts = log.counts();
  if (counts.stdout === 0 && counts.stderr === 0) return { skip: counts, proven: true };
  const stdout = scanStream(counts.stdout, await log.tail(1, PROOF_BYTES), reached?.stdout);
  const stderr = scanStream(counts.stderr, await log.tail(2, PROOF_BYTES), reached?.stderr);
  for await (const { stream, bytes } of replay) (stream === 1 ? stdout : stderr).take(bytes);
  const [out, err] = [stdout.result(), stderr.result()];
  return { skip: { stdout: out.skip, stderr: err.skip }, proven: out.proven && err.proven };
}

/** Whether the engine's log must still begin where the output began, so that counting bytes is enough. */
export function isWhole(log: KernelLog): boolean {
  const { stdout, stderr } = log.counts();
  return stdout + stderr < NEVER_ROTATED_BYTES;
}

/** The chunks without the first bytes of each stream. */
export async function* skipOutput(
  source: AsyncIterable<OutputChunk>,
  skip: Join["skip"],
): AsyncGenerator<OutputChunk> {
  const left = { 1: skip.stdout, 2: skip.stderr };
  for await (const { stream, bytes } of source) {
    const dropped = Math.min(left[stream], bytes.length);
    left[stream] -= dropped;
    if (dropped < bytes.length) yield { stream, bytes: bytes.subarray(dropped) };
  }
}

export const GAP_NOTE =
  "[berth] The agent was away and the engine's log does not reach back to where it left: output may be missing here.";
