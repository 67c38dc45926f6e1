import { readFileSync } from "node:fs";

export type Ulimit = { readonly Name: string; readonly Soft: number; readonly Hard: number };

const UNLIMITED = -1;
// The soft limit stays moderate: old programs close every possible descriptor before each exec.
const FILES_SOFT = 65_536;
const FILES_HARD = 1_048_576;
const CAP_SYS_RESOURCE = 24n;

function hardLimit(limits: string, name: string): number {
  const hard = new RegExp(`^${name} +\\S+ +(\\S+)`, "m").exec(limits)?.[1] ?? "unlimited";
  return hard === "unlimited" ? UNLIMITED : Number(hard);
}

const least = (wish: number, hard: number): number => {
  if (hard === UNLIMITED) return wish;
  return wish === UNLIMITED ? hard : Math.min(wish, hard);
};

/**
 * Limits of a session's processes, from the texts of /proc/self/limits and /proc/self/status of the agent. Where the node
 * may not raise limits (itself a container, such as a development machine), its own are the most it can give, and an
 * engine that is asked for more starts nothing at all.
 */
export function sessionUlimits(limits: string, status: string): Ulimit[] {
  const capabilities = BigInt(`0x${/^CapEff:\s*([0-9a-f]+)$/m.exec(status)?.[1] ?? "0"}`);
  const mayRaise = ((capabilities >> CAP_SYS_RESOURCE) & 1n) === 1n;
  const most = (name: string, wish: number) => (mayRaise ? wish : least(wish, hardLimit(limits, name)));
  const files = most("Max open files", FILES_HARD);
  // RDMA and GPU libraries pin memory; the memory limit bounds it.
  const locked = most("Max locked memory", UNLIMITED);
  return [
    { Name: "nofile", Soft: Math.min(FILES_SOFT, files), Hard: files },
    { Name: "memlock", Soft: locked, Hard: locked },
    { Name: "core", Soft: 0, Hard: most("Max core file size", UNLIMITED) },
  ];
}

/** The limits that sessions of this node get. */
export function nodeUlimits(): Ulimit[] {
  return sessionUlimits(readFileSync("/proc/self/limits", "utf8"), readFileSync("/proc/self/status", "utf8"));
}
