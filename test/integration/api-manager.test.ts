import { afterEach, beforeEach, describe, expect, test } from "bun:test";
import { existsSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { systemClock } from "../../src/kit/clock.ts";
import { silentLogger } from "../../src/kit/log.ts";
import { loadManagerConfig } from "../../src/manager/config.ts";
import { type RunningManager, startManager } from "../../src/manager/manager.ts";
import { openWriter } from "../../src/manager/store/sqlite.ts";
import { parseJoinToken } from "../../src/wire/join-token.ts";

// The manager of this process checks its answers against their schemas.
process.env.BERTH_CHECK_ANSWERS = "1";

let dir: string;
let running: RunningManager[];
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), "berth-manager-"));
  running = [];
});
afterEach(async () => {
  for (const manager of running) await manager.stop();
  rmSync(dir, { recursive: true, force: true });
});

const dataDir = () => join(dir, "data");
async function start(
  options: { folder?: string; listen?: string; more?: string[] } = {},
): Promise<RunningManager> {
  const { folder = dataDir(), listen = "127.0.0.1:0", more = [] } = options;
  const argv = ["--data-dir", folder, "--listen", listen, ...more];
  const { value: config } = loadManagerConfig({ argv, env: {} });
  const manager = await startManager({ config, clock: systemClock, log: silentLogger });
  running.push(manager);
  return manager;
}
const call = (
  url: string,
  method: string,
  path: string,
  json?: unknown,
  headers: Record<string, string> = {},
) =>
  fetch(`${url}${path}`, {
    method,
    tls: { rejectUnauthorized: false },
    headers: { ...(json === undefined ? {} : { "content-type": "application/json" }), ...headers },
    ...(json === undefined ? {} : { body: JSON.stringify(json) }),
  });

describe("a manager", () => {
  test("serves the whole API with its first administrator, and keeps logins over a restart", async () => {
    const first = await start();
    const file = join(dataDir(), "initial-admin.json");
    const admin = JSON.parse(readFileSync(file, "utf8"));
    expect(statSync(file).mode & 0o777).toBe(0o600);
    expect(statSync(dataDir()).mode & 0o777).toBe(0o700);
    expect(admin).toEqual({ ...first.firstAdmin });
    expect(admin.url).toBe(first.url);

    const login = await call(admin.url, "POST", "/api/v1/auth/login", {
      email: admin.email,
      password: admin.password,
    });
    expect(login.status).toBe(200);
    const cookie = (login.headers.get("set-cookie") ?? "").split(";")[0] ?? "";
    const groups = await call(admin.url, "GET", "/api/v1/groups", undefined, { cookie });
    expect(await groups.json()).toMatchObject({ items: [{ name: "default", isDefault: true }] });
    const images = await call(admin.url, "GET", "/api/v1/images", undefined, { cookie });
    expect(((await images.json()) as { items: unknown[] }).items.length).toBeGreaterThan(1);
    await first.stop();
    expect(existsSync(join(dataDir(), "admin.sock"))).toBe(false);

    const second = await start();
    expect(second.firstAdmin).toBeUndefined();
    expect(JSON.parse(readFileSync(file, "utf8"))).toEqual({ ...admin, url: second.url });
    const me = await call(second.url, "GET", "/api/v1/me", undefined, { cookie });
    expect(await me.json()).toMatchObject({ user: { email: "admin@berth.local", role: "superadmin" } });
    const again = await call(second.url, "GET", "/api/v1/images", undefined, { cookie });
    expect(((await again.json()) as { items: unknown[] }).items.length).toBeGreaterThan(1);
  });

  test("answers root on its socket, whose join tokens lead to the port of the agents", async () => {
    const manager = await start();
    const unix = join(dataDir(), "admin.sock");
    const response = await fetch("http://manager/api/v1/join-tokens", { method: "POST", unix });
    const { secret } = (await response.json()) as { secret: string };
    expect(parseJoinToken(secret).port).toBe(manager.agentPort);
    expect(parseJoinToken(await manager.createJoinToken()).port).toBe(manager.agentPort);
  });

  test("tells of itself before anybody signed in", async () => {
    const { url } = await start();
    expect(await (await call(url, "GET", "/readyz")).json()).toEqual({ status: "ready", agentsReady: 0 });
    expect(await (await call(url, "GET", "/api/v1/version")).json()).toMatchObject({ apiVersion: 1 });
    expect((await call(url, "GET", "/metrics")).status).toBe(401);
  });

  test("speaks HTTPS with a certificate that it keeps, unless the address is loopback", async () => {
    const first = await start({ listen: "0.0.0.0:0" });
    expect(first.url).toStartWith("https://");
    const local = `https://127.0.0.1:${new URL(first.url).port}`;
    expect((await call(local, "GET", "/healthz")).status).toBe(200);
    const kept = readFileSync(join(dataDir(), "https.pem"), "utf8");
    await first.stop();
    await start({ listen: "0.0.0.0:0" });
    expect(readFileSync(join(dataDir(), "https.pem"), "utf8")).toBe(kept);
  });

  test("behind a proxy believes what the proxy says of scheme and name", async () => {
    const { url } = await start({ more: ["--behind-proxy", "--public-url", "https://berth.lab.test"] });
    expect(url).toBe("https://berth.lab.test");
  });
});

describe("what keeps it from starting is told, and nothing is left running", () => {
  test("a folder in use", async () => {
    await start();
    await expect(start()).rejects.toMatchObject({ code: "data-dir-in-use" });
  });

  test("a port in use", async () => {
    const { url } = await start();
    const { port } = new URL(url);
    const again = () =>
      start({
        folder: join(dir, "other"),
        listen: `127.0.0.1:${port}`,
        more: ["--agent-listen=127.0.0.1:0"],
      });
    await expect(again()).rejects.toMatchObject({ code: "port-in-use" });
    // The lock was released again, so the second try gets as far as the first.
    await expect(again()).rejects.toMatchObject({ code: "port-in-use" });
  });

  test("a database of a newer Berth", async () => {
    await (await start()).stop();
    const database = openWriter(join(dataDir(), "berth.sqlite"), "OFF");
    database.exec("pragma user_version = 999");
    database.close();
    await expect(start()).rejects.toMatchObject({ code: "schema-too-new" });
  });

  test("a damaged CA, which another one would not replace", async () => {
    await (await start()).stop();
    writeFileSync(join(dataDir(), "ca.pem"), "");
    await expect(start()).rejects.toMatchObject({ code: "bad-certificate" });
  });

  test("a certificate that cannot be read", async () => {
    const wanted = start({ more: ["--tls-cert=/nowhere/c.pem", "--tls-key=/nowhere/k.pem"] });
    await expect(wanted).rejects.toMatchObject({ code: "invalid-config", field: "tlsCert" });
  });
});
