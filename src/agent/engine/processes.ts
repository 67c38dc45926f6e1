import { readdirSync, readFileSync, readlinkSync } from "node:fs";
import type { Clock } from "../../kit/clock.ts";

/** A process of the node, named so that a reused number is not mistaken for it. */
export type ProcessId = { readonly pid: number; readonly startTicks: number };

export type ProcessStat = ProcessId & {
  readonly parent: number;
  readonly session: number;
  /** Whether it belongs to a terminal. */
  readonly terminal: boolean;
  readonly state: string;
};

/** Reads a line of /proc/PID/stat; undefined when it is none. The name in it may hold blanks and brackets. */
export function parseStat(line: string): ProcessStat | undefined {
  const end = line.lastIndexOf(")");
  const pid = Number.parseInt(line, 10);
  const fields = line
    .slice(end + 2)
    .trimEnd()
    .split(" ");
  if (end < 0 || Number.isNaN(pid) || fields.length < 20) return undefined;
  return {
    pid,
    state: fields[0] ?? "",
    parent: Number(fields[1]),
    session: Number(fields[3]),
    terminal: fields[4] !== "0",
    startTicks: Number(fields[19]),
  };
}

/** What runs as `pid` now; undefined when nothing does. Zombies count as nothing. */
export function readProcess(pid: number): ProcessStat | undefined {
  try {
    const stat = parseStat(readFileSync(`/proc/${pid}/stat`, "latin1"));
    return stat === undefined || stat.state === "Z" || stat.state === "X" ? undefined : stat;
  } catch {
    return undefined;
  }
}

/** Identity of the process namespace that `pid` lives in; undefined when it has ended. */
export function processNamespace(pid: number): string | undefined {
  try {
    return readlinkSync(`/proc/${pid}/ns/pid`);
  } catch {
    return undefined;
  }
}

/** Everything that runs in a process namespace; nothing for the agent's own, which is the node's. */
export function processesIn(namespace: string): ProcessStat[] {
  if (namespace === processNamespace(process.pid)) return [];
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name) && processNamespace(Number(name)) === namespace)
    .flatMap((name) => readProcess(Number(name)) ?? []);
}

/** Of `all`, those that `root` started, directly or not, and those of the terminal session that it leads. */
export function familyOf(root: number, all: readonly ProcessStat[]): ProcessStat[] {
  const family = new Set([root]);
  for (let before = 0; before !== family.size; ) {
    before = family.size;
    for (const { pid, parent, session } of all) {
      if (family.has(parent) || session === root) family.add(pid);
    }
  }
  return all.filter(({ pid }) => family.has(pid));
}

/** Sends a signal if that very process still runs. */
export function signalProcess(
  { pid, startTicks }: ProcessId,
  signal: "SIGTERM" | "SIGKILL" | "SIGHUP",
): void {
  if (readProcess(pid)?.startTicks !== startTicks) return;
  try {
    process.kill(pid, signal);
  } catch {
    // It ended between the look and the signal.
  }
}

const LOOK_MS = 50;

/**
 * Ends processes: SIGTERM (and SIGHUP in a terminal, where shells heed nothing else), after `graceMs` SIGKILL. `find` is asked again each time, so that what was started
 * meanwhile is ended too. Resolves with whether nothing is left, at most two seconds after the SIGKILL.
 */
export async function endProcesses(
  find: () => readonly ProcessStat[],
  graceMs: number,
  clock: Clock,
): Promise<boolean> {
  const asked = new Set<string>();
  const rounds = [
    { signal: "SIGTERM", forMs: graceMs },
    { signal: "SIGKILL", forMs: 2_000 },
  ] as const;
  for (const { signal, forMs } of rounds) {
    const until = clock.mono() + forMs;
    for (let left = find(); ; left = find()) {
      if (left.length === 0) return true;
      if (clock.mono() >= until && signal === "SIGTERM") break;
      for (const one of left) {
        const key = `${signal} ${one.pid} ${one.startTicks}`;
        if (!asked.has(key)) {
          if (one.terminal) signalProcess(one, "SIGHUP");
          signalProcess(one, signal);
        }
        asked.add(key);
      }
      if (clock.mono() >= until) break;
      await clock.sleep(LOOK_MS);
    }
  }
  return find().length === 0;
}
