import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { existsSync, mkdtempSync, readFileSync, rmSync, statSync } from "node:fs";
import { createServer, type Server } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";

const root = join(import.meta.dir, "../..");
const built = join(root, "dist/berth");
/** The first server, and a further node: folders below which each is installed. */
let prefix = "";
let node = "";
let port = 0;

const below = (path: string) => join(prefix, path);

const script = (name: string, ...argv: string[]) => runBelow(prefix, join(root, "installer", name), ...argv);

async function runBelow(folder: string, ...argv: string[]) {
  const child = Bun.spawn(argv, {
    env: { ...process.env, BERTH_INSTALL_ROOT: folder },
    stdin: "ignore",
    stdout: "pipe",
    stderr: "pipe",
  });
  const [out, err] = await Promise.all([
    new Response(child.stdout).text(),
    new Response(child.stderr).text(),
  ]);
  return { code: await child.exited, out, err };
}

const install = (...argv: string[]) =>
  script("install.sh", "--binary", built, "--listen", `0.0.0.0:${port}`, ...argv);

function listen(wanted: number): Promise<Server | undefined> {
  return new Promise((resolve) => {
    const server = createServer().once("error", () => resolve(undefined));
    server.listen(wanted, "127.0.0.1", () => resolve(server));
  });
}

/** Two neighbouring ports that nobody uses: the dashboard's and the agents'. */
async function freePortPair(): Promise<number> {
  for (;;) {
    const first = await listen(0);
    const address = first?.address();
    const found = typeof address === "object" && address !== null ? address.port : 65_535;
    const second = found < 65_535 ? await listen(found + 1) : undefined;
    first?.close();
    second?.close();
    if (second !== undefined) return found;
  }
}

function pidOf(role: string): number {
  return Number(readFileSync(below(`var/lib/berth/${role}/${role}.pid`), "utf8"));
}

beforeAll(async () => {
  prefix = mkdtempSync(join(tmpdir(), "berth-install-"));
  node = mkdtempSync(join(tmpdir(), "berth-install-node-"));
  port = await freePortPair();
});

afterAll(async () => {
  await runBelow(node, join(root, "installer/uninstall.sh"), "--purge");
  await script("uninstall.sh", "--purge");
  for (const folder of [prefix, node]) rmSync(folder, { recursive: true, force: true });
});

describe("installer", () => {
  test("--dry-run changes nothing", async () => {
    const { code, out } = await install("--dry-run");
    expect([code, out]).toEqual([0, expect.stringContaining("Nothing was changed")]);
    expect(existsSync(below("usr"))).toBe(false);
    expect(existsSync(below("etc"))).toBe(false);
  });

  test("ends with a first session's output on the screen", async () => {
    const { code, out, err } = await install();
    expect(`${err}\nexit ${code}`).toEndWith("\nexit 0");
    expect(out).toContain("Hello from a session of Berth: work on");
    expect(out).toContain("initial-admin.json");
    expect(out).toContain("no systemd");
  });

  test("keeps secrets to root and leaves no token behind", () => {
    const secret = [
      "var/lib/berth/manager",
      "var/lib/berth/agent",
      "var/lib/berth/manager/initial-admin.json",
    ];
    for (const path of [...secret, "etc/berth/manager.toml", "etc/berth/agent.toml"]) {
      expect([path, statSync(below(path)).mode & 0o077]).toEqual([path, 0]);
    }
    expect(readFileSync(below("etc/berth/agent.toml"), "utf8")).not.toContain("token =");
  });

  test("--agent adds a node, which root's command on the manager shows", async () => {
    const data = ["--data-dir", below("var/lib/berth/manager")];
    const berth = (...argv: string[]) => runBelow(prefix, below("usr/local/bin/berth"), ...argv, ...data);
    const token = (await berth("join-token", "create")).out.trim();
    const argv = ["--agent", "--manager", `https://127.0.0.1:${port}`, "--token", token, "--binary", built];
    const { code, out, err } = await runBelow(node, join(root, "installer/install.sh"), ...argv);
    expect(`${err}\nexit ${code}`).toEndWith("\nexit 0");
    expect(out).toContain(`This node has joined https://127.0.0.1:${port}`);
    expect(existsSync(join(node, "etc/berth/manager.toml"))).toBe(false);
    expect(existsSync(join(node, "var/lib/berth/manager"))).toBe(false);
    const nodes: unknown = JSON.parse((await berth("node", "ls", "--json")).out);
    expect(nodes).toBeArrayOfSize(2);
    expect(await runBelow(node, join(root, "installer/uninstall.sh"), "--purge")).toMatchObject({ code: 0 });
    expect(existsSync(join(node, "var/lib/berth"))).toBe(false);
  });

  test("run again it upgrades: the executable before is kept, both roles are new processes", async () => {
    const before = [pidOf("manager"), pidOf("agent")];
    const installed = below("usr/local/bin/berth");
    // What runs keeps its file; the path holds another one, as an older version would.
    rmSync(installed);
    await Bun.write(installed, "an older one");
    const { code, out, err } = await install("--no-first-session");
    expect(`${err}\nexit ${code}`).toEndWith("\nexit 0");
    expect(out).toContain("manager.toml is kept as it is");
    expect(out).toContain("This node has joined before");
    expect(readFileSync(`${installed}.previous`, "utf8")).toBe("an older one");
    expect(before.filter((pid) => existsSync(`/proc/${pid}`))).toEqual([]);
    for (const role of ["manager", "agent"]) expect(existsSync(`/proc/${pidOf(role)}`)).toBe(true);
  });

  test("another data folder than the installed one is refused", async () => {
    const { code, err } = await install("--data-dir", below("elsewhere"));
    expect([code, err]).toEqual([1, expect.stringContaining("is installed with the data folder")]);
  });

  test("uninstall.sh leaves the data, and with --purge nothing", async () => {
    const pids = [pidOf("manager"), pidOf("agent")];
    expect(await script("uninstall.sh")).toMatchObject({ code: 0 });
    expect(pids.filter((pid) => existsSync(`/proc/${pid}`))).toEqual([]);
    expect(existsSync(below("usr/local/bin/berth"))).toBe(false);
    expect(existsSync(below("var/lib/berth/manager/initial-admin.json"))).toBe(true);
    expect(await script("uninstall.sh", "--purge")).toMatchObject({ code: 0 });
    expect(existsSync(below("var/lib/berth"))).toBe(false);
    expect(existsSync(below("etc/berth"))).toBe(false);
  });
});
