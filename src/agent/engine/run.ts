import { BerthError, messageOf } from "../../kit/errors.ts";

export type RunResult = { readonly code: number; readonly stdout: string; readonly stderr: string };

const LIMIT_MS = 60_000;

/**
 * Runs a program of the node (mount, mkfs, iptables) without a shell and returns what it said. Throws
 * `tool-missing` when there is no such program and `tool-stuck` when it was killed after `limitMs`.
 */
export async function run(
  argv: readonly string[],
  { input, limitMs = LIMIT_MS }: { readonly input?: string; readonly limitMs?: number } = {},
): Promise<RunResult> {
  const name = argv[0] ?? "";
  const child = spawn(argv, input, limitMs);
  const [stdout, stderr, code] = await Promise.all([
    new Response(child.stdout).text(),
    new Response(child.stderr).text(),
    child.exited,
  ]);
  if (child.signalCode === "SIGKILL") {
    throw new BerthError("tool-stuck", `${name} did not end within ${limitMs / 1000} s on this node.`);
  }
  return { code, stdout, stderr };
}

function spawn(argv: readonly string[], input: string | undefined, timeout: number) {
  try {
    return Bun.spawn([...argv], {
      stdin: input === undefined ? "ignore" : new Blob([input]),
      stdout: "pipe",
      stderr: "pipe",
      // A translated message could not be told apart by what it says.
      env: { PATH: TOOL_PATH, LC_ALL: "C" },
      timeout,
      killSignal: "SIGKILL",
    });
  } catch (cause) {
    const sentence = `${argv[0]} could not be run on this node: ${messageOf(cause)}.`;
    throw new BerthError("tool-missing", sentence, { cause });
  }
}

const TOOL_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/** Like `run`, but a non-zero exit throws `tool-failed` with the program's own last words. */
export async function mustRun(argv: readonly string[], input?: string): Promise<string> {
  const result = await run(argv, input === undefined ? {} : { input });
  if (result.code !== 0) {
    const words = result.stderr.trim().split("\n").at(-1) ?? "";
    throw new BerthError("tool-failed", `${argv[0]} failed with exit code ${result.code}: ${words}`);
  }
  return result.stdout;
}
