import type { User } from "../contract/accounts.ts";
import { api } from "../contract/api.ts";
import { ROLES } from "../contract/permissions.ts";
import { argument, type CommandSpec, type FamilySpec, given, type Invocation, oneOf } from "./command.ts";
import { usage } from "./failures.ts";
import { readNewPassword, readPassword } from "./prompt.ts";
import type { Cell } from "./text.ts";

function stateCell({ active, lockedUntil }: User): Cell {
  if (!active) return { text: "deactivated", colour: "dim" };
  return lockedUntil === null ? { text: "active", colour: "green" } : { text: "locked", colour: "red" };
}

async function ls(invocation: Invocation): Promise<undefined> {
  const { options, json, show } = invocation;
  const query = given({
    q: options.text("search"),
    role: oneOf(ROLES, options.text("role"), "--role"),
    active: options.flag("active") ? ("true" as const) : undefined,
  });
  const client = await invocation.client();
  const items = await client.list(api.accounts.listUsers, { query });
  if (json) return void (await show.json(items));
  await show.table(
    ["E-MAIL", "NAME", "ROLE", "STATE", "POLICY", "UID", "LAST SIGN-IN"],
    items.map((user) => [
      user.email,
      user.name,
      user.role,
      stateCell(user),
      user.policy,
      String(user.uid),
      user.lastLoginAt === null ? "never" : show.when(user.lastLoginAt),
    ]),
    "There are no such users. Make one with: berth user create E-MAIL",
  );
  return undefined;
}

async function print({ json, show }: Invocation, user: User): Promise<undefined> {
  if (json) return void (await show.json(user));
  await show.facts([
    ["E-mail", user.email],
    ["Name", user.name],
    ["Id", user.id],
    ["Role", user.role],
    ["State", user.active ? "active" : "deactivated"],
    ["Locked", user.lockedUntil && `until ${user.lockedUntil}`],
    ["Policy", user.policy],
    ["UID:GID", `${user.uid}:${user.gid}`],
    ["Created", show.when(user.createdAt)],
    ["Last sign-in", user.lastLoginAt === null ? "never" : show.when(user.lastLoginAt)],
  ]);
  return undefined;
}

async function showUser(invocation: Invocation): Promise<undefined> {
  const client = await invocation.client();
  return print(
    invocation,
    await client.call(api.accounts.getUser, { params: { user: argument(invocation) } }),
  );
}

function fieldsOf({ options }: Invocation) {
  return given({
    name: options.text("name"),
    role: oneOf(ROLES, options.text("role"), "--role"),
    uid: options.integer("uid"),
    gid: options.integer("gid"),
  });
}

async function create(invocation: Invocation): Promise<undefined> {
  const { io, options, json, show } = invocation;
  const fields = fieldsOf(invocation);
  const password = options.flag("password-stdin") ? await readNewPassword(io, true) : undefined;
  const body = { email: argument(invocation), ...fields, ...given({ password }) };
  const client = await invocation.client();
  const made = await client.call(api.accounts.createUser, { body });
  if (json) return void (await show.json(made));
  await show.line(made.user.email);
  // Shown this once; nothing can show it again.
  if (made.password !== null) await show.line(`Password: ${made.password}`);
  return undefined;
}

async function set(invocation: Invocation): Promise<undefined> {
  const body = { ...fieldsOf(invocation), ...given({ policy: invocation.options.text("policy") }) };
  if (Object.keys(body).length === 0) throw usage("Say what to set, such as --role admin.");
  const client = await invocation.client();
  return print(
    invocation,
    await client.call(api.accounts.updateUser, { params: { user: argument(invocation) }, body }),
  );
}

function setActive(active: boolean) {
  return async (invocation: Invocation): Promise<undefined> => {
    const { json, show } = invocation;
    const client = await invocation.client();
    const params = { user: argument(invocation) };
    const user = await client.call(api.accounts.updateUser, { params, body: { active } });
    await (json ? show.json(user) : show.line(user.email));
    return undefined;
  };
}

