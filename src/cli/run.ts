import { api } from "../contract/api.ts";
import type { SessionDetail } from "../contract/sessions.ts";
import { BerthError, isBerthError, messageOf } from "../kit/errors.ts";
import type { Client } from "./client.ts";
import { type CommandSpec, given, type Invocation } from "./command.ts";
import { EXIT_BERTH, EXIT_INTERRUPTED, usage } from "./failures.ts";
import { followLogs, type LogSink, patienceOf, waitForEnd } from "./follow.ts";
import { createInterrupt, type Interrupt } from "./interrupt.ts";
import type { Io } from "./io.ts";
import { exitCodeOf, lastWords } from "./outcome.ts";
import { createLineSink } from "./prefix.ts";
import { createStatusLine, type StatusLine, showProgress } from "./progress.ts";
import { SESSION_OPTIONS, sessionRequest } from "./session-options.ts";

const EXIT_SIGTERM = 143;

/** The argument vector, or the one string for a shell. */
function commandOf({ args, tail, options }: Invocation): string[] | string {
  const shell = options.text("shell");
  const words = tail ?? args;
  if (tail !== undefined && args.length > 0) {
    throw usage(`"${args[0]}" is not expected here: the whole command goes behind "--".`);
  }
  if (shell !== undefined) {
    if (words.length > 0) throw usage("Give the command behind -- or with --shell, not both.");
    return shell;
  }
  if (words.length === 0) throw usage("There is no command. Write: berth run [options] -- COMMAND…");
  return [...words];
}

function rawSink(io: Io, line: StatusLine): LogSink {
  return {
    write: (stream, bytes) => {
      line.close();
      return stream === "stdout" ? io.out(bytes) : io.err(bytes);
    },
    gap: (dropped) => {
      line.close();
      return io.err(`berth: ${dropped} bytes of the output are not there any more\n`);
    },
  };
}

async function terminate(client: Client, sessions: readonly SessionDetail[]): Promise<void> {
  await Promise.all(
    sessions.map(({ id }) =>
      client.call(api.sessions.terminate, { params: { session: id } }, { repeatable: true }),
    ),
  );
}

/** Writes the output of one session until it has ended. */
async function followOne(
  invocation: Invocation,
  client: Client,
  session: SessionDetail,
  interrupt: Interrupt,
  several: boolean,
): Promise<SessionDetail> {
  const { io, clock, show } = invocation;
  const { signal } = interrupt;
  const line = createStatusLine(io);
  const done = new AbortController();
  const raw = rawSink(io, line);
  const lines = several ? createLineSink(`${session.name}: `, raw) : undefined;
  const common = { client, clock, session: session.id, signal, patienceMs: patienceOf(io) };
  if (!several) {
    void showProgress(invocation, client, session.id, line, AbortSignal.any([signal, done.signal]));
  }
  try {
    await followLogs({
      ...common,
      sink: lines ?? raw,
      follow: true,
      onLost: () => {
        if (line.shown) show.note("berth: the manager does not answer; trying again").catch(() => {});
      },
    });
    await lines?.end();
    return await waitForEnd(common);
  } finally {
    done.abort();
    line.close();
  }
}

/** Ctrl-C ends the sessions, a second one leaves them. */
function interruptFor(
  io: Io,
  client: Client,
  created: () => readonly SessionDetail[] | undefined,
): Interrupt {
  return createInterrupt(io, (leave) => {
    const sessions = created();
    const tell = (text: string) => {
      io.err(`${text}\n`).catch(() => {});
    };
    tell("berth: ending the session; press Ctrl-C again to leave it");
    if (sessions === undefined) return;
    terminate(client, sessions).catch((error: unknown) => {
      tell(`berth: it could not be ended: ${messageOf(error)}`);
      leave();
    });
  });
}

function interruptedCode(interrupt: Interrupt): number | undefined {
  const signal = interrupt.received();
  return signal === undefined ? undefined : signal === "SIGINT" ? EXIT_INTERRUPTED : EXIT_SIGTERM;
}

