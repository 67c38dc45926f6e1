import { afterEach, beforeEach, describe, expect, test } from "bun:test";
import { mkdtemp, readdir, rm, utimes } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { GapFrame, LogFrame } from "./collect.ts";
import { createLogFiles } from "./files.ts";

let dir = "";
beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), "berth-logs-"));
});
afterEach(() => rm(dir, { recursive: true, force: true }));

const limits = { totalBytes: 1000, headBytes: 200 };
const frame = (offset: number, text: string): LogFrame => ({
  type: "log",
  offset,
  stream: "stderr",
  bytes: new TextEncoder().encode(text),
});
async function* from<T>(items: readonly T[], fail = false) {
  yield* items;
  if (fail) throw new Error("cut");
}
async function read(frames: AsyncIterable<LogFrame | GapFrame> | null) {
  const out: string[] = [];
  for await (const part of frames ?? []) {
    out.push(part.type === "log" ? Buffer.from(part.bytes).toString() : `[${part.dropped}]`);
  }
  return out.join("");
}

describe("stored logs", () => {
  const key = { kernelId: "0198c0de-0000-7000-8000-000000000001", generation: 2 };

  test("are read back as they were stored, and again after storing anew", async () => {
    const files = createLogFiles(dir);
    expect(await files.open(key)).toBeNull();
    expect(await files.store(key, from([frame(0, "one\n"), frame(4, "two\n")]), limits)).toBe(8);
    expect(await read(await files.open(key))).toBe("one\ntwo\n");
    await files.store(key, from([frame(0, "x".repeat(3000))]), limits);
    expect(await read(await files.open(key))).toBe(`${"x".repeat(200)}[2000]${"x".repeat(800)}`);
    expect(await readdir(dir)).toHaveLength(1);
  });

  test("a source that is cut leaves nothing, and what was stored before stays", async () => {
    const files = createLogFiles(dir);
    await files.store(key, from([frame(0, "good")]), limits);
    await expect(files.store(key, from([frame(0, "half")], true), limits)).rejects.toThrow("cut");
    expect(await read(await files.open(key))).toBe("good");
    expect(await readdir(dir)).toHaveLength(1);
  });

  test("old ones and then the oldest beyond the total are removed", async () => {
    const files = createLogFiles(dir);
    for (const [at, generation] of [1, 2, 3, 4].entries()) {
      await files.store({ ...key, generation }, from([frame(0, "y".repeat(100))]), limits);
      await utimes(join(dir, `${key.kernelId}.g${generation}.log`), 1000 + at, 1000 + at);
    }
    expect(await files.prune(1_001_000, 250)).toBe(2);
    const left = await Promise.all([1, 2, 3, 4].map((generation) => files.open({ ...key, generation })));
    expect(left.map((open) => open !== null)).toEqual([false, false, true, true]);
  });
});
