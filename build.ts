/**
 * Builds the one executable: `bun build.ts [--outfile dist/berth]`. Every `*.worker.ts` under src/ becomes
 * an extra entry point, because a compiled program can only start the workers that were built into it.
 */
import { mkdir, rename, rm, stat } from "node:fs/promises";
import { dirname, join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { version } from "./package.json";

const root = import.meta.dir;

async function output(argv: readonly string[]): Promise<string | undefined> {
  try {
    const child = Bun.spawn([...argv], { cwd: root, stdin: "ignore", stdout: "pipe", stderr: "ignore" });
    const text = await new Response(child.stdout).text();
    return (await child.exited) === 0 ? text.trim() : undefined;
  } catch {
    return undefined;
  }
}

async function gitCommit(): Promise<string> {
  const commit = await output(["git", "rev-parse", "--short=12", "HEAD"]);
  if (commit === undefined || commit === "") return "unknown";
  const changed = await output(["git", "status", "--porcelain", "--untracked-files=no"]);
  return changed === "" ? commit : `${commit}-changed`;
}

async function compile(outfile: string, commit: string): Promise<void> {
  const workers = await Array.fromAsync(new Bun.Glob("src/**/*.worker.ts").scan({ cwd: root }));
  const argv = [
    process.execPath,
    "build",
    "--compile",
    "--production",
    "--minify",
    "--bytecode",
    "--format=esm",
    "--sourcemap",
    // Without these two a .env or bunfig.toml in the current directory of the user would be obeyed.
    "--no-compile-autoload-dotenv",
    "--no-compile-autoload-bunfig",
    // An add-on that ssh2, a part of dockerode, tries and does without; it is there only where a compiler was.
    "--external=cpu-features",
    `--define=BERTH_COMMIT=${JSON.stringify(commit)}`,
    `--root=${root}`,
    `--outfile=${outfile}`,
    "src/main.ts",
    ...workers.sort(),
  ];
  const child = Bun.spawn(argv, { cwd: root, stdin: "ignore", stdout: "inherit", stderr: "inherit" });
  if ((await child.exited) !== 0) throw new Error("bun build failed; its message is above");
}

async function smoke(binary: string): Promise<string> {
  // In another folder, where neither our sources nor node_modules can help it.
  const child = Bun.spawn([binary, "version"], { cwd: "/", stdin: "ignore", stdout: "pipe", stderr: "pipe" });
  const [text, fault] = await Promise.all([
    new Response(child.stdout).text(),
    new Response(child.stderr).text(),
  ]);
  if ((await child.exited) !== 0 || !text.includes(version)) {
    throw new Error(`the built program does not tell its version ${version}: ${text}${fault}`);
  }
  return text.trim();
}

const { values } = parseArgs({ options: { outfile: { type: "string", default: "dist/berth" } } });
const outfile = resolve(root, values.outfile);
// Replaced in one step: a running program keeps its file, and nobody finds half of one.
const draft = join(dirname(outfile), `.berth-${process.pid}`);
await mkdir(dirname(outfile), { recursive: true });
try {
  await compile(draft, await gitCommit());
  const words = await smoke(draft);
  await rename(draft, outfile);
  console.log(`${outfile}: ${words}, ${Math.round((await stat(outfile)).size / 2 ** 20)} MiB`);
} finally {
  await Promise.all([draft, `${draft}.map`].map((file) => rm(file, { force: true })));
}
