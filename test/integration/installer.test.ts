import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from "bun:test";
import { X509Certificate } from "node:crypto";
import { chmodSync, copyFileSync, existsSync, mkdtempSync, readFileSync, rmSync, statSync } from "node:fs";
import { createServer, type Server } from "node:net";
import { hostname, tmpdir } from "node:os";
import { join } from "node:path";

const root = join(import.meta.dir, "../..");
const built = process.env.BERTH_BINARY ?? join(root, "dist/berth");
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

/** root's command on the manager of the first server. */
const berth = (...argv: string[]) =>
  runBelow(prefix, below("usr/local/bin/berth"), ...argv, "--data-dir", below("var/lib/berth/manager"));

/** The first administrator's command, signed in over HTTPS: root's own owns no sessions. */
async function asAdmin(...argv: string[]) {
  const data = below("var/lib/berth/manager");
  const { email, password } = JSON.parse(readFileSync(`${data}/initial-admin.json`, "utf8"));
  const { fingerprint256 } = new X509Certificate(readFileSync(`${data}/https.pem`));
  const binary = below("usr/local/bin/berth");
  const login = `printf %s '${password}' | ${binary} login https://127.0.0.1:${port} --email ${email} --password-stdin`;
  const home = [`HOME=${below("home")}`, `BERTH_FINGERPRINT=${fingerprint256}`];
  const words = await runBelow(prefix, "env", ...home, "sh", "-c", login);
  if (words.code !== 0) throw new Error(words.err);
  return runBelow(prefix, "env", ...home, binary, ...argv);
}

const newToken = async () => (await berth("join-token", "create")).out.trim();

const nodesNow = async (): Promise<{ id: string; name: string; status: string }[]> =>
  JSON.parse((await berth("node", "ls", "--json")).out);

const installNode = (...argv: string[]) =>
  runBelow(node, join(root, "installer/install.sh"), "--agent", "--binary", built, ...argv);

function pidOf(role: string): number {
  return Number(readFileSync(below(`var/lib/berth/${role}/${role}.pid`), "utf8"));
}

async function untilGone(pid: number): Promise<void> {
  while (existsSync(`/proc/${pid}`)) await Bun.sleep(20);
}

async function untilHealthy(): Promise<void> {
  const look = () =>
    fetch(`https://127.0.0.1:${port}/healthz`, { tls: { rejectUnauthorized: false } }).then(
      ({ ok }) => ok,
      () => false,
    );
  while (!(await look())) await Bun.sleep(50);
}

