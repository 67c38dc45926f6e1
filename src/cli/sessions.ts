import { api } from "../contract/api.ts";
import type { Session, SessionDetail } from "../contract/sessions.ts";
import { isFinal, SESSION_STATUSES, SESSION_TYPES, type SessionStatus } from "../contract/states.ts";
import { formatCpu } from "../kit/cpu.ts";
import { formatDuration } from "../kit/duration.ts";
import { messageOf } from "../kit/errors.ts";
import { formatSize, formatSizeShort } from "../kit/size.ts";
import { argument, type CommandSpec, given, type Invocation, oneOf } from "./command.ts";
import { EXIT_REFUSED } from "./failures.ts";
import { patienceOf, waitForEnd } from "./follow.ts";
import { bytesProgress } from "./progress.ts";
import { type Cell, commandText, ordinal, slotsText } from "./text.ts";

function statusCell({ status, queuePosition, exitCode, result }: Session): Cell {
  const position = queuePosition === null ? "" : ` (${ordinal(queuePosition)})`;
  const code = isFinal(status) && exitCode !== null ? ` (${exitCode})` : "";
  const text = `${status}${position}${code}`;
  if (status === "RUNNING" || result === "SUCCESS") return { text, colour: "green" };
  if (status === "ERROR" || result === "FAILURE") return { text, colour: "red" };
  if (isFinal(status)) return { text, colour: "dim" };
  return { text, colour: "yellow" };
}

async function ps(invocation: Invocation): Promise<undefined> {
  const { options, json, show } = invocation;
  const client = await invocation.client();
  const query = given({
    state: options.flag("all") ? ("all" as const) : options.flag("ended") ? ("ended" as const) : undefined,
    status: oneOf(SESSION_STATUSES, options.text("status")?.toUpperCase(), "--status"),
    type: oneOf(SESSION_TYPES, options.text("type"), "--type"),
    group: options.text("group"),
    agent: options.text("node"),
    tag: options.text("tag"),
    q: options.text("search"),
    owner: options.flag("all-users") ? "all" : options.text("owner"),
  });
  const items = await client.list(api.sessions.list, { query }, options.integer("limit"));
  if (json) return void (await show.json(items));
  if (options.flag("quiet")) {
    if (items.length > 0) await show.line(items.map(({ name }) => name).join("\n"));
    return undefined;
  }
  const several = new Set(items.map(({ owner }) => owner.email)).size > 1;
  await show.table(
    [
      "NAME",
      "TYPE",
      "STATUS",
      "IMAGE",
      ...(several ? ["OWNER"] : []),
      "NODE",
      { title: "CPU", right: true },
      { title: "MEM", right: true },
      "CREATED",
    ],
    items.map((session) => [
      session.name,
      session.type,
      statusCell(session),
      session.image,
      ...(several ? [session.owner.email] : []),
      session.agent ?? "-",
      formatCpu(session.slots.cpu),
      formatSizeShort(session.slots.mem),
      show.when(session.createdAt),
    ]),
    options.flag("all")
      ? "There are no sessions. Start one with: berth run -- hostname"
      : "No session is live (berth ps --all shows ended ones). Start one with: berth run -- hostname",
  );
  return undefined;
}

function statusText(session: SessionDetail): string {
  const place =
    session.queuePosition === null ? "" : `, ${ordinal(session.queuePosition)} in group ${session.group}`;
  return `${session.status}${place}${session.statusReason === null ? "" : ` (${session.statusReason})`}`;
}

async function showSession(invocation: Invocation): Promise<undefined> {
  const { json, show } = invocation;
  const client = await invocation.client();
  const session = await client.call(api.sessions.get, { params: { session: argument(invocation) } });
  if (json) return void (await show.json(session));
  const usage = session.kernels[0]?.usage ?? null;
  await show.facts([
    ["Name", session.name],
    ["Id", session.id],
    ["Type", session.type],
    ["Status", statusText(session)],
    ["Why", session.statusMessage],
    ["Pulling", session.pull && bytesProgress(session.pull.doneBytes, session.pull.totalBytes)],
    ["Exit code", session.exitCode === null ? null : String(session.exitCode)],
    ["Result", session.result === "UNDEFINED" ? null : session.result],
    ["Image", session.image],
    ["Command", session.command && commandText(session.command)],
    ["Group", session.group],
    ["Node", session.agent],
    ["Owner", session.owner.email],
    ["Resources", slotsText(session.slots)],
    [
      "In use",
      usage &&
        `${formatCpu(usage.cpu)} CPUs, ${formatSize(usage.mem)}, disk ${formatSize(usage.scratchUsed)}`,
    ],
    ["Priority", String(session.priority)],
    ["Tags", session.tags.join(", ")],
    ["Ports", session.preopenPorts.join(", ")],
    ["Environment", Object.keys(session.environment).join(", ")],
    ["Time limit", session.timeoutMs === null ? null : formatDuration(session.timeoutMs)],
    ["Starts", session.startsAt && show.when(session.startsAt)],
    ["Created", show.when(session.createdAt)],
    ["Started", session.startedAt && show.when(session.startedAt)],
    ["Ended", session.endedAt && show.when(session.endedAt)],
    ...session.notices.map((notice): [string, string] => ["Note", notice]),
  ]);
  return undefined;
}

