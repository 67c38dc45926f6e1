import { api } from "../contract/api.ts";
import type { Image } from "../contract/images.ts";
import { formatCpu } from "../kit/cpu.ts";
import { BerthError } from "../kit/errors.ts";
import { formatSize } from "../kit/size.ts";
import type { Client } from "./client.ts";
import { argument, type CommandSpec, type FamilySpec, given, type Invocation } from "./command.ts";
import { EXIT_INTERRUPTED } from "./failures.ts";
import { createInterrupt } from "./interrupt.ts";
import { bytesProgress, createStatusLine, POLL_MS } from "./progress.ts";
import { slotsText } from "./text.ts";

async function ls(invocation: Invocation): Promise<undefined> {
  const { options, json, show } = invocation;
  const client = await invocation.client();
  const query = given({
    q: options.text("search"),
    pulled: options.flag("pulled") ? ("true" as const) : undefined,
  });
  const items = await client.list(api.images.list, { query });
  if (json) return void (await show.json(items));
  await show.table(
    [
      "IMAGE",
      "TITLE",
      "PULLED",
      { title: "SIZE", right: true },
      { title: "MIN CPU", right: true },
      { title: "MIN MEM", right: true },
    ],
    items.map((image) => [
      image.reference,
      image.title,
      stateText(image),
      image.sizeBytes === null ? "-" : formatSize(image.sizeBytes),
      image.minimum.cpu > 0 ? formatCpu(image.minimum.cpu) : "-",
      image.minimum.mem > 0 ? formatSize(image.minimum.mem) : "-",
    ]),
    "There are no such images. Add one with: berth image add REFERENCE",
  );
  return undefined;
}

function stateText({ nodes, pulled, kind }: Image): string {
  const pulling = nodes.filter(({ state }) => state === "pulling").length;
  const present = nodes.filter(({ state }) => state === "present").length;
  if (pulling > 0) return `pulling on ${pulling}`;
  if (!pulled) return "no";
  return kind === "host" || present === 0 ? "yes" : `on ${present} ${present === 1 ? "node" : "nodes"}`;
}

async function showImage(invocation: Invocation): Promise<undefined> {
  const { json, show } = invocation;
  const client = await invocation.client();
  const image = await client.call(api.images.get, { params: { image: argument(invocation) } });
  if (json) return void (await show.json(image));
  await show.facts([
    ["Image", image.reference],
    ["Title", image.title],
    ["About", image.description],
    ["Id", image.id],
    ["Digest", image.digest],
    ["Architecture", image.arch],
    ["Size", image.sizeBytes === null ? null : formatSize(image.sizeBytes)],
    ["Minimum", slotsText(image.minimum)],
    [
      "Services",
      image.servicePorts
        .map(({ name, protocol, ports }) => `${name} (${protocol} ${ports.join(", ")})`)
        .join(", "),
    ],
    ...image.nodes.map((node): [string, string] => [
      `On ${node.agent}`,
      [
        node.state,
        node.phase,
        node.state === "pulling" ? bytesProgress(node.doneBytes, node.totalBytes) : "",
        node.message,
      ]
        .filter(Boolean)
        .join(", "),
    ]),
  ]);
  return undefined;
}

async function add(invocation: Invocation): Promise<undefined> {
  const { options, json, show } = invocation;
  const client = await invocation.client();
  const body = {
    reference: argument(invocation),
    ...given({ title: options.text("title"), description: options.text("description") }),
  };
  const image = await client.call(api.images.add, { body });
  await (json ? show.json(image) : show.line(image.reference));
  return undefined;
}

async function rm(invocation: Invocation): Promise<undefined> {
  const { options, json, show } = invocation;
  const client = await invocation.client();
  const image = argument(invocation);
  const query = { nodes: options.flag("nodes") ? "true" : "false" } as const;
  await client.send(api.images.remove, { params: { image }, query });
  await (json ? show.json({ removed: image }) : show.line(image));
  return undefined;
}

