import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { BerthError } from "../../kit/errors.ts";
import { type CgroupPaths, keyed, parseBlkio, parseCgroup, parseIoStat, parseLimit } from "./cgroup.ts";
import { parseNetDev } from "./proc.ts";

/** One look at a container's counters; they grow from its start. */
export type ContainerSample = {
  readonly cpuNanos: number;
  /** Memory without the page cache that the kernel would give up first. */
  readonly memBytes: number;
  readonly memLimitBytes: number;
  readonly ioReadBytes: number;
  readonly ioWriteBytes: number;
  readonly netRxBytes: number;
  readonly netTxBytes: number;
  readonly pids: number;
  /** Processes that the kernel ended for want of memory. */
  readonly oomKills: number;
};

export interface UsageReader {
  /**
   * The counters of the container that process `pid` of the node lives in. Read straight from the kernel: the engine's
   * own statistics take two seconds each. Throws `kernel-not-running` when the process has ended.
   */
  read(pid: number): Promise<ContainerSample>;
}

/** Roots are for tests. */
export function createUsageReader({ proc = "/proc", cgroups = "/sys/fs/cgroup" } = {}): UsageReader {
  const read = (...parts: string[]) => readFile(join(...parts), "utf8");
  // Controllers differ from kernel to kernel; what one does not count is 0.
  const optional = (...parts: string[]) => read(...parts).catch(() => "");

  async function versionTwo(path: string) {
    const at = join(cgroups, path);
    const [current, stat, max, events, cpu, io, pids] = await Promise.all([
      read(at, "memory.current"),
      optional(at, "memory.stat"),
      optional(at, "memory.max"),
      optional(at, "memory.events"),
      optional(at, "cpu.stat"),
      optional(at, "io.stat"),
      optional(at, "pids.current"),
    ]);
    return {
      cpuNanos: keyed(cpu, "usage_usec") * 1000,
      memBytes: Math.max(Number(current) - keyed(stat, "inactive_file"), 0),
      memLimitBytes: parseLimit(max),
      io: parseIoStat(io),
      pids: Number(pids) || 0,
      oomKills: keyed(events, "oom_kill"),
    };
  }

  async function versionOne(paths: CgroupPaths) {
    const at = (controller: string) => join(cgroups, controller, paths.get(controller) ?? "/");
    const [current, stat, limit, oom, cpu, io, pids] = await Promise.all([
      read(at("memory"), "memory.usage_in_bytes"),
      optional(at("memory"), "memory.stat"),
      optional(at("memory"), "memory.limit_in_bytes"),
      optional(at("memory"), "memory.oom_control"),
      optional(at("cpuacct"), "cpuacct.usage"),
      optional(at("blkio"), "blkio.throttle.io_service_bytes"),
      optional(at("pids"), "pids.current"),
    ]);
    return {
      cpuNanos: Number(cpu) || 0,
      memBytes: Math.max(Number(current) - keyed(stat, "total_inactive_file"), 0),
      memLimitBytes: parseLimit(limit),
      io: parseBlkio(io),
      pids: Number(pids) || 0,
      oomKills: keyed(oom, "oom_kill"),
    };
  }

  async function sample(pid: number): Promise<ContainerSample> {
    const paths = parseCgroup(await read(proc, String(pid), "cgroup"));
    const { io, ...counters } = await (paths.has("memory")
      ? versionOne(paths)
      : versionTwo(paths.get("") ?? "/"));
    const traffic = parseNetDev(await optional(proc, String(pid), "net/dev"), (name) => name !== "lo");
    return {
      ...counters,
      ioReadBytes: io.read,
      ioWriteBytes: io.write,
      netRxBytes: traffic.rxBytes,
      netTxBytes: traffic.txBytes,
    };
  }

  return {
    read: async (pid) => {
      try {
        return await sample(pid);
      } catch (cause) {
        throw new BerthError("kernel-not-running", "The session has ended, so its use cannot be measured.", {
          cause,
        });
      }
    },
  };
}
