import { api } from "../contract/api.ts";
import { parseDuration } from "../kit/duration.ts";
import { argument, type FamilySpec, given, type Invocation } from "./command.ts";

function ttlOf({ options }: Invocation): number | undefined {
  const text = options.text("ttl");
  return text === undefined ? undefined : parseDuration(text, "--ttl");
}

async function ls(invocation: Invocation): Promise<undefined> {
  const { json, show } = invocation;
  const client = await invocation.client();
  const items = await client.list(api.accounts.listTokens);
  if (json) return void (await show.json(items));
  await show.table(
    ["NAME", "CREATED", "ENDS", "LAST USED", "ID"],
    items.map(({ id, name, createdAt, expiresAt, lastUsedAt }) => [
      name,
      show.when(createdAt),
      expiresAt === null ? "never" : show.when(expiresAt),
      lastUsedAt === null ? "never" : show.when(lastUsedAt),
      id,
    ]),
    "There are no tokens. Make one with: berth token create NAME",
  );
  return undefined;
}

async function create(invocation: Invocation): Promise<undefined> {
  const { json, show } = invocation;
  const body = { name: argument(invocation), ...given({ ttl: ttlOf(invocation) }) };
  const client = await invocation.client();
  const made = await client.call(api.accounts.createToken, { body });
  if (json) return void (await show.json(made));
  // Only the token on stdout, so that it can be put into a variable.
  await show.line(made.secret);
  const { expiresAt } = made.token;
  await show.note(`It is shown this once${expiresAt === null ? "" : ` and ends ${show.when(expiresAt)}`}.`);
  return undefined;
}

async function rm(invocation: Invocation): Promise<undefined> {
  const { json, show } = invocation;
  const client = await invocation.client();
  const token = argument(invocation);
  await client.send(api.accounts.deleteToken, { params: { token } });
  await (json ? show.json({ removed: token }) : show.line(token));
  return undefined;
}

export const tokenFamily: FamilySpec = {
  name: "token",
  summary: "API tokens of one's own",
  commands: [
    { usage: "ls", summary: "List one's tokens", examples: ["berth token ls"], run: ls },
    {
      usage: "create <name>",
      summary: "Create a token; it is shown once",
      options: [{ flags: "--ttl <duration>", help: "time until it ends (default 90d)" }],
      examples: ["export BERTH_TOKEN=$(berth token create ci --ttl 30d)"],
      run: create,
    },
    { usage: "rm <token>", summary: "End a token, by name or id", examples: ["berth token rm ci"], run: rm },
  ],
};

async function joinLs(invocation: Invocation): Promise<undefined> {
  const { json, show } = invocation;
  const client = await invocation.client();
  const items = await client.list(api.cluster.listJoinTokens);
  if (json) return void (await show.json(items));
  await show.table(
    ["ID", "USES LEFT", "ENDS", "CREATED", "BY"],
    items.map(({ id, usesLeft, expiresAt, createdAt, createdBy }) => [
      id,
      String(usesLeft),
      show.when(expiresAt),
      show.when(createdAt),
      createdBy,
    ]),
    "There are no join tokens that still work. Make one with: berth join-token create",
  );
  return undefined;
}

/** The address with a word in place of a host that means another machine everywhere; undefined when it is fine. */
export function otherMachinesUrl(url: string): string | undefined {
  const { protocol, hostname, port } = new URL(url);
  const loopback = /^(?:localhost|.*\.localhost|127(?:\.\d+){3}|\[::1\])$/.test(hostname);
  return loopback ? `${protocol}//MANAGER${port === "" ? "" : `:${port}`}` : undefined;
}

async function joinCreate(invocation: Invocation): Promise<undefined> {
  const { options, json, show } = invocation;
  const body = given({
    ttl: ttlOf(invocation),
    uses: options.integer("uses"),
    group: options.text("group"),
  });
  const client = await invocation.client();
  const made = await client.call(api.cluster.createJoinToken, { body });
  if (json) return void (await show.json(made));
  await show.line(made.secret);
  const own = client.target.socket === undefined ? client.target.url : "https://localhost:7410";
  const far = otherMachinesUrl(own);
  await show.note(
    `It ends ${show.when(made.joinToken.expiresAt)}. On the new node: ` +
      `sudo ./installer/install.sh --agent --manager ${far ?? own} --token TOKEN` +
      (far === undefined ? "" : "\nWrite for MANAGER an address of the manager that the new node can reach."),
  );
  return undefined;
}

async function joinRm(invocation: Invocation): Promise<undefined> {
  const { json, show } = invocation;
  const client = await invocation.client();
  const joinToken = argument(invocation);
  await client.send(api.cluster.deleteJoinToken, { params: { joinToken } });
  await (json ? show.json({ removed: joinToken }) : show.line(joinToken));
  return undefined;
}

export const joinTokenFamily: FamilySpec = {
  name: "join-token",
  summary: "Tokens with which new nodes join",
  commands: [
    {
      usage: "ls",
      summary: "List join tokens that still work",
      examples: ["berth join-token ls"],
      run: joinLs,
    },
    {
      usage: "create",
      summary: "Create a join token; it is shown once",
      options: [
        { flags: "--ttl <duration>", help: "time until it ends (default 1h)" },
        { flags: "--uses <n>", help: "number of nodes that may join with it (default 1)" },
        { flags: "--group <group>", help: "resource group that they join", completes: "groups" },
      ],
      examples: ["berth join-token create", "berth join-token create --ttl 1d --uses 8 --group gpu"],
      run: joinCreate,
    },
    { usage: "rm <id>", summary: "End a join token", examples: ["berth join-token rm ID"], run: joinRm },
  ],
};
