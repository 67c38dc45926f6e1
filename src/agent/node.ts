import { readFileSync } from "node:fs";
import { VERSION } from "../kit/version.ts";
import type { NodeInfo } from "../wire/generated/berth.ts";
import type { AgentConfig } from "./config.ts";
import type { Engine, NodeCapabilities } from "./engine/engine.ts";
import { readProcess } from "./engine/processes.ts";
import type { EngineWatch } from "./kernels/engine-watch.ts";
import { smallestLimit } from "./usage/limits.ts";
import type { NodeMeter } from "./usage/node.ts";

/** Changes with each boot of the node; empty where the system does not tell. */
export function readBootId(): string {
  try {
    return readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim();
  } catch {
    return "";
  }
}

const TICKS_PER_SECOND = 100;

/** How long a process has been running, in ms, counted by the node's steady clock; undefined when it is not there. */
export function processAge(pid: number): number | undefined {
  const found = readProcess(pid);
  if (found === undefined) return undefined;
  const uptime = Number.parseFloat(readFileSync("/proc/uptime", "utf8"));
  return Math.max(0, uptime * 1000 - (found.startTicks * 1000) / TICKS_PER_SECOND);
}

export interface NodeFactsSource {
  /** What the node is now; facts of an engine that does not answer are as known last. */
  read(): Promise<NodeInfo>;
  /** As it was read last; undefined before the first time. */
  last(): NodeInfo | undefined;
}

/** Describes the node to the manager. */
export function createNodeFacts(options: {
  readonly config: AgentConfig;
  readonly engine: Engine;
  readonly engineWatch: EngineWatch;
  readonly meter: NodeMeter;
}): NodeFactsSource {
  const { config, engine, engineWatch, meter } = options;
  let capabilities: NodeCapabilities | undefined;
  let last: NodeInfo | undefined;

  async function read(): Promise<NodeInfo> {
    const facts = await meter.facts();
    if (engineWatch.reachable()) capabilities = await engine.capabilities().catch(() => capabilities);
    const info = engineWatch.info();
    // An engine refuses containers beyond what it sees itself, which may be less than the node has.
    const cpuMilli = smallestLimit(facts.cpuMilli, (info?.cpus ?? 0) * 1000);
    const memBytes = smallestLimit(facts.memBytes, info?.memBytes ?? 0);
    last = {
      hostname: config.name,
      arch: facts.arch,
      os: facts.os,
      kernelVersion: facts.kernelVersion,
      engine: info?.name ?? "docker",
      engineVersion: info?.version ?? "",
      cgroupVersion: info?.cgroupVersion ?? 0,
      cpuMilli,
      memBytes,
      reservedCpuMilli: Math.min(config.reservedCpu, cpuMilli),
      reservedMemBytes: Math.min(config.reservedMem, memBytes),
      hostEnvironment: capabilities?.hostEnvironment ?? false,
      loopScratch: capabilities?.loopScratch ?? false,
      liveRestore: info?.liveRestore ?? false,
      diskBytes: facts.diskBytes,
      cpuModel: facts.cpuModel,
      executableVersion: VERSION,
    };
    return last;
  }

  return { read, last: () => last };
}
