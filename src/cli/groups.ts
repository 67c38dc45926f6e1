import { api } from "../contract/api.ts";
import type { Group } from "../contract/cluster.ts";
import { PLACEMENTS, SCHEDULERS, SESSION_TYPES, type SessionType } from "../contract/states.ts";
import { formatDuration, parseDuration } from "../kit/duration.ts";
import {
  argument,
  type CommandSpec,
  type FamilySpec,
  given,
  type Invocation,
  ON_OFF,
  type OptionSpec,
  oneOf,
} from "./command.ts";
import { usage } from "./failures.ts";
import { slotsText } from "./text.ts";

const PHASES = ["SCHEDULED", "PREPARING", "PULLING", "CREATING", "TERMINATING"] as const;
type Deadlines = Partial<Record<(typeof PHASES)[number], number | null>>;

function readTypes(text: string | undefined): SessionType[] | undefined {
  if (text === undefined) return undefined;
  return text.split(",").flatMap((word) => oneOf(SESSION_TYPES, word.trim(), "--types") ?? []);
}

/** `none` takes a limit away. */
function durationOrNone(text: string | undefined, field: string): number | null | undefined {
  if (text === undefined) return undefined;
  return text === "none" ? null : parseDuration(text, field);
}

function readDeadlines(words: readonly string[]): Deadlines | undefined {
  if (words.length === 0) return undefined;
  const deadlines: Deadlines = {};
  for (const word of words) {
    const [name = "", value = ""] = word.split("=", 2);
    const phase = oneOf(PHASES, name.toUpperCase(), "--deadline");
    if (phase === undefined || value === "") throw usage(`--deadline: write PHASE=DURATION, not "${word}".`);
    deadlines[phase] = value === "default" ? null : parseDuration(value, "--deadline");
  }
  return deadlines;
}

function fieldsOf({ options }: Invocation) {
  return given({
    description: options.text("description"),
    active: options.onOff("active"),
    public: options.onOff("public"),
    scheduler: oneOf(SCHEDULERS, options.text("scheduler"), "--scheduler"),
    placement: oneOf(PLACEMENTS, options.text("placement"), "--placement"),
    allowedTypes: readTypes(options.text("types")),
    pendingTimeout: durationOrNone(options.text("pending-timeout"), "--pending-timeout"),
    deadlines: readDeadlines(options.many("deadline")),
    isDefault: options.flag("default") ? (true as const) : undefined,
  });
}

async function print({ json, show }: Invocation, group: Group): Promise<undefined> {
  if (json) return void (await show.json(group));
  const deadlines = PHASES.map((phase) => [phase, group.deadlines[phase]] as const)
    .flatMap(([phase, ms]) => (ms === null ? [] : [`${phase} ${formatDuration(ms)}`]))
    .join(", ");
  await show.facts([
    ["Name", group.name],
    ["Id", group.id],
    ["About", group.description],
    ["Default", group.isDefault ? "yes" : "no"],
    ["Active", group.active ? "yes" : "no"],
    ["Public", group.public ? "yes" : "no"],
    ["Scheduler", group.scheduler],
    ["Placement", group.placement],
    ["Types", group.allowedTypes.join(", ")],
    ["Waits at most", group.pendingTimeoutMs === null ? "no limit" : formatDuration(group.pendingTimeoutMs)],
    ["Deadlines", deadlines],
    ["Nodes", String(group.agents)],
    ["Capacity", slotsText(group.capacity)],
    ["Given out", slotsText(group.used)],
    ["Waiting", String(group.pending)],
  ]);
  return undefined;
}

async function ls(invocation: Invocation): Promise<undefined> {
  const { json, show } = invocation;
  const client = await invocation.client();
  const items = await client.list(api.cluster.listGroups);
  if (json) return void (await show.json(items));
  await show.table(
    [
      "NAME",
      "STATE",
      "SCHEDULER",
      "PLACEMENT",
      { title: "NODES", right: true },
      { title: "WAITING", right: true },
      "GIVEN OUT",
      "CAPACITY",
    ],
    items.map((group) => [
      group.isDefault ? `${group.name} (default)` : group.name,
      group.active ? "active" : "inactive",
      group.scheduler,
      group.placement,
      String(group.agents),
      String(group.pending),
      slotsText(group.used),
      slotsText(group.capacity),
    ]),
    "There are no resource groups. Make one with: berth group create NAME",
  );
  return undefined;
}

async function showGroup(invocation: Invocation): Promise<undefined> {
  const client = await invocation.client();
  return print(
    invocation,
    await client.call(api.cluster.getGroup, { params: { group: argument(invocation) } }),
  );
}

async function create(invocation: Invocation): Promise<undefined> {
  const body = { name: argument(invocation), ...fieldsOf(invocation) };
  const client = await invocation.client();
  return print(invocation, await client.call(api.cluster.createGroup, { body }));
}

async function set(invocation: Invocation): Promise<undefined> {
  const body = { ...fieldsOf(invocation), ...given({ name: invocation.options.text("name") }) };
  if (Object.keys(body).length === 0) throw usage("Say what to set, such as --scheduler lifo.");
  const client = await invocation.client();
  return print(
    invocation,
    await client.call(api.cluster.updateGroup, { params: { group: argument(invocation) }, body }),
  );
}

async function rm(invocation: Invocation): Promise<undefined> {
  const { json, show } = invocation;
  const client = await invocation.client();
  const group = argument(invocation);
  await client.send(api.cluster.removeGroup, { params: { group } });
  await (json ? show.json({ removed: group }) : show.line(group));
  return undefined;
}

const FIELDS: readonly OptionSpec[] = [
  { flags: "--description <text>", help: "what it is for" },
  { flags: "--scheduler <name>", help: SCHEDULERS.join(", "), choices: SCHEDULERS },
  { flags: "--placement <name>", help: PLACEMENTS.join(", "), choices: PLACEMENTS },
  { flags: "--types <types>", help: "session types that it takes, with commas" },
  { flags: "--pending-timeout <duration>", help: "longest time to wait: 1h, or none" },
  {
    flags: "--deadline <phase=duration>",
    help: "longest time in a phase: PULLING=30m, or default",
    many: true,
  },
  { flags: "--active <on|off>", help: "whether its sessions start", choices: ON_OFF },
  { flags: "--public <on|off>", help: "off: administrators alone see and use it", choices: ON_OFF },
  { flags: "--default", help: "take sessions that name no group" },
];

const commands: readonly CommandSpec[] = [
  { usage: "ls", summary: "List resource groups", examples: ["berth group ls"], run: ls },
  {
    usage: "show <group>",
    summary: "Show a resource group",
    completes: "groups",
    examples: ["berth group show default"],
    run: showGroup,
  },
  {
    usage: "create <name>",
    summary: "Create a resource group",
    options: FIELDS,
    examples: ["berth group create gpu --placement concentrated"],
    run: create,
  },
  {
    usage: "set <group>",
    summary: "Change a resource group",
    completes: "groups",
    options: [...FIELDS, { flags: "--name <name>", help: "give it another name" }],
    examples: ["berth group set gpu --scheduler lifo --pending-timeout 12h"],
    run: set,
  },
  {
    usage: "rm <group>",
    summary: "Remove a resource group without nodes and live sessions",
    completes: "groups",
    examples: ["berth group rm gpu"],
    run: rm,
  },
];

export const groupFamily: FamilySpec = {
  name: "group",
  summary: "Resource groups: nodes, and how their queue is served",
  commands,
};
