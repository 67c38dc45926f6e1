import { api } from "../contract/api.ts";
import type { Agent } from "../contract/cluster.ts";
import { AGENT_STATUSES } from "../contract/states.ts";
import { formatCpu, parseCpu } from "../kit/cpu.ts";
import { formatSize, parseSize } from "../kit/size.ts";
import {
  argument,
  type CommandSpec,
  type FamilySpec,
  given,
  type Invocation,
  ON_OFF,
  oneOf,
} from "./command.ts";
import { usage } from "./failures.ts";
import { type Cell, slotsText } from "./text.ts";

function statusCell({ status, ready, schedulable, health }: Agent): Cell {
  const state = status === "ALIVE" && !ready ? "ALIVE (reporting)" : status;
  const text = schedulable || status === "REMOVED" ? state : `${state} (no new sessions)`;
  if (status !== "ALIVE") return { text, colour: "red" };
  const fine = ready && schedulable && !health.some(({ severity }) => severity !== "info");
  return { text, colour: fine ? "green" : "yellow" };
}

async function ls(invocation: Invocation): Promise<undefined> {
  const { options, json, show } = invocation;
  const client = await invocation.client();
  const query = given({
    group: options.text("group"),
    status: oneOf(AGENT_STATUSES, options.text("status")?.toUpperCase(), "--status"),
  });
  const items = await client.list(api.cluster.listAgents, { query });
  if (json) return void (await show.json(items));
  await show.table(
    ["NAME", "STATUS", "GROUP", { title: "SESSIONS", right: true }, "CPU FREE", "MEM FREE", "HEALTH", "SEEN"],
    items.map((agent) => [
      agent.name,
      statusCell(agent),
      agent.group,
      String(agent.sessions),
      `${formatCpu(agent.free.cpu)} of ${formatCpu(agent.capacity.cpu)}`,
      `${formatSize(agent.free.mem)} of ${formatSize(agent.capacity.mem)}`,
      agent.health.map(({ title }) => title).join("; ") || "good",
      agent.lastSeenAt === null ? "never" : show.when(agent.lastSeenAt),
    ]),
    "There are no nodes. Make a token with: berth join-token create",
  );
  return undefined;
}

async function printNode({ json, show }: Invocation, agent: Agent): Promise<undefined> {
  if (json) return void (await show.json(agent));
  const { usage: used } = agent;
  const status = statusCell(agent);
  await show.facts([
    ["Name", agent.name],
    ["Id", agent.id],
    ["Status", typeof status === "string" ? status : status.text],
    ["Group", agent.group],
    ["Sessions", String(agent.sessions)],
    ["Capacity", slotsText(agent.capacity)],
    ["Reserved", slotsText(agent.reserved)],
    ["Given out", slotsText(agent.used)],
    ["Free", slotsText(agent.free)],
    ["In use", used && `${formatCpu(used.cpu)} CPUs, ${formatSize(used.mem)}, load ${used.load1.toFixed(2)}`],
    ["Disk", used && `${formatSize(used.diskUsed)} of ${formatSize(used.diskTotal)}`],
    ["Processor", `${agent.cpuModel} (${agent.arch})`],
    ["System", `${agent.os}, kernel ${agent.kernelVersion}`],
    ["Engine", agent.engine],
    ["Host image", agent.hostEnvironment ? "yes" : "no"],
    ["Agent", agent.version],
    ["Joined", show.when(agent.joinedAt)],
    ["Last seen", agent.lastSeenAt === null ? "never" : show.when(agent.lastSeenAt)],
    ["Certificate", agent.certificateExpiresAt && `ends ${show.when(agent.certificateExpiresAt)}`],
    ...agent.health.map(({ severity, title, message }): [string, string] => [
      `Health (${severity})`,
      `${title}: ${message}`,
    ]),
  ]);
  return undefined;
}

async function showNode(invocation: Invocation): Promise<undefined> {
  const client = await invocation.client();
  const params = { agent: argument(invocation) };
  return printNode(invocation, await client.call(api.cluster.getAgent, { params }));
}

async function set(invocation: Invocation): Promise<undefined> {
  const { options } = invocation;
  const cpu = options.text("reserved-cpu");
  const mem = options.text("reserved-mem");
  const reserved = given({
    // 0 takes the reservation back; it is not an amount that anything could be given.
    cpu: cpu === undefined ? undefined : cpu === "0" ? 0 : parseCpu(cpu, "--reserved-cpu"),
    mem: mem === undefined ? undefined : parseSize(mem, "--reserved-mem"),
  });
  const body = given({
    name: options.text("name"),
    group: options.text("group"),
    schedulable: options.onOff("schedulable"),
    reserved: Object.keys(reserved).length === 0 ? undefined : reserved,
  });
  if (Object.keys(body).length === 0) throw usage("Say what to set, such as --schedulable off.");
  const client = await invocation.client();
  const params = { agent: argument(invocation) };
  return printNode(invocation, await client.call(api.cluster.updateAgent, { params, body }));
}

async function rm(invocation: Invocation): Promise<undefined> {
  const { options, json, show } = invocation;
  const client = await invocation.client();
  const agent = argument(invocation);
  const query = { force: options.flag("force") ? "true" : "false" } as const;
  await client.send(api.cluster.removeAgent, { params: { agent }, query });
  await (json ? show.json({ removed: agent }) : show.line(agent));
  return undefined;
}

const commands: readonly CommandSpec[] = [
  {
    usage: "ls",
    summary: "List nodes",
    options: [
      { flags: "--group <group>", help: "of a resource group", completes: "groups" },
      { flags: "--status <status>", help: AGENT_STATUSES.join(", ") },
    ],
    examples: ["berth node ls"],
    run: ls,
  },
  {
    usage: "show <node>",
    summary: "Show a node and its health",
    completes: "nodes",
    examples: ["berth node show gpu-1"],
    run: showNode,
  },
  {
    usage: "set <node>",
    summary: "Change a node",
    completes: "nodes",
    options: [
      { flags: "--schedulable <on|off>", help: "whether new sessions start there", choices: ON_OFF },
      { flags: "--group <group>", help: "put it into a resource group", completes: "groups" },
      { flags: "--reserved-cpu <n>", help: "CPUs kept for the node itself" },
      { flags: "--reserved-mem <size>", help: "memory kept for the node itself" },
      { flags: "--name <name>", help: "give it another name" },
    ],
    examples: [
      "berth node set gpu-1 --schedulable off",
      "berth node set gpu-1 --reserved-cpu 2 --reserved-mem 4g",
    ],
    run: set,
  },
  {
    usage: "rm <node>",
    summary: "Remove a node: its certificate is dead from then on",
    completes: "nodes",
    options: [{ flags: "-f, --force", help: "also when sessions run there; they end" }],
    examples: ["berth node rm old-box"],
    run: rm,
  },
];

export const nodeFamily: FamilySpec = { name: "node", summary: "Nodes that sessions run on", commands };
