import { z } from "zod";
import type { Agent, HealthItem } from "../../contract/cluster.ts";
import type { Severity } from "../../contract/states.ts";
import type { WallMs } from "../../kit/clock.ts";
import { NO_SLOTS, type ResourceSlots, subtractSlots } from "../../kit/slots.ts";
import {
  type NodeInfo,
  type UsageReport,
  type HealthItem as WireHealthItem,
  Severity as WireSeverity,
} from "../../wire/generated/berth.ts";
import type { AgentRecord, AgentRow } from "./repository.ts";

/** What a node told of itself; columns of older rows may lack what came later. */
const nodeInfo = z.object({
  hostname: z.string().default(""),
  arch: z.string().default(""),
  os: z.string().default(""),
  kernelVersion: z.string().default(""),
  engine: z.string().default(""),
  engineVersion: z.string().default(""),
  cpuModel: z.string().default(""),
  hostEnvironment: z.boolean().default(false),
});
export type StoredNode = z.infer<typeof nodeInfo>;

export function readNode(text: string): StoredNode {
  return nodeInfo.parse(JSON.parse(text));
}

const ARCHS: Readonly<Record<string, string>> = { x86_64: "amd64", x64: "amd64", aarch64: "arm64" };

/** The architecture as images name it. */
export function archOf(arch: string): string {
  return ARCHS[arch] ?? arch;
}

/** The columns that a node's own words fill. */
export function nodeColumns(node: NodeInfo | undefined, row: AgentRow) {
  if (node === undefined) return {};
  const own = { reserved_cpu: node.reservedCpuMilli, reserved_mem: node.reservedMemBytes };
  return {
    node: JSON.stringify({ ...node, arch: archOf(node.arch) }),
    cap_cpu: node.cpuMilli,
    cap_mem: node.memBytes,
    ...(row.reserved_by_admin === 1 ? {} : own),
  };
}

const SEVERITIES: Readonly<Record<WireSeverity, Severity>> = {
  [WireSeverity.SEVERITY_UNSPECIFIED]: "info",
  [WireSeverity.UNRECOGNIZED]: "info",
  [WireSeverity.INFO]: "info",
  [WireSeverity.WARNING]: "warning",
  [WireSeverity.ERROR]: "error",
};

const healthItems = z.array(
  z.object({
    code: z.string(),
    severity: z.enum(["info", "warning", "error"]),
    title: z.string(),
    message: z.string(),
    since: z.string(),
  }),
);

export function readHealth(text: string): HealthItem[] {
  return healthItems.parse(JSON.parse(text));
}

/** What an agent finds wrong with its node, as it is stored and shown. */
export function healthFromWire(items: readonly WireHealthItem[], now: WallMs): HealthItem[] {
  return items.map(({ code, severity, title, message, sinceMs }) => ({
    code,
    severity: SEVERITIES[severity] ?? "info",
    title,
    message,
    since: new Date(sinceMs > 0 ? sinceMs : now).toISOString(),
  }));
}

/** The node's clock and ours may differ by this much before it is told. */
export const SKEW_LIMIT_MS = 60_000;

/** What only the manager can see to be wrong. */
export function ownHealth(facts: {
  readonly row: AgentRow;
  readonly lostSince: WallMs | null;
  readonly skewMs: number;
  readonly now: WallMs;
}): HealthItem[] {
  const { row, lostSince, skewMs, now } = facts;
  const items: HealthItem[] = [];
  if (row.status === "LOST") {
    items.push({
      code: "agent-lost",
      severity: "error",
      title: "The node does not answer",
      message: `${row.name} has not been heard of. Its sessions may still run. Check the machine, its network and the agent's service.`,
      since: new Date(lostSince ?? row.last_seen_at ?? row.joined_at).toISOString(),
    });
  }
  if (Math.abs(skewMs) > SKEW_LIMIT_MS) {
    const seconds = Math.round(Math.abs(skewMs) / 1000);
    items.push({
      code: "clock-skew",
      severity: "warning",
      title: "The node's clock is wrong",
      message: `The clock of ${row.name} is ${seconds} s ${skewMs > 0 ? "ahead of" : "behind"} the manager's. Set up time synchronisation on both.`,
      since: new Date(now).toISOString(),
    });
  }
  return items;
}

export function capacityOf(row: AgentRow): ResourceSlots {
  return { cpu: row.cap_cpu, mem: row.cap_mem };
}

export function reservedOf(row: AgentRow): ResourceSlots {
  return { cpu: row.reserved_cpu, mem: row.reserved_mem };
}

/** What occupies a node, counted from the kernels that do. */
export type Occupancy = { readonly used: ResourceSlots; readonly sessions: number };
export const NO_OCCUPANCY: Occupancy = { used: NO_SLOTS, sessions: 0 };

/** What is held in memory of an agent. */
export type Live = {
  readonly ready: boolean;
  readonly lastSeen: WallMs | null;
  readonly usage: UsageReport | undefined;
  readonly health: readonly HealthItem[];
};

function usageView(report: UsageReport | undefined): Agent["usage"] {
  if (report?.node === undefined) return null;
  const { cpuMilli, memBytes, diskUsedBytes, diskTotalBytes, load1 } = report.node;
  return {
    at: new Date(report.wallMs).toISOString(),
    cpu: cpuMilli,
    mem: memBytes,
    diskUsed: diskUsedBytes,
    diskTotal: diskTotalBytes,
    load1,
  };
}

const isoOf = (at: WallMs | null) => (at === null ? null : new Date(at).toISOString());
const atLeastZero = (slots: ResourceSlots): ResourceSlots => ({
  ...Object.fromEntries(Object.entries(slots).map(([name, amount]) => [name, Math.max(0, amount)])),
  cpu: Math.max(0, slots.cpu),
  mem: Math.max(0, slots.mem),
});

export function agentView(row: AgentRecord, live: Live, occupancy: Occupancy): Agent {
  const node = readNode(row.node);
  const capacity = capacityOf(row);
  const reserved = reservedOf(row);
  const { used, sessions } = occupancy;
  return {
    id: row.id,
    name: row.name,
    group: row.group_name,
    status: row.status,
    schedulable: row.schedulable === 1,
    ready: live.ready,
    version: row.version,
    arch: node.arch,
    os: node.os,
    kernelVersion: node.kernelVersion,
    engine: [node.engine, node.engineVersion].filter((part) => part !== "").join(" "),
    cpuModel: node.cpuModel,
    hostEnvironment: node.hostEnvironment,
    capacity,
    reserved,
    used,
    free: atLeastZero(subtractSlots(subtractSlots(capacity, reserved), used)),
    sessions,
    health: [...live.health],
    usage: usageView(live.usage),
    joinedAt: new Date(row.joined_at).toISOString(),
    lastSeenAt: isoOf(live.lastSeen ?? row.last_seen_at),
    certificateExpiresAt: isoOf(row.cert_expires_at),
  };
}

/** A name for a node that joins: what its machine is called, made fit and unique with a number. */
export function nameForNode(hostname: string, taken: ReadonlySet<string>): string {
  const fit = hostname
    .replace(/[^A-Za-z0-9_.-]+/g, "-")
    .replace(/^[^A-Za-z0-9]+/, "")
    .slice(0, 56);
  const base = fit === "" ? "node" : fit;
  if (!taken.has(base)) return base;
  for (let number = 2; ; number++) {
    const name = `${base}-${number}`;
    if (!taken.has(name)) return name;
  }
}
