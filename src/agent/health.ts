import { statfs } from "node:fs/promises";
import type { Clock } from "../kit/clock.ts";
import { formatDuration } from "../kit/duration.ts";
import { formatSize } from "../kit/size.ts";
import { type HealthItem, type HealthReport, Severity } from "../wire/generated/berth.ts";
import type { EngineProblem } from "./engine/engine.ts";

export type Problem = Pick<HealthItem, "code" | "severity" | "title" | "message">;

/** Part of the data folder's disk that should be free. */
const LEAST_FREE = 0.1;
const SKEW_MS = 60_000;

const TITLES: Readonly<Record<EngineProblem["code"], string>> = {
  "no-firewall": "Sessions are not shut off from the host",
  "no-live-restore": "Restarting the engine ends sessions",
  "scratch-directory-mode": "Scratch disks have no exact size",
  "engine-refused": "The engine refused something",
};

export function engineProblem({ code, message }: EngineProblem): Problem {
  return { code, severity: Severity.WARNING, title: TITLES[code], message };
}

export const ENGINE_UNREACHABLE: Problem = {
  code: "engine-unreachable",
  severity: Severity.ERROR,
  title: "The container engine does not answer",
  message:
    "Sessions that run are not touched, and none can be started or stopped. Look at the engine on the node, for " +
    "example with `systemctl status docker`.",
};

/** Says so when little is left on the disk of the data folder. */
export function diskProblem(
  dataDir: string,
  disk: { freeBytes: number; totalBytes: number },
): Problem | undefined {
  const { freeBytes, totalBytes } = disk;
  if (totalBytes === 0 || freeBytes / totalBytes >= LEAST_FREE) return undefined;
  return {
    code: "disk-low",
    severity: Severity.WARNING,
    title: "Little disk space is left",
    message:
      `The disk of ${dataDir} has ${formatSize(freeBytes)} of ${formatSize(totalBytes)} left: sessions may meet a ` +
      "full disk before their own limit. Free some room on it.",
  };
}

/** Says so when the node's clock is far from the manager's; `skewMs` is the manager's minus the node's. */
export function skewProblem(skewMs: number): Problem | undefined {
  if (Math.abs(skewMs) <= SKEW_MS) return undefined;
  const side = skewMs > 0 ? "behind" : "ahead of";
  return {
    code: "clock-skew",
    severity: Severity.WARNING,
    title: "The node's clock is wrong",
    message: `It is ${formatDuration(Math.abs(skewMs))} ${side} the manager's. Set both clocks by NTP.`,
  };
}

export interface Health {
  /** Looks anew; reports when something changed. */
  check(): Promise<void>;
  noteSkew(skewMs: number): void;
  report(): HealthReport;
}

/** Keeps the list of what is wrong with the node, each with the time since when. */
export function createHealth(options: {
  readonly dataDir: string;
  readonly clock: Clock;
  readonly engineReachable: () => boolean;
  readonly engineProblems: () => readonly EngineProblem[];
  readonly onChange: () => void;
}): Health {
  const { dataDir, clock, engineReachable, engineProblems, onChange } = options;
  let items: readonly HealthItem[] = [];
  let skewMs = 0;

  async function disk(): Promise<Problem | undefined> {
    const { bsize, blocks, bavail } = await statfs(dataDir);
    return diskProblem(dataDir, { freeBytes: bavail * bsize, totalBytes: blocks * bsize });
  }

  async function check(): Promise<void> {
    const problems = [
      engineReachable() ? undefined : ENGINE_UNREACHABLE,
      ...engineProblems().map(engineProblem),
      await disk().catch(() => undefined),
      skewProblem(skewMs),
    ].filter((problem) => problem !== undefined);
    const since = new Map(items.map((item) => [item.code, item.sinceMs]));
    const before = items;
    items = problems.map((problem) => ({ ...problem, sinceMs: since.get(problem.code) ?? clock.wall() }));
    if (!Bun.deepEquals(before, items)) onChange();
  }

  return {
    check,
    noteSkew: (value) => {
      skewMs = value;
    },
    report: () => ({ items: [...items] }),
  };
}