async function history(invocation: Invocation): Promise<undefined> {
  const { json, show } = invocation;
  const client = await invocation.client();
  const { items } = await client.call(api.sessions.history, { params: { session: argument(invocation) } });
  if (json) return void (await show.json(items));
  await show.table(
    ["AT", "FROM", "TO", "REASON", "ACTOR", "MESSAGE"],
    items.map(({ at, from, to, reason, actor, message }) => [
      show.when(at),
      from ?? "-",
      to,
      reason,
      actor,
      message ?? "",
    ]),
    "Nothing has happened yet.",
  );
  return undefined;
}

async function rename(invocation: Invocation): Promise<undefined> {
  const { json, show } = invocation;
  const client = await invocation.client();
  const params = { session: argument(invocation) };
  const session = await client.call(api.sessions.update, { params, body: { name: argument(invocation, 1) } });
  await (json ? show.json(session) : show.line(session.name));
  return undefined;
}

async function rm(invocation: Invocation): Promise<number | undefined> {
  const { args, options, json, show, io, clock } = invocation;
  const client = await invocation.client();
  const query = { force: options.flag("force") ? "true" : "false" } as const;
  const ended: Session[] = [];
  let failed = 0;
  for (const session of args) {
    try {
      const now = await client.call(
        api.sessions.terminate,
        { params: { session }, query },
        { repeatable: true },
      );
      ended.push(now);
      if (!json && !options.flag("wait")) await show.line(now.name);
    } catch (error) {
      // One that is refused does not keep the others.
      if (args.length === 1) throw error;
      failed++;
      await io.err(`berth: ${session}: ${messageOf(error)}\n`);
    }
  }
  const { signal } = new AbortController();
  if (options.flag("wait")) {
    const patienceMs = patienceOf(io);
    for (const [index, { id, name }] of ended.entries()) {
      ended[index] = await waitForEnd({ client, clock, session: id, signal, patienceMs });
      if (!json) await show.line(name);
    }
  }
  if (json) await show.json(ended);
  return failed > 0 ? EXIT_REFUSED : undefined;
}

const statuses: readonly SessionStatus[] = SESSION_STATUSES;

export const sessionCommands: readonly CommandSpec[] = [
  {
    usage: "ps",
    summary: "List sessions: the live ones, unless told otherwise",
    options: [
      { flags: "-a, --all", help: "ended ones too" },
      { flags: "--ended", help: "only ended ones" },
      { flags: "--status <status>", help: statuses.join(", ") },
      { flags: "--type <type>", help: SESSION_TYPES.join(", ") },
      { flags: "--group <group>", help: "of a resource group", completes: "groups" },
      { flags: "--node <node>", help: "on a node", completes: "nodes" },
      { flags: "--tag <tag>", help: "with a tag" },
      { flags: "--search <text>", help: "with this in the name" },
      { flags: "--owner <e-mail>", help: "of a user", completes: "users" },
      { flags: "--all-users", help: "of everybody" },
      { flags: "--limit <n>", help: "at most so many, the newest first" },
      { flags: "-q, --quiet", help: "names only" },
    ],
    examples: ["berth ps", "berth ps --all --json", "berth ps --all-users --status PENDING"],
    run: ps,
  },
  {
    usage: "show <session>",
    summary: "Show a session: its state and why, place in the queue, resources, node",
    completes: "sessions",
    examples: ["berth show lab-1", "berth show lab-1 --json"],
    run: showSession,
  },
  {
    usage: "history <session>",
    summary: "Show every change of a session's state, with reason and actor",
    completes: "sessions",
    examples: ["berth history lab-1"],
    run: history,
  },
  {
    usage: "rename <session> <name>",
    summary: "Give a session another name",
    completes: "sessions",
    examples: ["berth rename lab-1 training"],
    run: rename,
  },
  {
    usage: "rm <sessions...>",
    summary: "End sessions",
    completes: "sessions",
    options: [
      { flags: "-f, --force", help: "at once, also when the node is lost" },
      { flags: "--wait", help: "return when they have ended" },
    ],
    examples: ["berth rm lab-1", "berth rm --force lab-1 lab-2", "berth rm $(berth ps -q)"],
    run: rm,
  },
];
