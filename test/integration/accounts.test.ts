import { afterEach, beforeEach, describe, expect, test } from "bun:test";
import { readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { ensureFirstAdmin, updateFirstAdminUrl } from "../../src/manager/accounts/first-admin.ts";
import { createPasswords } from "../../src/manager/accounts/passwords.ts";
import { readProblem, startTestApi, type TestApi } from "../../src/manager/http/testing.ts";
import { createPolicies } from "../../src/manager/policies/service.ts";
import { openTestStore } from "../../src/manager/store/testing.ts";

let api: TestApi;
beforeEach(async () => {
  api = await startTestApi();
});
afterEach(() => api.close());

const MINUTE = 60_000;
const DAY = 24 * 60 * MINUTE;
const login = (email: string, password: string, headers: Record<string, string> = {}) =>
  api.call("POST", "/api/v1/auth/login", { json: { email, password }, headers });
const cookieOf = (response: Response) => (response.headers.get("set-cookie") ?? "").split(";")[0] ?? "";

describe("signing in", () => {
  test("gives a cookie that scripts cannot read, and tells who one is", async () => {
    const { principal, password } = await api.newUser("admin");
    const response = await login(principal.email.toUpperCase(), password);
    expect(response.status).toBe(200);
    expect(response.headers.get("set-cookie")).toMatch(
      /^berth_session=berthlogin_\S{43}; Path=\/; HttpOnly; SameSite=Strict; Max-Age=604800$/,
    );
    expect(await response.json()).toMatchObject({
      user: { email: principal.email, role: "admin", active: true },
      permissions: expect.arrayContaining(["user.write"]),
    });
    const me = await api.call("GET", "/api/v1/me", { headers: { cookie: cookieOf(response) } });
    expect(me.status).toBe(200);
  });

  test("the wrong password and an unknown address get the same refusal", async () => {
    const { principal } = await api.newUser("user");
    const wrong = await readProblem(await login(principal.email, "not the password"));
    const unknown = await readProblem(await login("nobody@lab.test", "not the password"));
    const empty = await readProblem(await login(principal.email, ""));
    expect(wrong).toMatchObject({ status: 401, code: "wrong-credentials" });
    expect([unknown.detail, empty.detail]).toEqual([wrong.detail, wrong.detail]);
  });

  test("ends after seven days and on signing out", async () => {
    const { principal, password } = await api.newUser("user");
    const cookie = cookieOf(await login(principal.email, password));
    const me = () => api.call("GET", "/api/v1/me", { headers: { cookie } });
    api.clock.advance(7 * DAY - 1);
    expect((await me()).status).toBe(200);
    api.clock.advance(1);
    expect(await readProblem(await me())).toMatchObject({ code: "token-ended" });

    const second = cookieOf(await login(principal.email, password));
    const headers = { cookie: second, origin: api.url };
    const out = await api.call("POST", "/api/v1/auth/logout", { headers });
    expect([out.status, out.headers.get("set-cookie")]).toEqual([204, expect.stringContaining("Max-Age=0")]);
    const after = await api.call("GET", "/api/v1/me", { headers });
    expect(after.status).toBe(401);
  });

  test("a cookie changes things only from exactly our origin, a token from anywhere", async () => {
    const { principal, password, secret } = await api.newUser("user");
    const cookie = cookieOf(await login(principal.email, password));
    const create = (headers: Record<string, string>) =>
      api.call("POST", "/api/v1/tokens", { json: { name: crypto.randomUUID() }, headers });
    const { host } = new URL(api.url);
    for (const origin of [undefined, "http://evil.test", `https://${host}`, "http://127.0.0.1:1", "null"]) {
      const response = await create({ cookie, ...(origin === undefined ? {} : { origin }) });
      expect([origin, (await readProblem(response)).code]).toEqual([origin, "wrong-origin"]);
    }
    expect((await create({ cookie, origin: api.url })).status).toBe(201);
    expect((await create({ authorization: `Bearer ${secret}`, origin: "http://evil.test" })).status).toBe(
      201,
    );
    expect(
      (await api.call("GET", "/api/v1/me", { headers: { cookie, origin: "http://evil.test" } })).status,
    ).toBe(200);
    expect(
      await readProblem(await login(principal.email, password, { origin: "http://evil.test" })),
    ).toMatchObject({
      code: "wrong-origin",
    });
  });

  test("logins and tokens outlive a restart", async () => {
    const { secret } = await api.newUser("user");
    api.accounts.authenticator.forgetAll();
    expect((await api.call("GET", "/api/v1/me", { token: secret })).status).toBe(200);
  });
});

describe("ten failures", () => {
  const fail = async (email: string, times: number) => {
    for (let i = 0; i < times; i++) await login(email, "wrong");
  };

  test("lock the account for that address for 20 minutes", async () => {
    const { principal, password } = await api.newUser("user");
    await fail(principal.email, 9);
    expect((await login(principal.email, password)).status).toBe(200);
    await fail(principal.email, 10);
    const locked = await login(principal.email, password);
    expect(locked.headers.get("retry-after")).toBe("1200");
    expect(await readProblem(locked)).toMatchObject({ status: 429, code: "account-locked" });
    api.clock.advance(20 * MINUTE - 1);
    expect((await login(principal.email, password)).status).toBe(429);
    api.clock.advance(1);
    expect((await login(principal.email, password)).status).toBe(200);
  });

  test("many at once cannot pass the limit together", async () => {
    const { principal } = await api.newUser("user");
    const tries = await Promise.all(Array.from({ length: 30 }, () => login(principal.email, "wrong")));
    expect(tries.filter(({ status }) => status === 401)).toHaveLength(10);
  });

  test("from one address do not lock another, and not the token", async () => {
    await api.close();
    api = await startTestApi({ behindProxy: true });
    const { principal, password, secret } = await api.newUser("user");
    const from = (address: string, word: string) =>
      login(principal.email, word, { "x-forwarded-for": address });
    for (let i = 0; i < 10; i++) await from("203.0.113.9", "wrong");
    expect((await from("203.0.113.9", password)).status).toBe(429);
    expect((await from("203.0.113.10", password)).status).toBe(200);
    expect((await api.call("GET", "/api/v1/me", { token: secret })).status).toBe(200);
  });

  test("from addresses of one IPv6 network count together", async () => {
    await api.close();
    api = await startTestApi({ behindProxy: true });
    const { principal, password } = await api.newUser("user");
    const from = (address: string, word: string) =>
      login(principal.email, word, { "x-forwarded-for": address });
    for (let i = 0; i < 10; i++) await from(`2001:db8:5:6::${i}`, "wrong");
    expect((await from("2001:db8:5:6:ffff::1", password)).status).toBe(429);
    expect((await from("2001:db8:5:7::1", password)).status).toBe(200);
  });

  test("are forgotten by unlock", async () => {
    const { principal, password } = await api.newUser("user");
    const admin = await api.newUser("admin");
    await fail(principal.email, 10);
    const shown = await api.call("GET", `/api/v1/users/${principal.email}`, { token: admin.secret });
    expect(await shown.json()).toMatchObject({ lockedUntil: expect.any(String) });
    const unlock = await api.call("POST", `/api/v1/users/${principal.email}/unlock`, { token: admin.secret });
    expect(await unlock.json()).toEqual({ unlocked: 1 });
    expect((await login(principal.email, password)).status).toBe(200);
  });

  test("of an unknown address lock it alike", async () => {
    await fail("nobody@lab.test", 10);
    expect((await login("nobody@lab.test", "wrong")).status).toBe(429);
  });
});

describe("API tokens", () => {
  test("have a name, an end and a last use, and are told once", async () => {
    const { secret } = await api.newUser("user");
    const json = { name: "laptop", ttl: "1h" };
    const made = await (await api.call("POST", "/api/v1/tokens", { token: secret, json })).json();
    const { secret: text, token } = made as { secret: string; token: { name: string } };
    expect([text, token.name]).toEqual([expect.stringMatching(/^berth_\S{43}$/), "laptop"]);
    expect((await api.call("GET", "/api/v1/me", { token: text })).status).toBe(200);
    await api.accounts.authenticator.flush();
    const list = await (await api.call("GET", "/api/v1/tokens", { token: secret })).text();
    expect(list).not.toContain(text);
    expect(JSON.parse(list).items).toContainEqual(
      expect.objectContaining({ name: "laptop", lastUsedAt: new Date(api.clock.wall()).toISOString() }),
    );
    api.clock.advance(60 * MINUTE);
    expect(await readProblem(await api.call("GET", "/api/v1/me", { token: text }))).toMatchObject({
      code: "token-ended",
    });
  });

  test.each(["0s", "366d", "soon"])("a life of %s is refused", async (ttl) => {
    const { secret } = await api.newUser("user");
    const response = await api.call("POST", "/api/v1/tokens", { token: secret, json: { name: "x", ttl } });
    expect(await readProblem(response)).toMatchObject({ status: 400, field: "ttl" });
  });

  test("have names of their own while they work, are ended by name, and one sees only one's own", async () => {
    const { secret } = await api.newUser("user");
    const other = await api.newUser("user");
    const create = () => api.call("POST", "/api/v1/tokens", { token: secret, json: { name: "twin" } });
    const end = (name: string, token = secret) => api.call("DELETE", `/api/v1/tokens/${name}`, { token });
    const first = (await (await create()).json()) as { token: { id: string }; secret: string };
    expect((await end("twin", other.secret)).status).toBe(404);
    expect(await readProblem(await create())).toMatchObject({
      status: 409,
      code: "name-in-use",
      field: "name",
    });
    expect((await end(first.token.id)).status).toBe(204);
    expect((await api.call("GET", "/api/v1/me", { token: first.secret })).status).toBe(401);
    expect((await create()).status).toBe(201);
    expect((await end("twin")).status).toBe(204);
    expect((await end("twin")).status).toBe(404);
  });
});

describe("managing people", () => {
  const patch = (key: string, json: unknown, token: string) =>
    api.call("PATCH", `/api/v1/users/${key}`, { token, json });

  test("create, find, change", async () => {
    const { secret } = await api.newUser("admin");
    const json = { email: "Kim@Lab.Test", name: "Kim" };
    const made = await api.call("POST", "/api/v1/users", { token: secret, json });
    expect(made.status).toBe(201);
    const { password } = (await made.json()) as { password: string };
    expect((await login("kim@lab.test", password)).status).toBe(200);
    expect(await readProblem(await api.call("POST", "/api/v1/users", { token: secret, json }))).toMatchObject(
      {
        status: 409,
        code: "email-in-use",
        field: "email",
      },
    );
    expect(await (await patch("kim@lab.test", { uid: 1234 }, secret)).json()).toMatchObject({
      uid: 1234,
      name: "Kim",
    });
    expect(await readProblem(await patch("kim@lab.test", { policy: "nope" }, secret))).toMatchObject({
      code: "policy-not-found",
    });
    expect((await patch("nobody@lab.test", {}, secret)).status).toBe(404);
  });

  test("pages hold every user once, in order, also when some are added meanwhile", async () => {
    const { secret } = await api.newUser("admin");
    for (let i = 0; i < 5; i++) {
      await api.newUser("user");
      api.clock.advance(i % 2);
    }
    const seen: string[] = [];
    let cursor: string | null = "";
    while (cursor !== null) {
      const query: string = cursor === "" ? "" : `&cursor=${cursor}`;
      const page = await api.call("GET", `/api/v1/users?limit=2${query}`, { token: secret });
      const { items, next } = (await page.json()) as { items: { email: string }[]; next: string | null };
      seen.push(...items.map(({ email }) => email));
      if (seen.length === 2) await api.newUser("user");
      cursor = next;
    }
    expect(new Set(seen).size).toBe(7);
    expect(seen).toHaveLength(7);
  });

  test("the search takes what is typed literally", async () => {
    const { secret } = await api.newUser("admin", "a_b%c@lab.test");
    await api.newUser("user", "axbyc@lab.test");
    const found = async (q: string) => {
      const page = await api.call("GET", `/api/v1/users?q=${encodeURIComponent(q)}`, { token: secret });
      return ((await page.json()) as { items: unknown[] }).items.length;
    };
    expect([await found("a_b"), await found("%"), await found("lab.test")]).toEqual([1, 1, 2]);
  });

  test("an administrator manages users only", async () => {
    const { secret } = await api.newUser("admin");
    const root = await api.newUser("superadmin");
    const peer = await api.newUser("admin");
    const user = await api.newUser("user");
    const refused = async (response: Promise<Response>) =>
      expect((await readProblem(await response)).code).toBe("not-permitted");
    await refused(patch(root.principal.email, { active: false }, secret));
    await refused(patch(peer.principal.email, { active: false }, secret));
    await refused(patch(user.principal.email, { role: "admin" }, secret));
    await refused(
      api.call("POST", "/api/v1/users", { token: secret, json: { email: "b@lab.test", role: "superadmin" } }),
    );
    await refused(
      api.call("POST", `/api/v1/users/${root.principal.email}/password`, { token: secret, json: {} }),
    );
    await refused(api.call("POST", `/api/v1/users/${root.principal.email}/unlock`, { token: secret }));
  });

  test("the last active superadmin stays", async () => {
    const first = await api.newUser("superadmin");
    const second = await api.newUser("superadmin");
    const gone = { active: false };
    expect((await patch(first.principal.email, gone, second.secret)).status).toBe(200);
    for (const change of [gone, { role: "admin" }]) {
      expect(await readProblem(await patch(second.principal.email, change, second.secret))).toMatchObject({
        status: 409,
        code: "last-superadmin",
      });
    }
    expect((await patch(second.principal.email, { name: "Still here" }, second.secret)).status).toBe(200);
  });

  test("a new password ends the logins, a changed one all but one's own", async () => {
    const { principal, password, secret } = await api.newUser("user");
    const admin = await api.newUser("admin");
    const one = cookieOf(await login(principal.email, password));
    const two = cookieOf(await login(principal.email, password));
    const me = async (cookie: string) =>
      (await api.call("GET", "/api/v1/me", { headers: { cookie } })).status;
    const change = (current: string) =>
      api.call("POST", "/api/v1/me/password", {
        json: { current, next: "a new password" },
        headers: { cookie: one, origin: api.url },
      });
    expect(await readProblem(await change("wrong"))).toMatchObject({
      code: "wrong-credentials",
      field: "current",
    });
    expect((await change(password)).status).toBe(204);
    expect([await me(one), await me(two)]).toEqual([200, 401]);
    const reset = await api.call("POST", `/api/v1/users/${principal.email}/password`, {
      token: admin.secret,
      json: {},
    });
    const { password: made } = (await reset.json()) as { password: string };
    expect(await me(one)).toBe(401);
    expect((await login(principal.email, made)).status).toBe(200);
    expect((await api.call("GET", "/api/v1/me", { token: secret })).status).toBe(200);
  });
});

describe("deactivating a user", () => {
  test("ends tokens, logins and streams at once, and for good", async () => {
    const { principal, password, secret } = await api.newUser("user");
    const admin = await api.newUser("admin");
    const cookie = cookieOf(await login(principal.email, password));
    const stream = await api.call("GET", "/api/v1/events", { token: secret });
    const open = stream.text();
    while (api.accounts.revocations.size() === 0) await Bun.sleep(1);
    const patch = (active: boolean) =>
      api.call("PATCH", `/api/v1/users/${principal.email}`, { token: admin.secret, json: { active } });
    expect((await patch(false)).status).toBe(200);
    expect(await open).toStartWith("retry:");
    const me = (options: object) => api.call("GET", "/api/v1/me", options).then(readProblem);
    expect(await me({ token: secret })).toMatchObject({ status: 401, code: "account-inactive" });
    expect(await me({ headers: { cookie } })).toMatchObject({ code: "account-inactive" });
    expect(await readProblem(await login(principal.email, password))).toMatchObject({
      code: "account-inactive",
    });
    await patch(true);
    expect(await me({ token: secret })).toMatchObject({ code: "token-ended" });
    expect((await login(principal.email, password)).status).toBe(200);
  });

  test("a request that was looked up just before cannot leave its answer behind", async () => {
    const { principal, secret } = await api.newUser("user");
    api.accounts.authenticator.forgetAll();
    const early = api.accounts.authenticator.authenticate(secret);
    await api.accounts.users.update(principal.email, { active: false }, { kind: "local" });
    await early.catch(() => {});
    await expect(api.accounts.authenticator.authenticate(secret)).rejects.toMatchObject({
      code: "account-inactive",
    });
  });
});

describe("the first start", () => {
  test("makes a superadmin whose password is in a private file, once", async () => {
    const store = await openTestStore(api.clock);
    const policies = createPolicies({ store, clock: api.clock });
    await policies.ensureDefault();
    const passwords = createPasswords({ memoryKiB: 1024, passes: 2 });
    const dataDir = store.dir;
    const file = join(dataDir, "initial-admin.json");
    const start = () =>
      ensureFirstAdmin({ store, clock: api.clock, passwords, policies, dataDir, url: "http://127.0.0.1:1" });
    const first = await start();
    expect(statSync(file).mode & 0o777).toBe(0o600);
    expect(JSON.parse(readFileSync(file, "utf8"))).toEqual({ ...first });
    expect(await start()).toBeUndefined();
    await updateFirstAdminUrl(dataDir, "http://127.0.0.1:2");
    expect(JSON.parse(readFileSync(file, "utf8"))).toEqual({ ...first, url: "http://127.0.0.1:2" });
    await store.close();
  });

  test("cut between the file and the account makes a new password that works", async () => {
    const store = await openTestStore(api.clock);
    const policies = createPolicies({ store, clock: api.clock });
    await policies.ensureDefault();
    const passwords = createPasswords({ memoryKiB: 1024, passes: 2 });
    const cut = { ...store, write: () => Promise.reject(new Error("power loss")) };
    const start = (with_: typeof store) =>
      ensureFirstAdmin({ store: with_, clock: api.clock, passwords, policies, dataDir: store.dir, url: "u" });
    await expect(start(cut as typeof store)).rejects.toThrow("power loss");
    const admin = await start(store);
    const told = JSON.parse(readFileSync(join(store.dir, "initial-admin.json"), "utf8"));
    expect(told.password).toBe(admin?.password ?? "");
    await store.close();
  });
});
