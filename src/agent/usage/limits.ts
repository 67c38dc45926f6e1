import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { parseLimit } from "./cgroup.ts";

/** What a node may use of its hardware; 0 means no limit. */
export type NodeLimits = { readonly cpuMilli: number; readonly memBytes: number };

/** How many processors a list such as "0-3,8,10-11" names; 0 for an empty one. */
export function countCpus(list: string): number {
  const ranges = list.trim() === "" ? [] : list.trim().split(",");
  return ranges.reduce((count, range) => {
    const [from = "", to = from] = range.split("-");
    return count + Number(to) - Number(from) + 1;
  }, 0);
}

/** Milli-cores that a quota in microseconds per period allows; 0 without one ("max", "-1" or nothing). */
export function parseCpuQuota(quota: string, period: string): number {
  const [allowed, per] = [Number(quota), Number(period)];
  return allowed > 0 && per > 0 ? Math.floor((allowed * 1000) / per) : 0;
}

/** The smallest of some limits of which 0 is none. */
export function smallestLimit(...limits: readonly number[]): number {
  const real = limits.filter((limit) => limit > 0);
  return real.length === 0 ? 0 : Math.min(...real);
}

/**
 * The limits on the top control group that this node sees. They bound every container here, and a node that is itself
 * a container or a slice of a larger machine has some, while /proc tells of the whole machine.
 */
export async function readNodeLimits(cgroups = "/sys/fs/cgroup"): Promise<NodeLimits> {
  // Which files there are depends on the version of control groups and on whether this is the real top.
  const read = (...path: string[]) => readFile(join(cgroups, ...path), "utf8").catch(() => "");
  const [max, memoryMax, cpusTwo, quota, period, memory, cpusOne] = await Promise.all([
    read("cpu.max"),
    read("memory.max"),
    read("cpuset.cpus.effective"),
    read("cpu", "cpu.cfs_quota_us"),
    read("cpu", "cpu.cfs_period_us"),
    read("memory", "memory.limit_in_bytes"),
    read("cpuset", "cpuset.effective_cpus"),
  ]);
  const [quotaTwo = "", periodTwo = ""] = max.trim().split(" ");
  return {
    cpuMilli: smallestLimit(
      parseCpuQuota(quotaTwo, periodTwo),
      parseCpuQuota(quota, period),
      countCpus(cpusTwo) * 1000,
      countCpus(cpusOne) * 1000,
    ),
    memBytes: smallestLimit(parseLimit(memoryMax), parseLimit(memory)),
  };
}
