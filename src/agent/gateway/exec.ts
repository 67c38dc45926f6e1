import { BerthError, isBerthError, messageOf } from "../../kit/errors.ts";
import { type Frame, readFrames, writeFrame } from "../../kit/frames.ts";
import type { Logger } from "../../kit/log.ts";
import type { ByteStream } from "../../wire/byte-stream.ts";
import type { ExecStream } from "../../wire/generated/berth.ts";
import type { ExecHandle } from "../engine/engine.ts";
import type { GatewayDeps } from "./deps.ts";

/** Exit codes of a command that could not be run, as shells give them. */
const START_FAILURES: Readonly<Record<string, number>> = {
  "command-not-executable": 126,
  "command-not-found": 127,
};
const INTERRUPT = Buffer.from([3]);
const QUIT = Buffer.from([28]);

/** On a terminal, signals from the keyboard go to what runs in its foreground; every other signal ends the command. */
async function signalTo(handle: ExecHandle, signal: string, tty: boolean): Promise<void> {
  const name = signal.toUpperCase().replace(/^SIG/, "");
  if (tty && name === "INT") return handle.write(INTERRUPT);
  if (tty && name === "QUIT") return handle.write(QUIT);
  if (["INT", "QUIT", "TERM", "HUP", "KILL"].includes(name)) await handle.end();
}

async function take(handle: ExecHandle, frame: Frame, request: ExecStream): Promise<void> {
  switch (frame.type) {
    case "stdin":
      // Awaited: a command that does not read stops the sender, not the agent's memory.
      return handle.write(frame.bytes);
    case "stdin-eof":
      return handle.closeStdin();
    case "resize":
      // One that comes after the end is no fault.
      return handle.resize(frame.cols, frame.rows).catch(() => {});
    case "signal":
      return signalTo(handle, frame.signal, request.tty);
    default:
      return undefined;
  }
}

/** Input of the other side, to the command. Ends when the other side has left. */
async function pumpIn(
  stream: ByteStream,
  handle: ExecHandle,
  request: ExecStream,
  log: Logger,
): Promise<void> {
  let writable = true;
  for await (const frame of readFrames(stream)) {
    if (frame.type === "stdin" && !writable) continue;
    try {
      await take(handle, frame, request);
    } catch (err) {
      // It closed its input or has ended; its output and exit code still count.
      log.debug({ cause: messageOf(err) }, "a command takes no more input");
      writable = false;
    }
  }
}

async function pumpOut(stream: ByteStream, handle: ExecHandle): Promise<void> {
  for await (const { stream: number, bytes } of handle.output) {
    await writeFrame(stream, { type: number === 1 ? "stdout" : "stderr", bytes });
  }
  const code = await handle.exited;
  await writeFrame(stream, { type: "exit", code });
}

/**
 * Runs a command in a container for the other side of the stream and tells its exit code. When the other side leaves,
 * the command is ended: nobody could reach it any more. Throws `kernel-not-running` and the engine's refusals.
 */
export async function serveExec(deps: GatewayDeps, stream: ByteStream, request: ExecStream): Promise<void> {
  const running = deps.supervisor.findRunning(request.kernelId, request.generation);
  if (running === undefined) {
    throw new BerthError("kernel-not-running", "The session's container does not run on its node.");
  }
  let handle: ExecHandle;
  try {
    handle = await deps.engine.exec({
      containerId: running.containerId,
      argv: request.argv,
      tty: request.tty,
      cols: request.cols,
      rows: request.rows,
      environment: request.environment,
      workdir: request.workdir,
      stdin: request.stdin,
    });
  } catch (err) {
    const code = isBerthError(err) ? START_FAILURES[err.code] : undefined;
    if (code === undefined) throw err;
    return writeFrame(stream, { type: "exit", code, reason: messageOf(err) });
  }
  deps.execIds.add(handle.execId);
  try {
    await converse(deps, stream, request, handle);
  } finally {
    deps.execIds.remove(handle.execId);
  }
}

async function converse(
  deps: GatewayDeps,
  stream: ByteStream,
  request: ExecStream,
  handle: ExecHandle,
): Promise<void> {
  let over = false;
  // Rejections are looked at by whoever awaits them; this end must not count as unhandled when the other is first.
  handle.exited.catch(() => {});
  const input = pumpIn(stream, handle, request, deps.log).catch(() => {});
  const output = pumpOut(stream, handle).finally(() => {
    over = true;
  });
  output.catch(() => {});
  await Promise.race([output, input]);
  if (over) return output;
  await handle.end();
}
