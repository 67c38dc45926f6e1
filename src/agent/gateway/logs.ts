import { BerthError } from "../../kit/errors.ts";
import { type Frame, writeFrame } from "../../kit/frames.ts";
import type { ByteStream } from "../../wire/byte-stream.ts";
import type { AttachStream, LogStream } from "../../wire/generated/berth.ts";
import { keyOf } from "../kernels/record.ts";
import type { LogEvent } from "../logs/event.ts";
import type { KernelLog } from "../logs/kernel-log.ts";
import type { GatewayDeps } from "./deps.ts";

function frameOf(event: LogEvent): Frame {
  switch (event.kind) {
    case "output": {
      const { offset, stream, bytes } = event;
      return { type: "log", offset, stream: stream === 1 ? "stdout" : "stderr", bytes };
    }
    case "gap":
      return { type: "log-gap", offset: event.offset, dropped: event.droppedBytes };
    case "end":
      return { type: "log-end", offset: event.offset, final: event.final };
  }
}

async function send(
  log: KernelLog,
  stream: ByteStream,
  options: { readonly offset: number; readonly follow: boolean },
): Promise<void> {
  const gone = new AbortController();
  void stream.closed.then(() => gone.abort());
  for await (const event of log.read({ ...options, signal: gone.signal })) {
    await writeFrame(stream, frameOf(event));
  }
}

type Ref = { readonly kernelId: string; readonly generation: number };

/** The kernel's log; undefined when it has none and never will. Throws `log-not-found` for a kernel that is not here. */
async function findLog(deps: GatewayDeps, ref: Ref): Promise<KernelLog | undefined> {
  const key = keyOf(ref);
  const record = deps.supervisor.record(ref);
  const known = await deps.logs.find(key);
  if (known !== undefined) return known;
  if (record === undefined) {
    throw new BerthError("log-not-found", "The node has no output of this session's container.");
  }
  const over = record.end !== null || record.failure !== null || record.stop !== null;
  // Made now, for a reader who waits for the first line.
  return over ? undefined : deps.logs.open(key, record.logLimitBytes);
}

/** Sends the stored output from an offset, and with `follow` what comes, until the log is final. */
export async function serveLogs(deps: GatewayDeps, stream: ByteStream, request: LogStream): Promise<void> {
  const log = await findLog(deps, request);
  if (log === undefined) return writeFrame(stream, { type: "log-end", offset: 0, final: true });
  const { offset, follow } = request;
  await send(log, stream, { offset, follow });
}

/** Sends the main process's output from now on. */
export async function serveAttach(
  deps: GatewayDeps,
  stream: ByteStream,
  request: AttachStream,
): Promise<void> {
  const log = await findLog(deps, request);
  if (log === undefined) return writeFrame(stream, { type: "log-end", offset: 0, final: true });
  await log.flush();
  await send(log, stream, { offset: log.endOffset(), follow: true });
}
