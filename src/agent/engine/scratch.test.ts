import { afterEach, beforeEach, expect, test } from "bun:test";
import { mkdir, mkdtemp, readdir, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { manualClock } from "../../kit/clock.ts";
import { silentLogger } from "../../kit/log.ts";
import { createScratchStore } from "./scratch.ts";

const kernel = "0190a000-0000-7000-8000-000000000001.g1";
let dataDir: string;
beforeEach(async () => {
  dataDir = await mkdtemp(join(tmpdir(), "berth-scratch-"));
  await mkdir(join(dataDir, "scratch", kernel), { recursive: true });
  // As a process leaves it that is killed during its try.
  await mkdir(join(dataDir, "scratch", "probe-4711", "mnt"), { recursive: true });
  await writeFile(join(dataDir, "scratch", "probe-4711", "image.ext4"), "");
});
afterEach(() => rm(dataDir, { recursive: true, force: true }));

const store = () =>
  createScratchStore({ dataDir, mode: "directory", clock: manualClock(), log: silentLogger });
const left = () => readdir(join(dataDir, "scratch"));

test("the rest of a killed process's try of loop mounts is removed by the next one's", async () => {
  expect(await store().loops()).toBe(false);
  expect(await left()).toEqual([kernel]);
});

test("clearing such rests touches no kernel's scratch, and does without the folder", async () => {
  await store().clearProbes();
  expect(await left()).toEqual([kernel]);
  await rm(join(dataDir, "scratch"), { recursive: true });
  await store().clearProbes();
});
