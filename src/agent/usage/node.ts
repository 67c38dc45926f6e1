import { readFile, statfs } from "node:fs/promises";
import { arch, cpus, hostname, loadavg, release } from "node:os";
import { cpu, mem } from "systeminformation";
import { readNodeLimits, smallestLimit } from "./limits.ts";
import { type CpuTimes, isOutwards, parseCpuTimes, parseNetDev, parseOsRelease } from "./proc.ts";

/** What a node is; it changes with a reboot at most. */
export type NodeFacts = {
  readonly hostname: string;
  /** As images name it: amd64, arm64. */
  readonly arch: string;
  readonly os: string;
  readonly kernelVersion: string;
  readonly cpuModel: string;
  /** What containers here may use: of the hardware, less what the node's own control group keeps from it. */
  readonly cpuMilli: number;
  readonly memBytes: number;
  /** Size of the file system that holds the agent's data. */
  readonly diskBytes: number;
};

export type NodeSample = {
  /** Milli-cores in use since the sample before; since the start of the node in the first one. */
  readonly cpuMilli: number;
  readonly memBytes: number;
  readonly diskUsedBytes: number;
  readonly diskTotalBytes: number;
  readonly load1: number;
  /** Bytes since the start of the node. */
  readonly netRxBytes: number;
  readonly netTxBytes: number;
};

export interface NodeMeter {
  facts(): Promise<NodeFacts>;
  sample(): Promise<NodeSample>;
}

const OCI_ARCH: Readonly<Record<string, string>> = { x64: "amd64" };

type Processor = { readonly model: string; readonly cores: number };

async function readProcessor(): Promise<Processor> {
  const { manufacturer, brand, cores } = await cpu();
  return { model: `${manufacturer} ${brand}`.trim() || (cpus()[0]?.model ?? ""), cores };
}

/**
 * Measures the node itself. `dataDir` tells which file system counts as its disk; the other folders are for tests.
 *
 * Processor and memory come from systeminformation. Not its `osInfo`: it asks for the full host name synchronously,
 * which held up the whole process for 10 s where no name server answered (measured). Not its `fsSize`: it lists every
 * mount, so a dead NFS server holds it up. Nor, each second, its load and traffic: they take 0.5 s and processes, and
 * count bridges too.
 */
export function createNodeMeter({
  dataDir,
  proc = "/proc",
  cgroups = "/sys/fs/cgroup",
}: {
  readonly dataDir: string;
  readonly proc?: string;
  readonly cgroups?: string;
}): NodeMeter {
  let before: CpuTimes = { busy: 0, total: 0 };
  // Starts three processes (20 to 40 ms), so it is asked once.
  let processor: Promise<Processor> | undefined;
  const read = (path: string) => readFile(path, "utf8");

  async function disk() {
    const { bsize, blocks, bavail, bfree } = await statfs(dataDir);
    // What is kept back for root counts neither as used nor as free.
    return { used: (blocks - bfree) * bsize, total: (blocks - bfree + bavail) * bsize };
  }

  return {
    facts: async () => {
      processor ??= readProcessor();
      const [{ model, cores }, memory, limits, os, { total }] = await Promise.all([
        processor,
        mem(),
        readNodeLimits(cgroups),
        read("/etc/os-release").catch(() => ""),
        disk(),
      ]);
      return {
        hostname: hostname(),
        arch: OCI_ARCH[arch()] ?? arch(),
        os: parseOsRelease(os),
        kernelVersion: release(),
        cpuModel: model,
        cpuMilli: smallestLimit(cores * 1000, limits.cpuMilli),
        memBytes: smallestLimit(memory.total, limits.memBytes),
        diskBytes: total,
      };
    },
    sample: async () => {
      const [stat, memory, network, space] = await Promise.all([
        read(`${proc}/stat`),
        mem(),
        read(`${proc}/net/dev`),
        disk(),
      ]);
      const now = parseCpuTimes(stat);
      const cpuMilli = cpuShare(before, now) * cpus().length * 1000;
      before = now;
      const { rxBytes, txBytes } = parseNetDev(network, isOutwards);
      return {
        cpuMilli: Math.round(cpuMilli),
        memBytes: memory.total - memory.available,
        diskUsedBytes: space.used,
        diskTotalBytes: space.total,
        load1: loadavg()[0] ?? 0,
        netRxBytes: rxBytes,
        netTxBytes: txBytes,
      };
    },
  };
}

/** Part of the processors' time between two looks that was not idle, from 0 to 1. */
export function cpuShare(before: CpuTimes, now: CpuTimes): number {
  const total = now.total - before.total;
  return total <= 0 ? 0 : Math.min(Math.max((now.busy - before.busy) / total, 0), 1);
}
