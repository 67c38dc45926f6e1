import { type Clock, systemClock } from "../kit/clock.ts";
import { isBerthError } from "../kit/errors.ts";
import { type Client, createClient } from "./client.ts";
import { type CommandSpec, createShow, type Invocation, readOptions } from "./command.ts";
import { EXIT_PIPE_CLOSED, EXIT_REFUSED, EXIT_USAGE, reportFailure, usage } from "./failures.ts";
import { type Io, processIo } from "./io.ts";
import { buildProgram, type Output, type Tree, usageFault } from "./program.ts";
import { findTarget } from "./target.ts";
import { type Extras, treeOf } from "./tree.ts";

const nameOf = (spec: CommandSpec) => spec.usage.split(" ", 1)[0];

/** Splits at the first `--`, for the commands that pass what follows it on. */
function splitTail(
  tree: Tree,
  argv: readonly string[],
): {
  readonly head: readonly string[];
  readonly tail: readonly string[] | undefined;
} {
  const takes = tree.commands.some((spec) => spec.tail && nameOf(spec) === argv[0]);
  const at = takes ? argv.indexOf("--") : -1;
  return at < 0 ? { head: argv, tail: undefined } : { head: argv.slice(0, at), tail: argv.slice(at + 1) };
}

function invocationOf(
  { io, clock }: { readonly io: Io; readonly clock: Clock },
  spec: CommandSpec,
  args: readonly string[],
  values: Readonly<Record<string, unknown>>,
  tail: readonly string[] | undefined,
): Invocation {
  const options = readOptions(values);
  let client: Promise<Client> | undefined;
  return {
    args,
    tail: spec.tail ? tail : undefined,
    options,
    json: options.flag("json"),
    io,
    clock,
    client: () => {
      client ??= findTarget(io, options.text("data-dir")).then((target) => createClient({ target, clock }));
      return client;
    },
    show: createShow(io, { now: clock.wall(), utc: options.flag("utc") }),
  };
}

/**
 * Runs a command of the client and returns its exit code: 0, 1 when it was refused or failed, 2 when the
 * command line is wrong; `run` and `exec` return the command's own code, 125 when Berth refused or failed or when
 * the command line is wrong.
 * Never throws.
 */
export async function runCli(
  argv: readonly string[],
  extras: Extras = {},
  io: Io = processIo(),
  clock: Clock = systemClock,
): Promise<number> {
  const tree = treeOf(extras);
  const { head, tail } = splitTail(tree, argv);
  const json = head.includes("--json");
  const printed: { stream: "out" | "err"; text: string }[] = [];
  const output: Output = {
    out: (text) => printed.push({ stream: "out", text }),
    err: (text) => printed.push({ stream: "err", text }),
  };
  let code = 0;
  // Known before the line is read: a code of the command's own must not come of a wrong line either.
  const ownCode = tree.commands.find((spec) => nameOf(spec) === argv[0])?.failCode;
  const usageCode = ownCode ?? EXIT_USAGE;
  const program = buildProgram(
    tree,
    async (spec, args, values) => {
      code = (await spec.run(invocationOf({ io, clock }, spec, args, values, tail))) ?? 0;
    },
    output,
    tail === undefined,
  );
  try {
    if (!io.argvIsText) throw usage("The command line holds bytes that are not UTF-8, and cannot be sent.");
    await program.parseAsync([...head], { from: "user" });
  } catch (error) {
    code = await faultCode(io, error, { json, failCode: ownCode ?? EXIT_REFUSED, usageCode, printed });
  }
  for (const { stream, text } of printed) await io[stream](text).catch(() => {});
  return code;
}

async function faultCode(
  io: Io,
  error: unknown,
  state: {
    readonly json: boolean;
    readonly failCode: number;
    readonly usageCode: number;
    readonly printed: readonly { readonly stream: "out" | "err" }[];
  },
): Promise<number> {
  if (isBerthError(error) && error.code === "output-closed") return EXIT_PIPE_CLOSED;
  const fault = usageFault(error);
  if (fault?.help) return state.printed.some(({ stream }) => stream === "err") ? state.usageCode : 0;
  await reportFailure(io, fault === undefined ? error : usage(fault.sentence), state.json);
  const isUsage = fault !== undefined || (isBerthError(error) && error.code === "usage");
  return isUsage ? state.usageCode : state.failCode;
}
