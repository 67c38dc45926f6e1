import { api } from "../contract/api.ts";
import type { Client } from "./client.ts";
import type { CommandSpec, Completes, Invocation } from "./command.ts";

const MOST = 200;
/** A shell that waits longer for names than this is a nuisance. */
const WAIT_MS = 2000;

const SOURCES: Readonly<Record<Exclude<Completes, "files">, (client: Client) => Promise<string[]>>> = {
  sessions: async (client) =>
    (await client.list(api.sessions.list, { query: { state: "all" } }, MOST)).map(({ name }) => name),
  running: async (client) =>
    (await client.list(api.sessions.list, { query: { status: "RUNNING" } }, MOST)).map(({ name }) => name),
  images: async (client) => (await client.list(api.images.list, {}, MOST)).map(({ reference }) => reference),
  nodes: async (client) => (await client.list(api.cluster.listAgents, {}, MOST)).map(({ name }) => name),
  groups: async (client) => (await client.list(api.cluster.listGroups, {}, MOST)).map(({ name }) => name),
  users: async (client) => (await client.list(api.accounts.listUsers, {}, MOST)).map(({ email }) => email),
};

async function complete(invocation: Invocation): Promise<undefined> {
  const kind = invocation.args[0] ?? "";
  const source = Object.entries(SOURCES).find(([name]) => name === kind)?.[1];
  if (source === undefined) return undefined;
  try {
    const client = await invocation.client();
    const late = Promise.withResolvers<string[]>();
    invocation.clock.after(WAIT_MS, () => late.resolve([]));
    const names = await Promise.race([source(client), late.promise]);
    await invocation.show.line([...new Set(names)].join("\n"));
  } catch {
    // A completion that fails says nothing: an error in the middle of a command line helps nobody.
  }
  return undefined;
}

/** What the completion scripts ask for names. */
export const completeCommand: CommandSpec = {
  usage: "__complete <kind>",
  summary: "Print names for completion",
  hidden: true,
  examples: [],
  run: complete,
};
