import { afterAll, beforeAll, expect, test } from "bun:test";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { countCpus, parseCpuQuota, readNodeLimits, smallestLimit } from "./limits.ts";

let dir = "";
beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), "berth-limits-"));
});
afterAll(() => rm(dir, { recursive: true, force: true }));

async function tree(name: string, files: Readonly<Record<string, string>>): Promise<string> {
  const root = join(dir, name);
  await mkdir(root);
  for (const [path, text] of Object.entries(files)) {
    await mkdir(dirname(join(root, path)), { recursive: true });
    await writeFile(join(root, path), text);
  }
  return root;
}

test("lists of processors are counted", () => {
  expect(["", "\n", "0", "0-1\n", "0-3,8,10-11"].map(countCpus)).toEqual([0, 0, 1, 2, 7]);
});

test("a quota is milli-cores, and none is no limit", () => {
  expect(parseCpuQuota("150000", "100000\n")).toBe(1500);
  expect(parseCpuQuota("max", "100000")).toBe(0);
  expect(parseCpuQuota("-1", "100000")).toBe(0);
  expect(parseCpuQuota("", "")).toBe(0);
});

test("no limit never wins over a limit", () => {
  expect(smallestLimit(0, 4000, 0, 1500)).toBe(1500);
  expect(smallestLimit(0, 0)).toBe(0);
});

test("version 2 of control groups: quota, processors and memory", async () => {
  const root = await tree("two", {
    "cpu.max": "150000 100000\n",
    "memory.max": "1073741824\n",
    "cpuset.cpus.effective": "0-3\n",
  });
  expect(await readNodeLimits(root)).toEqual({ cpuMilli: 1500, memBytes: 2 ** 30 });
});

test("version 1 of control groups: fewer processors than the quota allows", async () => {
  const root = await tree("one", {
    "cpu/cpu.cfs_quota_us": "400000\n",
    "cpu/cpu.cfs_period_us": "100000\n",
    "memory/memory.limit_in_bytes": "9223372036854771712\n",
    "cpuset/cpuset.effective_cpus": "2,5\n",
  });
  expect(await readNodeLimits(root)).toEqual({ cpuMilli: 2000, memBytes: 0 });
});

test("the real top of a machine has no limits", async () => {
  expect(await readNodeLimits(await tree("top", {}))).toEqual({ cpuMilli: 0, memBytes: 0 });
});
