import { api } from "../contract/api.ts";
import { BerthError, isBerthError } from "../kit/errors.ts";
import { createFrameDecoder, encodeFrame, FRAME_CHUNK_BYTES, type Frame } from "../kit/frames.ts";
import { argument, type CommandSpec, type Invocation } from "./command.ts";
import { createCredit } from "./credit.ts";
import { readEnvironment } from "./env-file.ts";
import { EXIT_BERTH, EXIT_INTERRUPTED, usage } from "./failures.ts";
import type { Io, SignalName } from "./io.ts";
import { clean } from "./text.ts";
import type { WebSocketLink } from "./websocket.ts";

const FORWARDED: readonly SignalName[] = ["SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT"];
/** So many Ctrl-C that the command does not heed leave it. */
const LEAVE_AFTER = 3;

function commandOf({ args, tail }: Invocation): readonly string[] {
  const words = tail ?? args.slice(1);
  const extra = tail === undefined ? undefined : args[1];
  if (extra !== undefined) throw usage(`"${extra}" is not expected here: the command goes behind "--".`);
  if (tail === undefined && words[0]?.startsWith("-")) {
    throw usage(`Options go before the session's name: berth exec ${words[0]} NAME -- COMMAND…`);
  }
  if (words.length === 0) throw usage("There is no command. Write: berth exec NAME -- COMMAND…");
  return words;
}

/** Copies stdin to the command, as fast as it grants room. */
async function pumpStdin(
  io: Io,
  link: WebSocketLink,
  credit: ReturnType<typeof createCredit>,
  signal: AbortSignal,
): Promise<void> {
  for await (const chunk of io.stdin()) {
    for (let at = 0; at < chunk.length; ) {
      const room = await credit.take(Math.min(chunk.length - at, FRAME_CHUNK_BYTES));
      if (signal.aborted) return;
      await link.send(encodeFrame({ type: "stdin", bytes: chunk.subarray(at, at + room) }));
      at += room;
    }
    if (signal.aborted) return;
  }
  await link.send(encodeFrame({ type: "stdin-eof" }));
}

/** Reads frames until the command has ended; gives its exit code, undefined where it had none. */
async function readOutput(
  io: Io,
  link: WebSocketLink,
  onWindow: (bytes: number) => void,
): Promise<number | undefined> {
  const decoder = createFrameDecoder();
  const take = async (frame: Frame): Promise<number | undefined> => {
    if (frame.type === "stdout" || (frame.type === "log" && frame.stream === "stdout"))
      await io.out(frame.bytes);
    else if (frame.type === "stderr" || frame.type === "log") await io.err(frame.bytes);
    else if (frame.type === "window") onWindow(frame.credit);
    else if (frame.type === "error") throw new BerthError(frame.code, frame.message);
    else if (frame.type === "exit") {
      if (frame.reason !== undefined) await io.err(`berth: ${clean(frame.reason)}\n`);
      return frame.code;
    }
    return undefined;
  };
  for await (const message of link.messages()) {
    for (const frame of decoder.push(message)) {
      const code = await take(frame);
      if (code !== undefined) return code;
    }
  }
  return undefined;
}

/** Raw mode, sizes and signals of this side; the result puts all of it back. */
function bindTerminal(io: Io, link: WebSocketLink, tty: boolean, leave: () => void): () => void {
  const send = (frame: Frame) => {
    link.send(encodeFrame(frame)).catch(() => {});
  };
  const stops: (() => void)[] = [];
  if (tty && io.stdinTty) {
    io.setRaw(true);
    stops.push(() => io.setRaw(false));
    // The terminal must be put back whatever ends the process.
    for (const name of ["SIGTERM", "SIGHUP"] as const) stops.push(io.onSignal(name, leave));
  } else {
    let interrupts = 0;
    for (const name of FORWARDED) {
      stops.push(
        io.onSignal(name, () => {
          send({ type: "signal", signal: name });
          if (++interrupts >= LEAVE_AFTER) leave();
        }),
      );
    }
  }
  if (tty) stops.push(io.onSignal("SIGWINCH", () => send({ type: "resize", ...io.size() })));
  return () => {
    for (const stop of stops) stop();
  };
}

