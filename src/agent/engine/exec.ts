import type { Duplex } from "node:stream";
import type Docker from "dockerode";
import type { Clock } from "../../kit/clock.ts";
import { BerthError } from "../../kit/errors.ts";
import { type EngineClient, hasStatus, wordsOf } from "./client.ts";
import type { ExecHandle, ExecRequest, OutputChunk } from "./engine.ts";
import { outputOf } from "./output.ts";
import {
  endProcesses,
  familyOf,
  type ProcessStat,
  processesIn,
  processNamespace,
  readProcess,
} from "./processes.ts";

/** Time between SIGTERM and SIGKILL for a command whose reader has gone. */
const END_GRACE_MS = 2_000;
const LOOK_MS = 20;
/** How long the engine may take to tell the process number or the exit code of what it just started or ended. */
const SETTLE_MS = 10_000;

const REFUSED_START = /^OCI runtime exec failed: /;
const REFUSED_FOLDER = /chdir to cwd \(.*\) set in config\.json failed: |cwd must be an absolute path/i;

type ExecState = { readonly running: boolean; readonly pid: number; readonly exitCode: number | null };

function isDuplex(stream: NodeJS.ReadableStream | Duplex): stream is Duplex {
  return "write" in stream && "destroy" in stream;
}

/**
 * Starts a command in a running container, as its user and with its environment. Throws `kernel-not-running` when the
 * container does not run. A command that does not exist ends with exit code 127, one that may not be run, or whose
 * folder cannot be entered, with 126.
 */
export async function startExec(
  client: EngineClient,
  clock: Clock,
  request: ExecRequest,
): Promise<ExecHandle> {
  const exec = await createExec(client, request);

  const inspect = async (): Promise<ExecState> => {
    const state = await client.call("inspect exec", (_, abortSignal) => exec.inspect({ abortSignal }));
    return { running: state.Running, pid: state.Pid, exitCode: state.ExitCode };
  };

  const setSize = (cols: number, rows: number) =>
    client.call("resize exec", (_, abortSignal) => exec.resize({ h: rows, w: cols, abortSignal }));
  // Asked for before the start: the engine keeps it until the command has its terminal, a millisecond later.
  const early = request.tty ? setSize(request.cols, request.rows) : Promise.resolve();
  early.catch(() => {});

  const stream = await client.call("start exec", (_, abortSignal) =>
    exec.start({ hijack: true, stdin: request.stdin, Tty: request.tty, abortSignal }),
  );
  if (!isDuplex(stream)) throw new BerthError("engine-refused", "The engine gave no stream for the command.");
  // An error also ends the reading side, where it is seen; without a listener it would end the agent.
  stream.on("error", () => {});

  let refusal: Refusal | undefined;
  let leader: Leader | undefined;
  const started = settled(clock, inspect, (state) => state.pid > 0 || !state.running).then((state) => {
    leader = leaderOf(state.pid);
    return state;
  });
  started.catch(() => {});

  const resize = async (cols: number, rows: number): Promise<void> => {
    if (!request.tty || cols < 1 || rows < 1) return;
    await started;
    await first;
    await setSize(cols, rows).catch((error: unknown) => {
      // It has ended meanwhile; older engines answer 500 for that.
      if (!hasStatus(error, 404) && !hasStatus(error, 409) && !hasStatus(error, 500)) throw error;
    });
  };
  // An engine that does not keep it refuses it, and is asked again.
  const first = early.catch(() => started.then(() => setSize(request.cols, request.rows))).catch(() => {});

  const over = Promise.withResolvers<void>();
  stream.once("close", over.resolve);
  stream.once("end", over.resolve);
  const exited = over.promise.then(async () => {
    const state = await settled(clock, inspect, (seen) => !seen.running && seen.exitCode !== null);
    // Only a command that never got a process can have been refused.
    return (state.pid === 0 ? refusal?.exitCode : undefined) ?? state.exitCode ?? 0;
  });
  exited.catch(() => {});

  return {
    execId: exec.id,
    output: execOutput(stream, request, started, (seen) => {
      refusal = seen;
    }),
    write: (bytes) => writeTo(stream, bytes),
    closeStdin: () => {
      if (!stream.writableEnded) stream.end();
    },
    resize,
    end: async () => {
      await started.catch(() => {});
      const root = leader;
      if (root !== undefined) {
        await endProcesses(() => familyNow(root), END_GRACE_MS, clock);
      }
      stream.destroy();
      over.resolve();
    },
    exited,
  };
}

/** Ends a command by its id alone, when nobody holds its stream any more; one that has ended is no error. */
export async function endExec(client: EngineClient, clock: Clock, execId: string): Promise<void> {
  try {
    const state = await client.call("inspect exec", (docker, abortSignal) =>
      docker.getExec(execId).inspect({ abortSignal }),
    );
    const leader = state.Running ? leaderOf(state.Pid) : undefined;
    if (leader !== undefined) await endProcesses(() => familyNow(leader), END_GRACE_MS, clock);
  } catch (error) {
    if (!hasStatus(error, 404)) throw error;
  }
}

