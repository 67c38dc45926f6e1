/**
 * What the shell scripts here cannot do by themselves: JSON, the engine's socket, HTTPS. Run by the pinned Bun of
 * a checkout or by the berth executable itself (BUN_BE_BUN=1), so it imports nothing that has to be installed.
 */
import { X509Certificate } from "node:crypto";
import {
  existsSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  renameSync,
  statSync,
  writeFileSync,
} from "node:fs";

const SOCKET = process.env.BERTH_ENGINE_SOCKET ?? "/var/run/docker.sock";

type Json = { readonly [key: string]: unknown };

function isObject(value: unknown): value is Json {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

async function engine(path: string): Promise<unknown> {
  const response = await fetch(`http://engine${path}`, { unix: SOCKET, signal: AbortSignal.timeout(10_000) });
  if (!response.ok) throw new Error(`the engine answers ${response.status} to ${path}`);
  return response.json();
}

/** The engine's configuration with live-restore on and everything else as it was. Throws on what is no JSON object. */
export function withLiveRestore(text: string): string {
  const before: unknown = text.trim() === "" ? {} : JSON.parse(text);
  if (!isObject(before)) throw new Error("it does not hold a JSON object");
  return `${JSON.stringify({ ...before, "live-restore": true }, null, 2)}\n`;
}

function mergeLiveRestore(file: string): void {
  const text = existsSync(file) ? readFileSync(file, "utf8") : "";
  const mode = existsSync(file) ? statSync(file).mode & 0o777 : 0o644;
  const draft = `${file}.berth-${process.pid}`;
  writeFileSync(draft, withLiveRestore(text), { mode });
  renameSync(draft, file);
}

/** Facts for the shell, one `name=value` a line. */
async function engineFacts(): Promise<void> {
  const info = await engine("/info");
  if (!isObject(info)) throw new Error("the engine's answer is not understood");
  console.log(`version=${info.ServerVersion}`);
  console.log(`live_restore=${info.LiveRestoreEnabled}`);
  console.log(`root_dir=${info.DockerRootDir}`);
  console.log(`swarm=${isObject(info.Swarm) ? info.Swarm.LocalNodeState : ""}`);
}

function ofBerth(thing: Json): boolean {
  const labels = isObject(thing.Labels) ? Object.keys(thing.Labels) : [];
  return labels.some((label) => /(^|\.)berth\./.test(label));
}

/** Containers and networks that carry a label of Berth, one a line. */
async function traces(): Promise<void> {
  const containers = await engine("/containers/json?all=1");
  const networks = await engine("/networks");
  for (const thing of Array.isArray(containers) ? containers : []) {
    if (isObject(thing) && ofBerth(thing)) console.log(`container ${thing.Names}`);
  }
  for (const thing of Array.isArray(networks) ? networks : []) {
    if (isObject(thing) && ofBerth(thing)) console.log(`network ${thing.Name}`);
  }
}

/** What an address answers with 2xx. The certificate is our own and new: its bearer is not the question here. */
async function get(url: string): Promise<Response> {
  const response = await fetch(url, {
    tls: { rejectUnauthorized: false },
    signal: AbortSignal.timeout(5000),
  });
  if (!response.ok)
    throw new Error(`${url} answers ${response.status}: ${(await response.text()).slice(0, 500)}`);
  return response;
}

/** Succeeds when the manager has a node on which sessions can start. */
async function agentsReady(url: string): Promise<void> {
  const answer: unknown = await (await get(`${url}/readyz`)).json();
  if (!isObject(answer) || !(Number(answer.agentsReady) > 0)) throw new Error("no node is ready yet");
}

/** Prints a text of a JSON file. */
function field(file: string, name: string): void {
  const value: unknown = JSON.parse(readFileSync(file, "utf8"));
  if (!isObject(value) || typeof value[name] !== "string") throw new Error(`${file} has no text ${name}`);
  process.stdout.write(value[name]);
}

/** Prints the ids of the things in a JSON list on stdin, one a line. */
async function ids(): Promise<void> {
  const list: unknown = await Bun.stdin.json();
  for (const thing of Array.isArray(list) ? list : []) {
    if (isObject(thing) && typeof thing.id === "string") console.log(thing.id);
  }
}

/** Prints the SHA-256 of the first certificate in a PEM file. */
function fingerprint(file: string): void {
  const pem = /-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/.exec(readFileSync(file, "utf8"));
  if (pem === null) throw new Error(`${file} holds no certificate`);
  process.stdout.write(new X509Certificate(pem[0]).fingerprint256);
}

/** Inodes of the sockets that listen on a port, from the text of /proc/net/tcp or tcp6. */
export function listeningInodes(text: string, port: number): string[] {
  const wanted = port.toString(16).toUpperCase().padStart(4, "0");
  return text.split("\n").flatMap((line) => {
    const [, local = "", , state, , , , , , inode = ""] = line.trim().split(/\s+/);
    return state === "0A" && local.endsWith(`:${wanted}`) ? [inode] : [];
  });
}

/** Succeeds when the process listens on the port. */
function listens(pid: string, port: string): void {
  const tables = ["tcp", "tcp6"].map((name) => `/proc/${pid}/net/${name}`).filter((file) => existsSync(file));
  const inodes = tables.flatMap((file) => listeningInodes(readFileSync(file, "utf8"), Number(port)));
  const links = readdirSync(`/proc/${pid}/fd`).map((name) => {
    try {
      return readlinkSync(`/proc/${pid}/fd/${name}`);
    } catch {
      // Closed since it was listed.
      return "";
    }
  });
  if (!inodes.some((inode) => links.includes(`socket:[${inode}]`)))
    throw new Error(`${pid} does not listen on port ${port}`);
}

const COMMANDS: Readonly<Record<string, (...words: string[]) => Promise<void> | void>> = {
  "engine-ping": async () => void (await engine("/version")),
  "engine-facts": engineFacts,
  "engine-live-restore": (file = "") => mergeLiveRestore(file),
  traces,
  healthy: async (url = "") => void (await get(url)),
  "agents-ready": (url = "") => agentsReady(url),
  listens: (pid = "", port = "") => listens(pid, port),
  fingerprint: (file = "") => fingerprint(file),
  ids,
  field: (file = "", name = "") => field(file, name),
};

if (import.meta.main) {
  const [name = "", ...words] = process.argv.slice(2);
  const command = Object.hasOwn(COMMANDS, name) ? COMMANDS[name] : undefined;
  try {
    if (command === undefined)
      throw new Error(`no command "${name}"; there are ${Object.keys(COMMANDS).join(", ")}`);
    await command(...words);
  } catch (err) {
    console.error(`${name}: ${err instanceof Error ? err.message : String(err)}`);
    process.exit(1);
  }
}
