import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { mkdtempSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { ALL_ROUTES } from "../../src/contract/api.ts";
import { ROLES, type Role, roleMay } from "../../src/contract/permissions.ts";
import type { Route } from "../../src/contract/route.ts";
import { readProblem, STUB, startTestApi, type TestApi } from "../../src/manager/http/testing.ts";

type Caller = Role | "anonymous" | "deactivated" | "expired" | "unknown-token" | "local";
const CALLERS: readonly Caller[] = [
  ...ROLES,
  "anonymous",
  "deactivated",
  "expired",
  "unknown-token",
  "local",
];

let api: TestApi;
let local: TestApi;
let socketDir: string;
const tokens = new Map<Caller, string>();

beforeAll(async () => {
  api = await startTestApi();
  for (const role of ROLES) tokens.set(role, (await api.newUser(role)).secret);
  const expiring = await api.newUser("superadmin");
  const short = await api.accounts.tokens.create(expiring.principal, "short", 1000);
  tokens.set("expired", short.secret);
  api.clock.advance(1000);
  const leaving = await api.newUser("superadmin");
  await api.accounts.users.update(leaving.principal.email, { active: false }, { kind: "local" });
  tokens.set("deactivated", leaving.secret);
  tokens.set("unknown-token", "berth_nobodyhasthis");
  socketDir = mkdtempSync(join(tmpdir(), "berth-socket-"));
  local = await startTestApi({ server: { listen: { path: join(socketDir, "admin.sock") } } });
});
afterAll(async () => {
  await api.close();
  await local.close();
  rmSync(socketDir, { recursive: true, force: true });
});

const WEBSOCKET_HEADERS = {
  connection: "Upgrade",
  upgrade: "websocket",
  "sec-websocket-version": "13",
  "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
};

/** A path and body that the schemas take in general; what matters is only how far the request comes. */
function ask(caller: Caller, route: Route): Promise<Response> {
  const path = route.path.replaceAll(/\{\w+\}/g, "01890000-0000-7000-8000-000000000000");
  const token = tokens.get(caller);
  const target = caller === "local" ? local : api;
  // The end of one's own sign-in would end the test's too.
  const own = ["auth.logout", "auth.change-password"].includes(route.id);
  return target.call(route.method, path, {
    ...(token === undefined ? {} : { token }),
    ...(caller === "local" ? { unix: join(socketDir, "admin.sock") } : {}),
    ...(route.body === undefined ? {} : { json: own ? { wrong: 1 } : {} }),
    ...(route.answer.kind === "websocket" ? { headers: WEBSOCKET_HEADERS } : {}),
  });
}

/** What the table of permissions says: the code of the refusal, or undefined when the request may pass. */
function refusalFor(caller: Caller, route: Route): string | undefined {
  const { access } = route;
  if (access.kind === "public" || caller === "local") return undefined;
  if (caller === "anonymous") return "not-signed-in";
  if (caller === "deactivated") return "account-inactive";
  if (caller === "expired" || caller === "unknown-token") return "token-ended";
  if (access.kind === "signed-in") return undefined;
  return roleMay(caller, access.permission) ? undefined : "not-permitted";
}

const REFUSALS = ["not-signed-in", "account-inactive", "token-ended", "not-permitted"];

describe("every route lets in exactly whom its access names", () => {
  for (const caller of CALLERS) {
    test(caller, async () => {
      const wrong: string[] = [];
      for (const route of ALL_ROUTES) {
        if (route.id === "auth.logout" && caller !== "anonymous") continue;
        const response = await ask(caller, route);
        if (response.ok) {
          await response.body?.cancel();
          if (refusalFor(caller, route) !== undefined) wrong.push(`${route.id}: let in`);
          continue;
        }
        const { code } = await readProblem(response);
        const refusal = REFUSALS.includes(code) ? code : undefined;
        if (refusal !== refusalFor(caller, route)) wrong.push(`${route.id}: ${code}`);
        if (refusal !== undefined) expect([401, 403]).toContain(response.status);
      }
      expect(wrong).toEqual([]);
    });
  }
});

describe("before access is decided nothing of the request is looked at", () => {
  test("a broken body of a stranger gets 401, not 400", async () => {
    const response = await api.call("POST", "/api/v1/sessions", {
      body: "{",
      headers: { "content-type": "x/y" },
    });
    expect(response.status).toBe(401);
    expect(response.headers.get("www-authenticate")).toContain("Bearer");
  });

  test("a user without the right gets 403 for a bad query too", async () => {
    const response = await api.call("GET", "/api/v1/users?nonsense=1", { token: tokens.get("user") ?? "" });
    expect(response.status).toBe(403);
    expect(await response.json()).toMatchObject({
      code: "not-permitted",
      details: { permission: "user.read" },
    });
  });
});

describe("the admin socket", () => {
  const unix = () => ({ unix: join(socketDir, "admin.sock") });

  test("is open to its owner alone", () => {
    expect(statSync(join(socketDir, "admin.sock")).mode & 0o777).toBe(0o600);
  });

  test("has every right", async () => {
    const response = await local.call("POST", "/api/v1/join-tokens", { ...unix(), json: {} });
    expect((await readProblem(response)).code).toBe(STUB);
  });

  test("has no account that could own a token", async () => {
    const response = await local.call("POST", "/api/v1/tokens", { ...unix(), json: { name: "x" } });
    expect(response.status).toBe(400);
    expect(await response.json()).toMatchObject({ code: "needs-a-user" });
  });

  test("a token that is sent through it counts as that user", async () => {
    const { secret } = await local.newUser("user");
    const response = await local.call("GET", "/api/v1/users", { ...unix(), token: secret });
    expect(response.status).toBe(403);
  });
});
