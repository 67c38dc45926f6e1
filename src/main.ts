import { isBerthError, messageOf } from "./kit/errors.ts";

/** What a role is given (the arguments behind its name) and returns (the exit code). */
type Run = (argv: readonly string[]) => Promise<number>;

// Imported when asked for: an agent never loads the manager's database, nor the CLI either of them.
const ROLES: Readonly<Record<string, () => Promise<Run>>> = {
  manager: async () => (await import("./manager/main.ts")).runManager,
  agent: async () => (await import("./agent/main.ts")).runAgent,
  "agent-cleanup": async () => (await import("./agent/cleanup.ts")).runCleanup,
  up: async () => (await import("./up.ts")).runUp,
};

/** What `berth config check` runs: the client itself knows no role. */
const configChecks = {
  manager: async (argv: readonly string[]) => (await import("./manager/config.ts")).checkManagerConfig(argv),
  agent: async (argv: readonly string[]) => (await import("./agent/config.ts")).checkAgentConfig(argv),
  up: async (argv: readonly string[]) => (await import("./up.ts")).checkUpConfig(argv),
};

/** Exit code of a client command that Berth itself refused or failed, apart from what a session's command returns. */
const CLIENT_FAULT = 125;

async function main(argv: readonly string[]): Promise<number> {
  const [name = "--help", ...rest] = argv;
  const load = Object.hasOwn(ROLES, name) ? ROLES[name] : undefined;
  try {
    if (load !== undefined) return await (await load())(rest);
    return await (await import("./cli/main.ts")).runCli([name, ...rest], { configChecks });
  } catch (err) {
    process.stderr.write(`berth: ${isBerthError(err) ? err.message : `internal fault: ${messageOf(err)}`}\n`);
    if (!isBerthError(err) && process.env.BERTH_DEBUG !== undefined) console.error(err);
    return load === undefined ? CLIENT_FAULT : 1;
  }
}

/** Waits until a pipe has taken what was written: an exit before that would cut it. */
function flushed(stream: NodeJS.WriteStream): Promise<void> {
  return new Promise((resolve) => {
    if (stream.destroyed || stream.writableEnded) return resolve();
    stream.write("", () => resolve());
  });
}

// `berth ps | head` is no fault of ours.
process.stdout.on("error", (err: NodeJS.ErrnoException) => {
  if (err.code === "EPIPE") process.exit(0);
});

const code = await main(process.argv.slice(2));
await Promise.all([flushed(process.stdout), flushed(process.stderr)]);
process.exit(code);
