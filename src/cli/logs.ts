import { argument, type CommandSpec, type Invocation } from "./command.ts";
import { followLogs, type LogSink, patienceOf } from "./follow.ts";

function sinkFor({ io, json }: Invocation): LogSink {
  if (!json) {
    return {
      write: (stream, bytes) => (stream === "stdout" ? io.out(bytes) : io.err(bytes)),
      gap: (dropped) => io.err(`berth: ${dropped} bytes of the output are not there any more\n`),
    };
  }
  const line = (value: unknown) => io.out(`${JSON.stringify(value)}\n`);
  return {
    write: (stream, bytes, offset) => line({ offset, stream, base64: Buffer.from(bytes).toString("base64") }),
    gap: (dropped, offset) => line({ offset, dropped }),
  };
}

async function logs(invocation: Invocation): Promise<undefined> {
  const { io, clock, options } = invocation;
  const session = argument(invocation);
  const tail = options.integer("tail");
  const client = await invocation.client();
  await followLogs({
    client,
    clock,
    session,
    sink: sinkFor(invocation),
    signal: new AbortController().signal,
    follow: options.flag("follow"),
    tail,
    patienceMs: patienceOf(io),
  });
  return undefined;
}

export const logsCommand: CommandSpec = {
  usage: "logs <session>",
  summary: "Print the output of a session, also after it has ended",
  completes: "sessions",
  options: [
    { flags: "-f, --follow", help: "go on until the session ends" },
    { flags: "-n, --tail <lines>", help: "only the last lines" },
  ],
  examples: ["berth logs night-job", "berth logs -f --tail 100 night-job"],
  run: logs,
};