async function exec(invocation: Invocation): Promise<number> {
  const { io, options } = invocation;
  const argv = commandOf(invocation);
  const [tty, stdin] = [options.flag("tty"), options.flag("interactive")];
  const workdir = options.text("workdir");
  const params = {
    argv,
    tty,
    stdin,
    ...(tty ? io.size() : {}),
    environment: {
      ...(tty && io.env.TERM ? { TERM: io.env.TERM } : {}),
      ...readEnvironment(options.many("env-file"), options.many("env"), io.env),
    },
    ...(workdir === undefined ? {} : { workdir }),
  };
  const client = await invocation.client();
  const link = await client.socket(api.sessions.exec, { params: { session: argument(invocation) } });
  const over = new AbortController();
  const credit = createCredit();
  const leave = () => {
    over.abort();
    link.close();
  };
  let stdinFault: unknown;
  const restore = bindTerminal(io, link, tty, leave);
  try {
    await link.send(encodeFrame({ type: "open", params }));
    if (stdin) {
      pumpStdin(io, link, credit, over.signal).catch((error: unknown) => {
        stdinFault = error;
      });
    }
    const code = await readOutput(io, link, credit.grant);
    if (code !== undefined) return code;
    if (over.signal.aborted) return EXIT_INTERRUPTED;
    throw new BerthError("connection-lost", "The connection ended before the command did.");
  } catch (error) {
    // Cut while stdin failed: that failure is the reason.
    if (over.signal.aborted) return EXIT_INTERRUPTED;
    if (isBerthError(error) && error.code === "connection-lost" && stdinFault instanceof BerthError)
      throw stdinFault;
    throw error;
  } finally {
    over.abort();
    restore();
    link.close();
  }
}

export const execCommand: CommandSpec = {
  usage: "exec <session> [command...]",
  summary: "Run a command in a running session and exit with its code",
  failCode: EXIT_BERTH,
  tail: true,
  completes: "running",
  options: [
    { flags: "-i, --interactive", help: "pass stdin on" },
    { flags: "-t, --tty", help: "give the command a terminal" },
    {
      flags: "-e, --env <name=value>",
      help: "environment variable; a name alone takes the value it has here",
      many: true,
    },
    { flags: "--env-file <file>", help: "file with a variable on each line", many: true, completes: "files" },
    { flags: "-w, --workdir <dir>", help: "folder to run it in" },
  ],
  examples: [
    "berth exec lab-1 -- nvidia-smi",
    "berth exec -it lab-1 -- bash",
    "tar c data | berth exec -i lab-1 -- tar x -C /home/work",
  ],
  run: exec,
};

async function attach(invocation: Invocation): Promise<number> {
  const { io } = invocation;
  const client = await invocation.client();
  const link = await client.socket(api.sessions.attach, { params: { session: argument(invocation) } });
  let left = false;
  const leave = () => {
    left = true;
    link.close();
  };
  const stops = [io.onSignal("SIGINT", leave), io.onSignal("SIGTERM", leave)];
  try {
    const code = await readOutput(io, link, () => {});
    // Leaving is the normal end of watching, and the session goes on.
    return left ? 0 : (code ?? 0);
  } catch (error) {
    if (left) return 0;
    throw error;
  } finally {
    for (const stop of stops) stop();
    link.close();
  }
}

export const attachCommand: CommandSpec = {
  usage: "attach <session>",
  summary: "Watch the output of a session's main process from now on; Ctrl-C leaves it",
  failCode: EXIT_BERTH,
  completes: "running",
  examples: ["berth attach night-job"],
  run: attach,
};
