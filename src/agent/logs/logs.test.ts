import { afterEach, describe, expect, test } from "bun:test";
import { appendFileSync, mkdtempSync, readdirSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import fc from "fast-check";
import { silentLogger } from "../../kit/log.ts";
import type { OutputChunk } from "../engine/engine.ts";
import type { LogEvent } from "./event.ts";
import { type KernelLog, openKernelLog, type StreamCounts } from "./kernel-log.ts";
import { findJoin, skipOutput } from "./resume.ts";
import { createLogStore } from "./store.ts";

const dirs: string[] = [];
function tempDir(): string {
  const dir = mkdtempSync(join(tmpdir(), "berth-logs-"));
  dirs.push(dir);
  return dir;
}
afterEach(() => {
  for (const dir of dirs.splice(0)) rmSync(dir, { recursive: true, force: true });
});

const open = (dir: string, limitBytes = 64 * 2 ** 20) =>
  openKernelLog({ dir, limitBytes, log: silentLogger });
const out = (text: string): OutputChunk => ({ stream: 1, bytes: Buffer.from(text) });
const err = (text: string): OutputChunk => ({ stream: 2, bytes: Buffer.from(text) });

async function readAll(log: KernelLog, offset = 0): Promise<LogEvent[]> {
  const events: LogEvent[] = [];
  for await (const event of log.read({ offset, follow: false })) events.push(event);
  return events;
}
function text(events: readonly LogEvent[], stream?: 1 | 2): string {
  return events
    .map((event) =>
      event.kind === "output" && (stream ?? event.stream) === event.stream ? String(event.bytes) : "",
    )
    .join("");
}

describe("a log on disk", () => {
  test("gives back both streams in order and ends", async () => {
    const log = await open(tempDir());
    await log.append(out("one\n"));
    await log.append(err("two\n"));
    await log.append(out("three\n"));
    await log.finish();
    const events = await readAll(log);
    expect(text(events)).toBe("one\ntwo\nthree\n");
    expect(text(events, 2)).toBe("two\n");
    expect(events.at(-1)).toEqual({ kind: "end", offset: 14, final: true });
    expect(log.counts()).toEqual({ stdout: 10, stderr: 4 });
  });

  test("any appends, read from any offset, give the same bytes, also by a later process", async () => {
    const chunk = fc.record({
      stream: fc.constantFrom<1 | 2>(1, 2),
      size: fc.integer({ min: 1, max: 90_000 }),
    });
    await fc.assert(
      fc.asyncProperty(
        fc.array(chunk, { maxLength: 30 }),
        fc.double({ min: 0, max: 1, noNaN: true }),
        async (chunks, part) => {
          const dir = tempDir();
          const log = await open(dir);
          const all: Buffer[] = [];
          for (const [index, { stream, size }] of chunks.entries()) {
            const bytes = Buffer.alloc(size, index + 1);
            all.push(bytes);
            void log.append({ stream, bytes });
          }
          const whole = Buffer.concat(all);
          const offset = Math.floor(part * whole.length);
          const gather = async (from: KernelLog) =>
            Buffer.concat(
              (await readAll(from, offset)).flatMap((event) =>
                event.kind === "output" ? [event.bytes] : [],
              ),
            );
          expect((await gather(log)).equals(whole.subarray(offset))).toBe(true);
          await log.close();
          const again = await open(dir);
          expect((await gather(again)).equals(whole.subarray(offset))).toBe(true);
          expect(again.endOffset()).toBe(whole.length);
          expect(again.counts()).toEqual(log.counts());
          await again.close();
        },
      ),
      { numRuns: 25 },
    );
  });

  test("a half-written frame is cut off and writing goes on after it", async () => {
    const dir = tempDir();
    const log = await open(dir);
    await log.append(out("whole\n"));
    await log.close();
    const file = readdirSync(dir)[0] ?? "";
    appendFileSync(join(dir, file), Buffer.from([1, 0, 0, 0, 200, 65, 65]));
    const again = await open(dir);
    expect(again.endOffset()).toBe(6);
    await again.append(out("more\n"));
    expect(text(await readAll(again))).toBe("whole\nmore\n");
    await again.close();
  });

  test("the oldest output goes first, within the limit, and readers are told", async () => {
    const dir = tempDir();
    const log = await open(dir, 1024 * 1024);
    const line = Buffer.alloc(10_000, "x");
    for (let index = 0; index < 400; index += 1) await log.append({ stream: 1, bytes: line });
    await log.finish();
    const bytes = readdirSync(dir).reduce((sum, name) => sum + statSync(join(dir, name)).size, 0);
    expect(bytes).toBeLessThanOrEqual(1024 * 1024);
    const events = await readAll(log);
    const gap = events[0];
    if (gap?.kind !== "gap") throw new Error("no gap was told");
    expect(gap.droppedBytes + text(events).length).toBe(4_000_000);
    expect(events[1]).toMatchObject({ kind: "output", offset: gap.droppedBytes });
    const again = await open(dir, 1024 * 1024);
    expect(again.counts()).toEqual({ stdout: 4_000_000, stderr: 0 });
    expect(again.isFinal()).toBe(true);
  });

  test("a follower gets what comes later and ends when the log is final", async () => {
    const log = await open(tempDir());
    await log.append(out("a"));
    const got: string[] = [];
    const following = (async () => {
      for await (const event of log.read({ offset: 0, follow: true })) {
        got.push(event.kind === "output" ? String(event.bytes) : event.kind);
        if (got.length === 1) await log.append(out("b"));
        if (got.length === 2) void log.finish();
      }
    })();
    await following;
    expect(got).toEqual(["a", "b", "end"]);
  });

  test("a follower stops when its signal aborts", async () => {
    const log = await open(tempDir());
    await log.append(out("a"));
    const abort = new AbortController();
    let events = 0;
    for await (const _ of log.read({ offset: 0, follow: true, signal: abort.signal })) {
      events += 1;
      setImmediate(() => abort.abort());
    }
    expect(events).toBe(1);
    await log.close();
  });

  test("a log that cannot be written loses output, says so to readers and goes on when it can", async () => {
    const dir = tempDir();
    const log = await open(dir);
    rmSync(dir, { recursive: true });
    await log.append(out("lost"));
    await log.flush();
    expect(log.endOffset()).toBe(4);
    expect((await readAll(log)).at(0)).toEqual({ kind: "gap", offset: 0, droppedBytes: 4 });
    await log.close();
  });

  test("the store finds what is on disk and removes it with its readers", async () => {
    const dir = tempDir();
    const store = createLogStore({ dir, defaultLimitBytes: 2 ** 20, log: silentLogger });
    const log = await store.open("k.g1", 0);
    await log.append(out("x"));
    const reader = (async () => {
      const kinds: string[] = [];
      for await (const event of log.read({ offset: 0, follow: true })) kinds.push(event.kind);
      return kinds;
    })();
    await log.flush();
    expect(await store.find("other.g1")).toBeUndefined();
    expect(await store.find("k.g1")).toBe(log);
    await store.remove("k.g1");
    expect(await reader).toContain("end");
    expect(await store.list()).toEqual([]);
    await store.close();
  });
});

async function* replay(chunks: readonly OutputChunk[]): AsyncGenerator<OutputChunk> {
  yield* chunks;
}

/** Lines with numbers, cut into chunks of any size and given to both streams in turn. */
function numbered(from: number, to: number): OutputChunk[] {
  const chunks: OutputChunk[] = [];
  for (let line = from; line < to; line += 1)
    chunks.push(line % 5 === 0 ? err(`e${line}\n`) : out(`line ${line}\n`));
  return chunks;
}

describe("joining the engine's log to what is stored", () => {
  async function resumed(
    stored: readonly OutputChunk[],
    engine: readonly OutputChunk[],
    reached?: StreamCounts,
  ) {
    const log = await open(tempDir());
    for (const chunk of stored) void log.append(chunk);
    const join = await findJoin(log, replay(engine), reached);
    for await (const chunk of skipOutput(replay(engine), join.skip)) void log.append(chunk);
    const events = await readAll(log);
    await log.close();
    return { join, stdout: text(events, 1), stderr: text(events, 2) };
  }
  const only = (chunks: readonly OutputChunk[], stream: 1 | 2) =>
    chunks.map((chunk) => (chunk.stream === stream ? String(chunk.bytes) : "")).join("");

  test("every line is there exactly once, wherever the agent went away", async () => {
    const all = numbered(0, 3000);
    await fc.assert(
      fc.asyncProperty(
        fc.integer({ min: 0, max: all.length }),
        fc.integer({ min: 0, max: 8 }),
        async (count, cut) => {
          const stored = all.slice(0, count);
          const half = all[count];
          if (half !== undefined && cut > 0) {
            stored.push({
              stream: half.stream,
              bytes: half.bytes.subarray(0, Math.min(cut, half.bytes.length)),
            });
          }
          const { join, stdout, stderr } = await resumed(stored, all);
          expect(join.proven).toBe(true);
          expect(stdout).toBe(only(all, 1));
          expect(stderr).toBe(only(all, 2));
        },
      ),
      { numRuns: 15 },
    );
  });

  test("the engine dropped the beginning: the join is found by the text", async () => {
    const all = numbered(0, 9000);
    const { join, stdout } = await resumed(all.slice(0, 6000), all.slice(2500));
    expect(join.proven).toBe(true);
    expect(stdout).toBe(only(all, 1));
  });

  test("the engine dropped more than what was stored: not proven, and nothing of the rest is lost", async () => {
    const all = numbered(0, 9000);
    const { join, stdout } = await resumed(all.slice(0, 2000), all.slice(4000));
    expect(join.proven).toBe(false);
    expect(stdout).toBe(only(all.slice(0, 2000), 1) + only(all.slice(4000), 1));
  });

  test("text that repeats, its beginning dropped, is joined where the engine's log was read to before", async () => {
    const all = Array.from({ length: 5000 }, () => out("same\n"));
    const { join, stdout } = await resumed(all.slice(0, 4000), all.slice(1000), {
      stdout: 15_000,
      stderr: 0,
    });
    expect(join.proven).toBe(true);
    expect(stdout).toBe(only(all, 1));
  });

  test("text that repeats is joined at its byte count", async () => {
    const all = Array.from({ length: 5000 }, () => out("same\n"));
    const { join, stdout } = await resumed(all.slice(0, 3000), all);
    expect(join.proven).toBe(true);
    expect(stdout).toBe(only(all, 1));
  });
});
