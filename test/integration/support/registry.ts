import { existsSync } from "node:fs";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { type AddressInfo, createConnection, createServer, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** Debian's package docker-registry: a real registry in one process. */
const PROGRAM = "/usr/bin/docker-registry";

/** Whether this machine has what tests with a registry need. */
export const hasRegistry = existsSync(PROGRAM);

const START_TRIES = 300;
const CHUNK = 256 * 1024;

export type TestRegistry = {
  /** `127.0.0.1:PORT`, which engines trust without TLS. */
  readonly host: string;
  /** Ends the process; what was pushed stays for `start`. */
  stop(): Promise<void>;
  start(): Promise<void>;
  /** Ends the process and removes everything. */
  close(): Promise<void>;
};

async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const port = portOf(server.address());
  await new Promise<void>((resolve) => server.close(() => resolve()));
  return port;
}

function portOf(address: AddressInfo | string | null): number {
  if (address === null || typeof address === "string") throw new Error("the server has no port");
  return address.port;
}

type Account = { readonly name: string; readonly password: string };

function config(dir: string, port: number, account: Account | undefined): string {
  const auth = account && { htpasswd: { realm: "test", path: join(dir, "htpasswd") } };
  return JSON.stringify({
    version: "0.1",
    log: { level: "error", accesslog: { disabled: true } },
    storage: { filesystem: { rootdirectory: join(dir, "data") } },
    http: { addr: `127.0.0.1:${port}` },
    ...(auth && { auth }),
  });
}

/** A registry in a folder of its own; with an account it is private. */
export async function startRegistry(account?: Account): Promise<TestRegistry> {
  const dir = await mkdtemp(join(tmpdir(), "berth-registry-"));
  const port = await freePort();
  const host = `127.0.0.1:${port}`;
  // JSON is YAML.
  await writeFile(join(dir, "config.yml"), config(dir, port, account));
  if (account !== undefined) {
    const hash = await Bun.password.hash(account.password, { algorithm: "bcrypt", cost: 4 });
    await writeFile(join(dir, "htpasswd"), `${account.name}:${hash}\n`);
  }
  let child: Bun.Subprocess | undefined;

  async function start(): Promise<void> {
    const log = Bun.file(join(dir, "log"));
    child = Bun.spawn([PROGRAM, "serve", join(dir, "config.yml")], {
      stdin: "ignore",
      stdout: log,
      stderr: log,
    });
    for (let tries = 0; tries < START_TRIES; tries++) {
      if (child.exitCode !== null) break;
      const answer = await fetch(`http://${host}/v2/`).catch(() => undefined);
      if (answer !== undefined) return;
      await Bun.sleep(50);
    }
    throw new Error(`the registry does not start: ${await log.text()}`);
  }

  async function stop(): Promise<void> {
    child?.kill();
    await child?.exited;
    child = undefined;
  }

  await start();
  return {
    host,
    start,
    stop,
    close: async () => {
      await stop();
      await rm(dir, { recursive: true, force: true });
    },
  };
}

export type SlowLine = {
  readonly host: string;
  /** From now on at most `bytes` more come through, this many in a second; then nothing until it is set anew. */
  limit(bytes: number, perSecond: number): void;
  /** Whether bytes wait that the limit holds back. */
  readonly holding: () => boolean;
  /** Bytes that came through since the start. */
  readonly passed: () => number;
  /** Connections that are open now. */
  readonly open: () => number;
  close(): Promise<void>;
};

/** A line to a server that can be made slow or dead in the middle of an answer. */
export async function slowLine(target: string): Promise<SlowLine> {
  const [address = "", targetPort = ""] = target.split(":");
  const sockets = new Set<Socket>();
  let left = Number.POSITIVE_INFINITY;
  let rate = Number.POSITIVE_INFINITY;
  let waiting = 0;
  let passed = 0;
  let changed = Promise.withResolvers<void>();

  async function deliver(near: Socket, far: Socket): Promise<void> {
    for await (const bytes of far) {
      if (!(bytes instanceof Uint8Array)) continue;
      for (let at = 0; at < bytes.length; ) {
        while (left <= 0 && !near.destroyed) {
          waiting++;
          await changed.promise.finally(() => waiting--);
        }
        if (near.destroyed) return;
        const piece = bytes.subarray(at, at + Math.min(CHUNK, left));
        at += piece.length;
        left -= piece.length;
        passed += piece.length;
        near.write(piece);
        if (rate !== Number.POSITIVE_INFINITY) await Bun.sleep((piece.length / rate) * 1000);
      }
    }
    near.end();
  }

  const wake = () => {
    changed.resolve();
    changed = Promise.withResolvers<void>();
  };
  const server = createServer((near) => {
    const far = createConnection({ host: address, port: Number(targetPort) });
    sockets.add(near);
    near.on("data", (bytes) => far.write(bytes));
    near.on("error", () => near.destroy());
    near.on("close", () => {
      sockets.delete(near);
      far.destroy();
      wake();
    });
    deliver(near, far).catch(() => near.destroy());
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    host: `127.0.0.1:${portOf(server.address())}`,
    limit: (bytes, perSecond) => {
      left = bytes;
      rate = perSecond;
      wake();
    },
    holding: () => waiting > 0,
    passed: () => passed,
    open: () => sockets.size,
    close: async () => {
      const closed = new Promise<void>((resolve) => server.close(() => resolve()));
      for (const socket of sockets) socket.destroy();
      await closed;
    },
  };
}

async function docker(...argv: string[]): Promise<void> {
  const child = Bun.spawn(["docker", ...argv], { stdin: "ignore", stdout: "ignore", stderr: "pipe" });
  if ((await child.exited) !== 0) throw new Error(await new Response(child.stderr).text());
}

/** Pushes a local image to a registry and removes it from the engine. */
export async function moveToRegistry(reference: string): Promise<void> {
  await docker("push", "--quiet", reference);
  await docker("image", "rm", reference);
}

/** The digest by which a registry knows an image. */
export async function registryDigest(host: string, repository: string, tag: string): Promise<string> {
  const answer = await fetch(`http://${host}/v2/${repository}/manifests/${tag}`, {
    method: "HEAD",
    headers: { accept: "application/vnd.docker.distribution.manifest.v2+json" },
  });
  return answer.headers.get("docker-content-digest") ?? "";
}
