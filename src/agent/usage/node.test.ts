import { describe, expect, test } from "bun:test";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { cpuShare, createNodeMeter } from "./node.ts";
import { isOutwards, parseCpuTimes, parseNetDev, parseOsRelease } from "./proc.ts";

describe("parsers", () => {
  test("idle and waiting for disks are not busy, and guests count once", () => {
    expect(parseCpuTimes("cpu  10 1 5 80 4 0 0 0 7 0\ncpu0 1 1 1 1\n")).toEqual({ busy: 16, total: 100 });
  });

  test("traffic counts on the interfaces that lead out", () => {
    const row = (name: string, rx: number, tx: number) =>
      `${name}: ${rx} 0 0 0 0 0 0 0 ${tx} 0 0 0 0 0 0 0\n`;
    const text = `a\nb\n${row("    lo", 1, 1)}${row("  eth0", 10, 20)}${row("bth-12", 9, 9)}${row("veth1", 9, 9)}${row("enp3s0", 5, 6)}`;
    expect(parseNetDev(text, isOutwards)).toEqual({ rxBytes: 15, txBytes: 26 });
  });

  test("the distribution is named as people know it", () => {
    expect(parseOsRelease('NAME="Debian"\nPRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\n')).toBe(
      "Debian GNU/Linux 12 (bookworm)",
    );
    expect(parseOsRelease("")).toBe("Linux");
  });
});

test("the share of busy time lies between nothing and all", () => {
  expect(cpuShare({ busy: 10, total: 100 }, { busy: 60, total: 200 })).toBe(0.5);
  expect(cpuShare({ busy: 10, total: 100 }, { busy: 10, total: 100 })).toBe(0);
  expect(cpuShare({ busy: 10, total: 100 }, { busy: 5, total: 200 })).toBe(0);
});

test("this node can be measured", async () => {
  const meter = createNodeMeter({ dataDir: "/tmp" });
  const facts = await meter.facts();
  const sample = await meter.sample();
  expect(facts.cpuMilli).toBeGreaterThanOrEqual(100);
  expect([facts.hostname, facts.cpuModel].map((text) => text.trim())).not.toContain("");
  expect(sample.memBytes).toBeGreaterThan(0);
  expect(sample.diskUsedBytes).toBeLessThanOrEqual(sample.diskTotalBytes);
  expect(facts.diskBytes).toBe(sample.diskTotalBytes);
});

test("a node that is a slice of a larger machine offers its slice", async () => {
  const cgroups = await mkdtemp(join(tmpdir(), "berth-node-"));
  try {
    await writeFile(join(cgroups, "cpu.max"), "50000 100000\n");
    await writeFile(join(cgroups, "memory.max"), "134217728\n");
    const facts = await createNodeMeter({ dataDir: "/tmp", cgroups }).facts();
    expect([facts.cpuMilli, facts.memBytes]).toEqual([500, 2 ** 27]);
  } finally {
    await rm(cgroups, { recursive: true });
  }
});
