import { readFileSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Subprocess } from "bun";
import { cleanUpAgent } from "./engine.ts";

const MAIN = join(import.meta.dir, "../../../src/main.ts");
const READY_MS = 60_000;
const STOP_MS = 15_000;

export type Finished = { readonly code: number; readonly stdout: string; readonly stderr: string };
export type RunOptions = {
  readonly env?: Readonly<Record<string, string>>;
  readonly stdin?: string | Uint8Array;
};

/** The client's environment: nothing of the caller's but the path, and a home of its own. */
function clientEnv(home: string, env: Readonly<Record<string, string>> = {}): Record<string, string> {
  return { PATH: process.env.PATH ?? "", HOME: home, LANG: "C.UTF-8", ...env };
}

/** Two ports in a row that are free now: dashboard and agents. */
async function freePort(): Promise<number> {
  for (;;) {
    const port = 20_000 + Math.floor(Math.random() * 20_000);
    const both = await Promise.all([port, port + 1].map(isFree));
    if (both.every(Boolean)) return port;
  }
}

function isFree(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const server = createServer();
    server.once("error", () => resolve(false));
    server.listen(port, "127.0.0.1", () => server.close(() => resolve(true)));
  });
}

async function text(stream: ReadableStream<Uint8Array>): Promise<string> {
  return new Response(stream).text();
}

/** `berth up` as a process of its own on a data folder of its own. */
export async function startUp() {
  const dir = await mkdtemp(join(tmpdir(), "berth-cli-"));
  const dataDir = join(dir, "data");
  const home = join(dir, "home");
  const port = await freePort();
  const url = `http://127.0.0.1:${port}`;
  let server: Subprocess<"ignore", "pipe", "pipe"> | undefined;
  let log = "";

  async function launch(): Promise<void> {
    const argv = [process.execPath, MAIN, "up", "--data-dir", dataDir, "--listen", `127.0.0.1:${port}`];
    const started = Bun.spawn(argv, {
      stdin: "ignore",
      stdout: "pipe",
      stderr: "pipe",
      env: clientEnv(home, { BERTH_CHECK_ANSWERS: "1" }),
    });
    server = started;
    const ready = Promise.withResolvers<void>();
    const read = async (stream: ReadableStream<Uint8Array>) => {
      const decoder = new TextDecoder();
      for await (const chunk of stream) {
        log += decoder.decode(chunk, { stream: true });
        if (log.includes(`Berth is ready at ${url}`)) ready.resolve();
      }
    };
    const reading = Promise.all([read(started.stdout), read(started.stderr)]);
    const late = setTimeout(
      () => ready.reject(new Error(`berth up is not ready in time:\n${log}`)),
      READY_MS,
    );
    started.exited.then(async (code) => {
      await reading;
      ready.reject(new Error(`berth up ended with ${code}:\n${log}`));
    });
    await ready.promise.finally(() => clearTimeout(late));
  }

  async function end(signal: "SIGTERM" | "SIGKILL"): Promise<void> {
    const ending = server;
    if (ending === undefined) return;
    server = undefined;
    ending.kill(signal);
    const late = setTimeout(() => ending.kill("SIGKILL"), STOP_MS);
    await ending.exited;
    clearTimeout(late);
  }

  await launch();
  const admin: { readonly email: string; readonly password: string } = JSON.parse(
    readFileSync(await initialAdmin(dataDir), "utf8"),
  );
  const base: Record<string, string> = {};

  /** Starts the client; the caller waits for it. */
  const spawn = (argv: readonly string[], { env = {}, stdin }: RunOptions = {}) =>
    Bun.spawn([process.execPath, MAIN, ...argv], {
      stdin: stdin === undefined ? "ignore" : Buffer.from(stdin),
      stdout: "pipe",
      stderr: "pipe",
      env: clientEnv(home, { ...base, ...env }),
    });

  /** Runs the client to its end. */
  async function berth(argv: readonly string[], options: RunOptions = {}): Promise<Finished> {
    const child = spawn(argv, options);
    const [stdout, stderr, code] = await Promise.all([text(child.stdout), text(child.stderr), child.exited]);
    return { code, stdout, stderr };
  }

  return {
    url,
    home,
    dataDir,
    admin,
    spawn,
    berth,
    log: () => log,
    /** Lets every later command use this token. */
    useToken: (token: string) => {
      base.BERTH_URL = url;
      base.BERTH_TOKEN = token;
    },
    /** Ends the server as a crash does, and starts it again on the same folder. */
    crash: () => end("SIGKILL"),
    start: launch,
    stop: async () => {
      await end("SIGTERM");
      await cleanUpAgent(join(dataDir, "agent"));
      await rm(dir, { recursive: true, force: true });
    },
    clientEnv: (env: Readonly<Record<string, string>> = {}) => clientEnv(home, { ...base, ...env }),
    main: MAIN,
  };
}

export type BerthUp = Awaited<ReturnType<typeof startUp>>;

async function initialAdmin(dataDir: string): Promise<string> {
  const paths = [join(dataDir, "initial-admin.json"), join(dataDir, "manager", "initial-admin.json")];
  for (const path of paths) if (await Bun.file(path).exists()) return path;
  throw new Error(`there is no initial-admin.json in ${dataDir}`);
}