async function createExec(client: EngineClient, request: ExecRequest): Promise<Docker.Exec> {
  const env = Object.entries(request.environment).map(([name, value]) => `${name}=${value}`);
  try {
    return await client.call("create exec", (docker, abortSignal) =>
      docker.getContainer(request.containerId).exec({
        Cmd: [...request.argv],
        AttachStdin: request.stdin,
        AttachStdout: true,
        AttachStderr: true,
        Tty: request.tty,
        // Engines before API 1.42 do not read it.
        ...(request.tty ? { ConsoleSize: [request.rows, request.cols] } : {}),
        ...(env.length > 0 ? { Env: env } : {}),
        ...(request.workdir === "" ? {} : { WorkingDir: request.workdir }),
        abortSignal,
      }),
    );
  } catch (error) {
    if (!hasStatus(error, 404) && !hasStatus(error, 409)) throw error;
    const sentence = `The session is not running, so nothing can be run in it. (${wordsOf(error)})`;
    throw new BerthError("kernel-not-running", sentence, { cause: error });
  }
}

/** Looks until `done`; after ten seconds what was seen last is taken as it is. */
async function settled(
  clock: Clock,
  look: () => Promise<ExecState>,
  done: (state: ExecState) => boolean,
): Promise<ExecState> {
  const until = clock.mono() + SETTLE_MS;
  for (;;) {
    const state = await look();
    if (done(state) || clock.mono() >= until) return state;
    await clock.sleep(LOOK_MS);
  }
}

/** The command's first process, and the namespace in which to look for what it started. */
type Leader = { readonly process: ProcessStat; readonly namespace: string };

function leaderOf(pid: number): Leader | undefined {
  const [process, namespace] = pid > 0 ? [readProcess(pid), processNamespace(pid)] : [];
  return process === undefined || namespace === undefined ? undefined : { process, namespace };
}

/** The leader's family as it is now; what it left behind in its session counts after its own end too. */
function familyNow({ process, namespace }: Leader): ProcessStat[] {
  const all = processesIn(namespace);
  const reused = all.some(({ pid, startTicks }) => pid === process.pid && startTicks !== process.startTicks);
  return reused ? [] : familyOf(process.pid, all);
}

function writeTo(stream: Duplex, bytes: Uint8Array): Promise<void> {
  return new Promise((resolve, reject) => {
    stream.write(bytes, (error) => {
      if (error === null || error === undefined) resolve();
      else reject(new BerthError("exec-ended", "The command takes no more input.", { cause: error }));
    });
  });
}

/** A command that the engine could not start, in the words and with the exit code of a shell. */
type Refusal = { readonly exitCode: 126 | 127; readonly words: string };

function folderWords(text: string): string {
  if (/permission denied/i.test(text)) return "it may not be entered";
  if (/not a directory/i.test(text)) return "it is not a folder";
  if (/no such file/i.test(text)) return "there is no such folder in the session";
  return "it cannot be entered";
}

/** The engine tells a failed start as if the command had printed it; undefined for real output. */
export function readRefusal(text: string, command: string, workdir: string): Refusal | undefined {
  if (!REFUSED_START.test(text)) return undefined;
  // First: it has the words of a missing command too.
  if (REFUSED_FOLDER.test(text)) {
    return { exitCode: 126, words: `${command}: cannot run in ${workdir}: ${folderWords(text)}` };
  }
  if (/permission denied/i.test(text)) return { exitCode: 126, words: `${command}: permission denied` };
  // Docker 20.10 counts this as 126, later ones as 127.
  if (/not found|no such file/i.test(text)) return { exitCode: 127, words: `${command}: command not found` };
  if (/not a directory/i.test(text)) return { exitCode: 126, words: `${command}: not a directory` };
  return { exitCode: 126, words: `${command}: ${text.replace(REFUSED_START, "").trim()}` };
}

async function* execOutput(
  stream: Duplex,
  request: ExecRequest,
  started: Promise<ExecState>,
  onRefusal: (refusal: Refusal) => void,
): AsyncGenerator<OutputChunk> {
  let first = true;
  for await (const chunk of outputOf(stream, !request.tty)) {
    const text = first ? Buffer.from(chunk.bytes).toString("utf8") : "";
    const refusal = readRefusal(text, request.argv[0] ?? "", request.workdir);
    first = false;
    if (refusal !== undefined) onRefusal(refusal);
    if (refusal === undefined || (await started).pid > 0) {
      yield chunk;
    } else {
      yield { stream: 2, bytes: Buffer.from(`${refusal.words}\r\n`) };
    }
  }
}