async function unlock(invocation: Invocation): Promise<undefined> {
  const { json, show } = invocation;
  const client = await invocation.client();
  const user = argument(invocation);
  const answer = await client.call(api.accounts.unlockUser, { params: { user } });
  await (json ? show.json(answer) : show.line(user));
  return undefined;
}

async function passwd(invocation: Invocation): Promise<undefined> {
  const { io, options, json, show, args } = invocation;
  const [user] = args;
  const fromStdin = options.flag("password-stdin");
  const client = await invocation.client();
  if (user === undefined) {
    if (fromStdin)
      throw usage("Name a user with --password-stdin; one's own password is changed on a terminal.");
    const current = await readPassword(io, false, "Current password: ");
    const next = await readNewPassword(io, false);
    await client.send(api.accounts.changePassword, { body: { current, next } });
    await (json ? show.json({ changed: true }) : show.line("The password is changed."));
    return undefined;
  }
  const body = fromStdin ? { password: await readNewPassword(io, true) } : {};
  const answer = await client.call(api.accounts.resetPassword, { params: { user }, body });
  if (json) return void (await show.json(answer));
  await show.line(
    answer.password === null ? `The password of ${user} is changed.` : `Password: ${answer.password}`,
  );
  return undefined;
}

const commands: readonly CommandSpec[] = [
  {
    usage: "ls",
    summary: "List users",
    options: [
      { flags: "--search <text>", help: "with this in e-mail or name" },
      { flags: "--role <role>", help: ROLES.join(", "), choices: ROLES },
      { flags: "--active", help: "without deactivated ones" },
    ],
    examples: ["berth user ls"],
    run: ls,
  },
  {
    usage: "show <user>",
    summary: "Show a user",
    completes: "users",
    examples: ["berth user show kim@lab.example"],
    run: showUser,
  },
  {
    usage: "create <e-mail>",
    summary: "Create a user; a random password is shown once",
    options: [
      { flags: "--name <name>", help: "name for people" },
      { flags: "--role <role>", help: ROLES.join(", "), choices: ROLES },
      { flags: "--uid <n>", help: "user id inside sessions" },
      { flags: "--gid <n>", help: "group id inside sessions" },
      { flags: "--password-stdin", help: "read the password from stdin" },
    ],
    examples: ["berth user create kim@lab.example --name 'Kim' --role user"],
    run: create,
  },
  {
    usage: "set <user>",
    summary: "Change a user",
    completes: "users",
    options: [
      { flags: "--name <name>", help: "name for people" },
      { flags: "--role <role>", help: ROLES.join(", "), choices: ROLES },
      { flags: "--policy <policy>", help: "resource policy" },
      { flags: "--uid <n>", help: "user id inside sessions" },
      { flags: "--gid <n>", help: "group id inside sessions" },
    ],
    examples: ["berth user set kim@lab.example --role admin"],
    run: set,
  },
  {
    usage: "deactivate <user>",
    summary: "Lock a user out: sign-ins, tokens, open streams and terminals end; sessions run on",
    completes: "users",
    examples: ["berth user deactivate kim@lab.example"],
    run: setActive(false),
  },
  {
    usage: "activate <user>",
    summary: "Let a deactivated user in again",
    completes: "users",
    examples: ["berth user activate kim@lab.example"],
    run: setActive(true),
  },
  {
    usage: "unlock <user>",
    summary: "Forget a user's failed sign-ins",
    completes: "users",
    examples: ["sudo berth user unlock admin@berth.local"],
    run: unlock,
  },
  {
    usage: "passwd [user]",
    summary: "Change one's own password, or set another user's",
    completes: "users",
    options: [
      { flags: "--password-stdin", help: "read the new password from stdin; else a random one is made" },
    ],
    examples: ["berth user passwd", "berth user passwd kim@lab.example"],
    run: passwd,
  },
];

export const userFamily: FamilySpec = { name: "user", summary: "Users", commands };