setDefaultTimeout(120_000);

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
    expect(out).toContain("Hello from a session of Berth: work,");
    expect(out).toContain(`It ran on the node ${hostname()}.`);
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
    const url = `https://127.0.0.1:${port}`;
    const { code, out, err } = await installNode("--manager", url, "--token", await newToken());
    expect(`${err}\nexit ${code}`).toEndWith("\nexit 0");
    expect(out).toContain(`This node has joined ${url}`);
    expect(existsSync(join(node, "etc/berth/manager.toml"))).toBe(false);
    expect(existsSync(join(node, "var/lib/berth/manager"))).toBe(false);
    expect(await nodesNow()).toBeArrayOfSize(2);
  });

  test("a bad token leaves a node that has joined where it is", async () => {
    const { code, err } = await installNode("--token", (await newToken()).slice(0, -1));
    expect([code, err]).toEqual([
      1,
      expect.stringContaining("has no link to the manager: The join token is"),
    ]);
    const toml = readFileSync(join(node, "etc/berth/agent.toml"), "utf8");
    expect(toml).not.toContain("token =");
    expect((await installNode()).code).toBe(0);
  });

  test("a removed node is told so, and a new token brings it back as a new one", async () => {
    const identity = () => JSON.parse(readFileSync(join(node, "var/lib/berth/agent/identity.json"), "utf8"));
    const before: string = identity().agentId;
    expect((await berth("node", "rm", before)).code).toBe(0);
    const refused = await installNode();
    expect([refused.code, refused.err]).toEqual([1, expect.stringContaining("was removed from its cluster")]);
    const { code, out, err } = await installNode("--token", await newToken());
    expect(`${err}\nexit ${code}`).toEndWith("\nexit 0");
    expect(out).toContain("This node has joined https://");
    const after: string = identity().agentId;
    expect((await nodesNow()).map(({ id }) => id)).toContain(after);
    const { out: networks } = await runBelow(node, "docker", "network", "ls", "--format", "{{.Name}}");
    expect(networks).toContain(`berth-${after.slice(-8)}`);
    expect(networks).not.toContain(`berth-${before.slice(-8)}`);
    expect(await runBelow(node, join(root, "installer/uninstall.sh"), "--purge")).toMatchObject({ code: 0 });
    expect(existsSync(join(node, "var/lib/berth"))).toBe(false);
    const again = await runBelow(node, join(root, "installer/uninstall.sh"), "--purge");
    expect([again.code, again.out]).toEqual([0, expect.not.stringContaining("holds other things")]);
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

  test("another build of the same commit does not take the place of berth.previous", async () => {
    const installed = below("usr/local/bin/berth");
    // It has other bytes and tells the same version.
    const other = below("other-build");
    await Bun.write(other, `#!/bin/sh\nexec ${built} "$@"\n`);
    chmodSync(other, 0o755);
    rmSync(installed);
    copyFileSync(other, installed);
    chmodSync(installed, 0o755);
    const { code, out } = await install("--no-first-session");
    expect([code, out]).toEqual([0, expect.stringContaining("It is this version already")]);
    expect(readFileSync(`${installed}.previous`, "utf8")).toBe("an older one");
    expect(statSync(installed).size).toBe(statSync(built).size);
  });

  test("on a node where sessions live there is no other first session, and where one waits, no endless wait", async () => {
    expect((await asAdmin("start", "--name", "lives", "--cpu", "0.1", "--mem", "64m")).code).toBe(0);
    const lively = await install();
    expect([lively.code, lively.out]).toEqual([0, expect.stringContaining("sessions live here")]);
    const ended = await asAdmin("rm", "--wait", "lives");
    expect(`${ended.err}${ended.code}`).toBe("0");
    for (const { id } of await nodesNow()) await berth("node", "set", id, "--schedulable", "off");
    process.env.BERTH_FIRST_SESSION_SECONDS = "3";
    const full = await install();
    delete process.env.BERTH_FIRST_SESSION_SECONDS;
    expect([full.code, full.out]).toEqual([0, expect.stringContaining("it is removed again")]);
    expect(JSON.parse((await berth("ps", "--all-users", "--json")).out)).toEqual([]);
    for (const { id } of await nodesNow()) await berth("node", "set", id, "--schedulable", "on");
  });

  test("after a change of the first password it is not told any more", async () => {
    const file = below("var/lib/berth/manager/initial-admin.json");
    const admin = readFileSync(file, "utf8");
    await Bun.write(file, JSON.stringify({ ...JSON.parse(admin), password: "not-the-one-any-more" }));
    const { code, out } = await install();
    await Bun.write(file, admin);
    expect(code).toBe(0);
    expect(out).toContain("does not hold any more: delete the file");
    expect(out).not.toContain("e-mail and password are in");
  });

  test("a manager that was started by hand is not taken for the installed one", async () => {
    process.kill(pidOf("manager"));
    await untilGone(pidOf("manager"));
    const config = below("etc/berth/manager.toml");
    const byHand = Bun.spawn([built, "manager", "--config", config], { stdout: "ignore", stderr: "ignore" });
    await untilHealthy();
    const { code, err, out } = await install("--no-first-session");
    expect([code, err]).toEqual([1, expect.stringContaining(`another manager runs on`)]);
    expect(err).toContain(`process ${byHand.pid}`);
    expect(out).not.toContain("Berth is installed");
    byHand.kill();
    await byHand.exited;
    expect((await install("--no-first-session")).code).toBe(0);
  });

  test("a port that somebody else has ends the installation", async () => {
    process.kill(pidOf("manager"));
    await untilGone(pidOf("manager"));
    const other = Bun.serve({ port, hostname: "0.0.0.0", fetch: () => new Response("ok") });
    const { code, err } = await install("--no-first-session");
    await other.stop(true);
    expect([code, err]).toEqual([1, expect.stringContaining("the manager did not start")]);
    expect((await install("--no-first-session")).code).toBe(0);
  });

  test("another data folder than the installed one is refused", async () => {
    const { code, err } = await install("--data-dir", below("elsewhere"));
    expect([code, err]).toEqual([1, expect.stringContaining("is installed with the data folder")]);
  });

  test("uninstall.sh leaves the data, and with --purge nothing", async () => {
    const pids = [pidOf("manager"), pidOf("agent")];
    expect(
      (await asAdmin("start", "--name", "ended-by-uninstall", "--cpu", "0.1", "--mem", "64m")).code,
    ).toBe(0);
    const { code, out } = await script("uninstall.sh");
    expect([code, out]).toEqual([0, expect.stringContaining("ended-by-uninstall")]);
    expect(pids.filter((pid) => existsSync(`/proc/${pid}`))).toEqual([]);
    expect(existsSync(below("usr/local/bin/berth"))).toBe(false);
    expect(existsSync(below("var/lib/berth/manager/initial-admin.json"))).toBe(true);
    expect(await script("uninstall.sh", "--purge")).toMatchObject({ code: 0 });
    expect(existsSync(below("var/lib/berth"))).toBe(false);
    expect(existsSync(below("etc/berth"))).toBe(false);
  });
});