async function create(
  invocation: Invocation,
  client: Client,
  signal?: AbortSignal,
): Promise<readonly SessionDetail[]> {
  const command = commandOf(invocation);
  const body = { ...sessionRequest(invocation, "batch"), command };
  const { items } = await client.call(api.sessions.create, { body }, given({ signal }));
  for (const notice of new Set(items.flatMap((item) => item.notices)))
    await invocation.show.note(`berth: ${notice}`);
  return items;
}

async function run(invocation: Invocation): Promise<number> {
  const { io, options, json, show } = invocation;
  // What is wrong with the command line itself is told before anything is asked of a manager.
  commandOf(invocation);
  const client = await invocation.client();
  if (options.flag("detach")) {
    const items = await create(invocation, client);
    if (json) await show.json(items.length === 1 ? items[0] : items);
    else await show.line(items.map(({ name }) => name).join("\n"));
    return 0;
  }
  let created: readonly SessionDetail[] | undefined;
  const interrupt = interruptFor(io, client, () => created);
  try {
    created = await create(invocation, client, interrupt.signal);
    const sessions = created;
    if (interrupt.received() !== undefined) await terminate(client, sessions);
    const several = sessions.length > 1;
    const ends = await Promise.all(
      sessions.map((session) => followOne(invocation, client, session, interrupt, several)),
    );
    for (const end of ends) {
      const words = json ? JSON.stringify(end) : lastWords(end);
      if (words !== undefined) await show.note(words);
    }
    return interruptedCode(interrupt) ?? ends.map(exitCodeOf).find((code) => code !== 0) ?? 0;
  } catch (error) {
    return await leftOrFailed(invocation, client, created ?? [], interrupt, error);
  } finally {
    interrupt.stop();
  }
}

async function leftOrFailed(
  { io }: Invocation,
  client: Client,
  sessions: readonly SessionDetail[],
  interrupt: Interrupt,
  error: unknown,
): Promise<number> {
  if (interrupt.signal.aborted) {
    const names = sessions.map(({ name }) => name);
    const look = names.length > 0 ? `berth show ${names[0]}` : "berth ps";
    await io.err(`berth: left it; look at it with "${look}"\n`);
    return interruptedCode(interrupt) ?? EXIT_INTERRUPTED;
  }
  if (isBerthError(error) && error.code === "output-closed") {
    // Like a program in a pipe whose reader has gone: nobody would ever see the rest.
    await terminate(client, sessions);
    throw new BerthError("output-closed", error.message);
  }
  const [first] = sessions;
  if (isBerthError(error) && error.code === "output-failed" && first !== undefined) {
    // The work itself is not at fault, and its output is kept.
    const sentence = `${error.message} The session goes on; read its output with "berth logs ${first.name}".`;
    throw new BerthError("output-failed", sentence, { cause: error });
  }
  throw error;
}

export const runCommand: CommandSpec = {
  usage: "run [command...]",
  summary: "Run a command in a session of its own and exit with its code",
  failCode: EXIT_BERTH,
  tail: true,
  options: [
    ...SESSION_OPTIONS,
    { flags: "--timeout <duration>", help: "end it (exit code 124) after running for so long: 10m" },
    { flags: "--start-at <time>", help: "not before this time: 2027-01-31T08:00, +30m" },
    { flags: "--shell <string>", help: "run this string with /bin/sh -c, instead of a command behind --" },
    { flags: "--entrypoint", help: "give the command to the image's entry point" },
    { flags: "-d, --detach", help: "print the name and do not wait" },
  ],
  examples: [
    "berth run -- hostname",
    "berth run --image python:3.13-slim --cpu 4 --mem 8g -- python train.py",
    "berth run --detach --timeout 2h --name night-job -- ./train.sh",
    "berth run --shell 'nproc; free -m'",
  ],
  run,
};
