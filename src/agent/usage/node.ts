import { readFile, statfs } from "node:fs/promises";
import { arch, cpus, hostname, loadavg, release } from "node:os";
import {
  type CpuTimes,
  isOutwards,
  parseCpuTimes,
  parseMeminfo,
  parseNetDev,
  parseOsRelease,
} from "./proc.ts";

/** What a node is; it changes with a reboot at most. */
export type NodeFacts = {
  readonly hostname: string;
  /** As images name it: amd64, arm64. */
  readonly arch: string;
  readonly os: string;
  readonly kernelVersion: string;
  readonly cpuModel: string;
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

/** Measures the node itself. `dataDir` tells which file system counts as its disk. */
export function createNodeMeter({
  dataDir,
  proc = "/proc",
}: {
  readonly dataDir: string;
  readonly proc?: string;
}): NodeMeter {
  let before: CpuTimes = { busy: 0, total: 0 };
  const read = (path: string) => readFile(path, "utf8");

  async function disk() {
    const { bsize, blocks, bavail, bfree } = await statfs(dataDir);
    // What is kept back for root counts neither as used nor as free.
    return { used: (blocks - bfree) * bsize, total: (blocks - bfree + bavail) * bsize };
  }

  return {
    facts: async () => {
      const [memory, os, { total }] = await Promise.all([
        read(`${proc}/meminfo`),
        read("/etc/os-release").catch(() => ""),
        disk(),
      ]);
      const processors = cpus();
      return {
        hostname: hostname(),
        arch: OCI_ARCH[arch()] ?? arch(),
        os: parseOsRelease(os),
        kernelVersion: release(),
        cpuModel: processors[0]?.model ?? "",
        cpuMilli: processors.length * 1000,
        memBytes: parseMeminfo(memory).totalBytes,
        diskBytes: total,
      };
    },
    sample: async () => {
      const [stat, memory, network, space] = await Promise.all([
        read(`${proc}/stat`),
        read(`${proc}/meminfo`),
        read(`${proc}/net/dev`),
        disk(),
      ]);
      const now = parseCpuTimes(stat);
      const cpuMilli = cpuShare(before, now) * cpus().length * 1000;
      before = now;
      const { totalBytes, availableBytes } = parseMeminfo(memory);
      const { rxBytes, txBytes } = parseNetDev(network, isOutwards);
      return {
        cpuMilli: Math.round(cpuMilli),
        memBytes: totalBytes - availableBytes,
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