function pullText(image: Image): string {
  const parts = image.nodes
    .filter(({ state }) => state === "pulling")
    .map(({ agent, phase, doneBytes, totalBytes }) =>
      [agent, phase ?? "pulling", bytesProgress(doneBytes, totalBytes)].filter(Boolean).join(" "),
    );
  return `${image.reference}: ${parts.join(" | ")}`;
}

async function untilPulled(
  { clock, io }: Invocation,
  client: Client,
  first: Image,
  signal: AbortSignal,
): Promise<Image> {
  const line = createStatusLine(io);
  try {
    let image = first;
    while (image.nodes.some(({ state }) => state === "pulling")) {
      line.update(pullText(image));
      await clock.sleep(POLL_MS, signal);
      image = await client.call(api.images.get, { params: { image: first.id } }, { signal, attempts: 20 });
    }
    return image;
  } finally {
    line.clear();
  }
}

async function pull(invocation: Invocation): Promise<number | undefined> {
  const { io, options, json, show } = invocation;
  const client = await invocation.client();
  const params = { image: argument(invocation) };
  if (options.flag("cancel")) {
    const image = await client.call(api.images.cancelPull, { params });
    await (json ? show.json(image) : show.line(image.reference));
    return undefined;
  }
  const agents = options.many("node");
  const body = agents.length === 0 ? {} : { agents: [...agents] };
  const started = await client.call(api.images.pull, { params, body });
  const interrupt = createInterrupt(io, (leave) => leave());
  try {
    const image = options.flag("no-wait")
      ? started
      : await untilPulled(invocation, client, started, interrupt.signal);
    const failed = image.nodes.find(
      ({ state, agent }) => state === "failed" && (agents.length === 0 || agents.includes(agent)),
    );
    if (failed !== undefined) {
      const why = failed.message ?? "the pull failed";
      throw new BerthError("image-pull-failed", `${image.reference} on ${failed.agent}: ${why}`);
    }
    await (json ? show.json(image) : show.line(image.reference));
    return undefined;
  } catch (error) {
    if (!interrupt.signal.aborted) throw error;
    await show.note(`berth: the pull goes on; "berth image pull --cancel ${params.image}" ends it`);
    return EXIT_INTERRUPTED;
  } finally {
    interrupt.stop();
  }
}

const commands: readonly CommandSpec[] = [
  {
    usage: "ls",
    summary: "List images",
    options: [
      { flags: "--search <text>", help: "with this in name or title" },
      { flags: "--pulled", help: "only those that a node has" },
    ],
    examples: ["berth image ls"],
    run: ls,
  },
  {
    usage: "show <image>",
    summary: "Show an image and which nodes have it",
    completes: "images",
    examples: ["berth image show host"],
    run: showImage,
  },
  {
    usage: "add <reference>",
    summary: "Add an image; nothing is downloaded yet",
    options: [
      { flags: "--title <text>", help: "a title for people" },
      { flags: "--description <text>", help: "what it is for" },
    ],
    examples: ["berth image add python:3.13-slim --title 'Python 3.13'"],
    run: add,
  },
  {
    usage: "rm <image>",
    summary: "Remove an image from the list",
    completes: "images",
    options: [{ flags: "--nodes", help: "and from the nodes" }],
    examples: ["berth image rm python:3.12-slim --nodes"],
    run: rm,
  },
  {
    usage: "pull <image>",
    summary: "Download an image to nodes, all ready ones by default",
    completes: "images",
    options: [
      { flags: "--node <node>", help: "only on this node", many: true, completes: "nodes" },
      { flags: "--no-wait", help: "do not wait until it is there" },
      { flags: "--cancel", help: "end pulls that are under way" },
    ],
    examples: ["berth image pull python:3.13-slim", "berth image pull --node gpu-1 vllm/vllm-openai:latest"],
    run: pull,
  },
];

export const imageFamily: FamilySpec = { name: "image", summary: "Images that sessions run in", commands };
