import type { z } from "zod";
import { api } from "../contract/api.ts";
import type { policy, policyLimits } from "../contract/cluster.ts";
import { parseCpu } from "../kit/cpu.ts";
import { formatDuration, parseDuration } from "../kit/duration.ts";
import { parseSize } from "../kit/size.ts";
import { argument, type FamilySpec, given, type Invocation, parseInteger } from "./command.ts";
import { usage } from "./failures.ts";
import { slotsText } from "./text.ts";

type Policy = z.infer<typeof policy>;
type Limits = z.infer<typeof policyLimits>;

function limitText(limits: Limits): string {
  const number = (title: string, value: number | null) => (value === null ? [] : [`${title} ${value}`]);
  const slots = (title: string, value: Readonly<Record<string, number>> | null) =>
    value === null ? [] : [`${title} ${slotsText(value)}`];
  const parts = [
    ...number("sessions", limits.maxConcurrentSessions),
    ...number("waiting", limits.maxPendingSessions),
    ...number("containers a session", limits.maxContainersPerSession),
    ...number("priority", limits.maxPriority),
    ...slots("in all", limits.totalSlots),
    ...slots("waiting", limits.maxPendingSlots),
    ...(limits.maxSessionLifetimeMs === null
      ? []
      : [`lifetime ${formatDuration(limits.maxSessionLifetimeMs)}`]),
  ];
  return parts.join("; ") || "no limits";
}

async function print({ json, show }: Invocation, items: readonly Policy[]): Promise<undefined> {
  if (json) return void (await show.json(items));
  await show.table(
    ["NAME", "LIMITS"],
    items.map(({ name, isDefault, limits }) => [isDefault ? `${name} (default)` : name, limitText(limits)]),
    "There are no resource policies.",
  );
  return undefined;
}

async function ls(invocation: Invocation): Promise<undefined> {
  const client = await invocation.client();
  return print(invocation, await client.list(api.cluster.listPolicies));
}

function orNone<T>(text: string | undefined, parse: (text: string) => T): T | null | undefined {
  if (text === undefined) return undefined;
  return text === "none" ? null : parse(text);
}

/** `cpu=4,mem=8g,cuda.device=1`. */
export function parseSlots(text: string, field: string): Record<string, number> {
  const pairs = text.split(",").map((part): [string, number] => {
    const [name = "", value = ""] = part.trim().split("=", 2);
    if (name === "" || value === "") throw usage(`${field}: write cpu=4,mem=8g, not "${text}".`);
    if (name === "cpu") return [name, value === "0" ? 0 : parseCpu(value, field)];
    return [name, name === "mem" || name === "shm" ? parseSize(value, field) : parseInteger(value, field)];
  });
  return Object.fromEntries(pairs);
}

async function set(invocation: Invocation): Promise<undefined> {
  const { options, json, show } = invocation;
  const count = (name: string) => orNone(options.text(name), (text) => parseInteger(text, `--${name}`));
  const slots = (name: string) => orNone(options.text(name), (text) => parseSlots(text, `--${name}`));
  const limits = given({
    maxConcurrentSessions: count("sessions"),
    maxPendingSessions: count("pending"),
    maxContainersPerSession: count("containers"),
    maxPriority: count("priority"),
    totalSlots: slots("total"),
    maxPendingSlots: slots("pending-total"),
    maxSessionLifetimeMs: orNone(options.text("lifetime"), (text) => parseDuration(text, "--lifetime")),
  });
  if (Object.keys(limits).length === 0) throw usage("Say which limit to set, such as --sessions 4.");
  const client = await invocation.client();
  const changed = await client.call(api.cluster.updatePolicy, {
    params: { policy: argument(invocation) },
    body: { limits },
  });
  if (json) return void (await show.json(changed));
  return print(invocation, [changed]);
}

export const policyFamily: FamilySpec = {
  name: "policy",
  summary: "Resource policies: what a user may hold",
  commands: [
    { usage: "ls", summary: "List resource policies", examples: ["berth policy ls"], run: ls },
    {
      usage: "set <policy>",
      summary: "Change limits; none takes one away, 0 allows nothing",
      options: [
        { flags: "--sessions <n>", help: "live sessions" },
        { flags: "--pending <n>", help: "waiting sessions" },
        { flags: "--containers <n>", help: "containers of a session" },
        { flags: "--priority <n>", help: "highest priority" },
        { flags: "--total <slots>", help: "held in all: cpu=16,mem=64g" },
        { flags: "--pending-total <slots>", help: "asked for by waiting sessions: cpu=16,mem=64g" },
        { flags: "--lifetime <duration>", help: "longest life of a session: 7d" },
      ],
      examples: [
        "berth policy set default --sessions 4 --total cpu=16,mem=64g",
        "berth policy set default --sessions none",
      ],
      run: set,
    },
  ],
};
