import { describe, expect, test } from "bun:test";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { keyed, parseBlkio, parseCgroup, parseIoStat, parseLimit } from "./cgroup.ts";
import { createUsageReader } from "./container.ts";

describe("parsers", () => {
  test("parseCgroup reads both versions", () => {
    const paths = parseCgroup(
      "4:memory:/docker/a\n2:cpu,cpuacct:/docker/b\n1:name=systemd:/x\n0::/slice/c\n",
    );
    expect([paths.get("memory"), paths.get("cpuacct"), paths.get("")]).toEqual([
      "/docker/a",
      "/docker/b",
      "/slice/c",
    ]);
  });

  test("keyed takes the whole key", () => {
    expect(keyed("total_inactive_file 7\ninactive_file 3\n", "inactive_file")).toBe(3);
    expect(keyed("", "oom_kill")).toBe(0);
  });

  test("no limit is 0", () => {
    expect(parseLimit("max\n")).toBe(0);
    expect(parseLimit("9223372036854771712\n")).toBe(0);
    expect(parseLimit("134217728\n")).toBe(134_217_728);
  });

  test("block devices are summed", () => {
    expect(parseIoStat("8:0 rbytes=1 wbytes=2 rios=9\n8:16 rbytes=10 wbytes=20\n")).toEqual({
      read: 11,
      write: 22,
    });
    const blkio = "8:0 Read 1\n8:0 Write 2\n8:0 Total 3\n8:16 Read 10\nTotal 13\n";
    expect(parseBlkio(blkio)).toEqual({ read: 11, write: 2 });
  });
});

describe("createUsageReader", () => {
  function withFiles<T>(files: Record<string, string>, use: (root: string) => Promise<T>): Promise<T> {
    const root = mkdtempSync(join(tmpdir(), "berth-usage-"));
    for (const [path, text] of Object.entries(files)) {
      mkdirSync(dirname(join(root, path)), { recursive: true });
      writeFileSync(join(root, path), text);
    }
    return use(root).finally(() => rmSync(root, { recursive: true }));
  }

  const read = (root: string) =>
    createUsageReader({ proc: join(root, "proc"), cgroups: join(root, "cgroup") }).read(7);

  const net = "h\nh\n    lo: 5 0 0 0 0 0 0 0 6 0\n  eth0: 100 1 0 0 0 0 0 0 200 2 0\n";

  test("version 2", async () => {
    const files = {
      "proc/7/cgroup": "0::/d\n",
      "proc/7/net/dev": net,
      "cgroup/d/memory.current": "1000\n",
      "cgroup/d/memory.stat": "anon 1\ninactive_file 400\n",
      "cgroup/d/memory.max": "2000\n",
      "cgroup/d/memory.events": "low 0\noom 1\noom_kill 2\n",
      "cgroup/d/cpu.stat": "usage_usec 3\n",
      "cgroup/d/io.stat": "8:0 rbytes=4 wbytes=5\n",
      "cgroup/d/pids.current": "6\n",
    };
    expect(await withFiles(files, read)).toEqual({
      cpuNanos: 3000,
      memBytes: 600,
      memLimitBytes: 2000,
      ioReadBytes: 4,
      ioWriteBytes: 5,
      netRxBytes: 100,
      netTxBytes: 200,
      pids: 6,
      oomKills: 2,
    });
  });

  test("version 1, and a controller that the kernel does not have", async () => {
    const files = {
      "proc/7/cgroup": "4:memory:/d\n2:cpuacct:/d\n8:pids:/d\n0::/\n",
      "proc/7/net/dev": net,
      "cgroup/memory/d/memory.usage_in_bytes": "1000\n",
      "cgroup/memory/d/memory.stat": "inactive_file 1\ntotal_inactive_file 1400\n",
      "cgroup/memory/d/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n",
      "cgroup/cpuacct/d/cpuacct.usage": "77\n",
    };
    expect(await withFiles(files, read)).toMatchObject({
      cpuNanos: 77,
      memBytes: 0,
      memLimitBytes: 0,
      ioReadBytes: 0,
      pids: 0,
      oomKills: 1,
    });
  });

  test("a process that has ended is told", async () => {
    await expect(withFiles({}, read)).rejects.toMatchObject({ code: "kernel-not-running" });
  });
});
