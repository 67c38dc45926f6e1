import { afterEach, beforeEach, describe, expect, test } from "bun:test";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { selfSigned } from "./certificates.testing.ts";
import { credentialsPath, readCredentials } from "./credentials.ts";
import { runCli } from "./main.ts";
import { type FakeManager, fakeManager, problemResponse, type TestIoOptions, testIo } from "./testing.ts";
import { fingerprintMatches, fingerprintOf } from "./tls.ts";

let home: string;
let manager: FakeManager | undefined;
beforeEach(() => {
  home = mkdtempSync(join(tmpdir(), "berth-login-"));
});
afterEach(async () => {
  rmSync(home, { recursive: true });
  await manager?.stop();
});

const at = "2026-11-30T10:00:00.000Z";
const user = {
  id: "01930000-0000-7000-8000-0000000000aa",
  email: "kim@lab.example",
  name: "Kim",
  role: "user",
  active: true,
  uid: 1000,
  gid: 1000,
  policy: "default",
  createdAt: at,
  lastLoginAt: at,
  lockedUntil: null,
};
const me = { user, permissions: ["session.create"], expiresAt: null };
const token = {
  id: "01930000-0000-7000-8000-0000000000bb",
  name: "x",
  createdAt: at,
  expiresAt: at,
  lastUsedAt: null,
};

function signInManager(tls?: { cert: string; key: string }): FakeManager {
  let made = 0;
  manager = fakeManager(
    {
      "auth.login": ({ body }) =>
        JSON.stringify(body).includes("right")
          ? Response.json(me, { headers: { "set-cookie": "berth_session=abc; Path=/; HttpOnly" } })
          : problemResponse("wrong-credentials", "E-mail or password is wrong."),
      "tokens.create": ({ headers, body }) => {
        if (headers.get("cookie") !== "berth_session=abc") return problemResponse("not-signed-in", "No.");
        return { token: { ...token, ...Object(body) }, secret: `berth_secret${++made}` };
      },
      "auth.logout": () => undefined,
      "tokens.delete": () => undefined,
      "auth.me": ({ headers }) =>
        headers.get("authorization")?.startsWith("Bearer berth_secret")
          ? me
          : problemResponse("token-ended", "Ended."),
    },
    tls === undefined ? {} : { tls },
  );
  return manager;
}

async function run(argv: readonly string[], options: TestIoOptions = {}) {
  const io = testIo({ ...options, env: { HOME: home, ...options.env } });
  return { code: await runCli(argv, {}, io), io };
}
const kept = () => readCredentials(credentialsPath({ HOME: home }));
const WITH_PASSWORD = ["--email", "kim@lab.example", "--password-stdin"];

describe("login", () => {
  test("keeps a token of its own, not the password, and later commands use it", async () => {
    const { url } = signInManager();
    const { code, io } = await run(["login", url, ...WITH_PASSWORD], { stdin: "right\n" });
    expect(code).toBe(0);
    expect(io.stdout() + io.stderr()).not.toContain("berth_secret");
    expect(kept()).toMatchObject({ url, token: "berth_secret1", email: "kim@lab.example" });
    const create = manager?.callsOf("tokens.create")[0];
    expect(create?.body).toMatchObject({ name: expect.stringContaining("test-host") });
    expect(create?.headers.get("origin")).toBe(url);
    // The cookie's session does not stay open.
    expect(manager?.callsOf("auth.logout")).toHaveLength(1);
    const who = await run(["whoami", "--json"]);
    expect(JSON.parse(who.io.stdout())).toEqual(me);
  });

  test("again, it ends the token before", async () => {
    const { url } = signInManager();
    await run(["login", url, ...WITH_PASSWORD], { stdin: "right\n" });
    await run(["login", url, ...WITH_PASSWORD], { stdin: "right" });
    expect(kept()?.token).toBe("berth_secret2");
    const [ended] = manager?.callsOf("tokens.delete") ?? [];
    expect(ended?.params.token).toBe(token.id);
    expect(ended?.headers.get("authorization")).toBe("Bearer berth_secret1");
  });

  test("a wrong password is refused and nothing is kept", async () => {
    const { url } = signInManager();
    const { code, io } = await run(["login", url, ...WITH_PASSWORD], { stdin: "wrong\n" });
    expect(code).toBe(1);
    expect(io.stderr()).toContain("[wrong-credentials]");
    expect(kept()).toBeUndefined();
  });

  test("a password typed on a terminal is not shown", async () => {
    const { url } = signInManager();
    async function* keys() {
      for (const key of ["r", "i", "g", "g", "\u007f", "h", "t", "\r"]) yield Buffer.from(key);
    }
    const options = { stdin: keys(), stdinTty: true, stderrTty: true };
    const { code, io } = await run(["login", url, "--email", "kim@lab.example"], options);
    expect(code).toBe(0);
    expect(io.stderr()).toContain("Password of kim@lab.example: ");
    expect(io.stderr()).not.toContain("r i");
    expect(io.raw()).toEqual([true, false]);
  });

  test("logout ends the token and forgets it", async () => {
    const { url } = signInManager();
    await run(["login", url, ...WITH_PASSWORD], { stdin: "right\n" });
    const { code } = await run(["logout"]);
    expect(code).toBe(0);
    expect(kept()).toBeUndefined();
    expect(manager?.callsOf("auth.logout").at(-1)?.headers.get("authorization")).toBe("Bearer berth_secret1");
  });
});

describe("a certificate that nobody vouches for", () => {
  test("is refused with its fingerprint where nobody can be asked", async () => {
    const pair = await selfSigned();
    const { url } = signInManager(pair);
    const { code, io } = await run(["login", url, ...WITH_PASSWORD], { stdin: "right\n" });
    expect(code).toBe(1);
    expect(io.stderr()).toContain(fingerprintOf(pair.cert));
    expect(manager?.calls).toHaveLength(0);
  });

  test("is pinned by its fingerprint, and any other is refused from then on", async () => {
    const pair = await selfSigned();
    const { url } = signInManager(pair);
    const argv = ["login", url, ...WITH_PASSWORD, "--fingerprint", fingerprintOf(pair.cert)];
    expect((await run(argv, { stdin: "right\n" })).code).toBe(0);
    expect((await run(["whoami"])).code).toBe(0);

    await manager?.stop();
    const port = Number(new URL(url).port);
    const other = await selfSigned();
    const impostor = Bun.serve({ port, tls: other, fetch: () => Response.json(me) });
    try {
      const { code, io } = await run(["whoami"]);
      expect(code).toBe(1);
      expect(io.stderr()).toContain("[certificate-changed]");
    } finally {
      await impostor.stop(true);
    }
  });

  test("with another fingerprint than given, nothing is sent", async () => {
    const { url } = signInManager(await selfSigned());
    const wrong = fingerprintOf((await selfSigned()).cert);
    const { code, io } = await run(["login", url, ...WITH_PASSWORD, "--fingerprint", wrong], {
      stdin: "right\n",
    });
    expect(code).toBe(1);
    expect(io.stderr()).toContain("[wrong-fingerprint]");
    expect(manager?.calls).toHaveLength(0);
  });

  test("address, token and fingerprint of the environment are enough", async () => {
    const pair = await selfSigned();
    const { url } = signInManager(pair);
    const env = { BERTH_URL: url, BERTH_TOKEN: "berth_secret9", BERTH_FINGERPRINT: fingerprintOf(pair.cert) };
    expect((await run(["whoami"], { env })).code).toBe(0);
    const without = await run(["whoami"], { env: { ...env, BERTH_FINGERPRINT: "" } });
    expect(without.io.stderr()).toContain("[certificate-not-trusted]");
  });

  test("the manager's own certificate in a file is enough", async () => {
    const pair = await selfSigned();
    const { url } = signInManager(pair);
    const file = join(home, "https-cert.pem");
    writeFileSync(file, pair.cert);
    const env = { BERTH_CA: file };
    expect((await run(["login", url, ...WITH_PASSWORD], { stdin: "right\n", env })).code).toBe(0);
    expect((await run(["whoami"])).code).toBe(0);
    writeFileSync(file, (await selfSigned()).cert);
    expect((await run(["login", url, ...WITH_PASSWORD], { stdin: "right\n", env })).code).toBe(1);
    writeFileSync(file, "nothing");
    const { io } = await run(["login", url, ...WITH_PASSWORD], { stdin: "right\n", env });
    expect(io.stderr()).toContain("[invalid-ca]");
  });

  test("on a terminal a person decides", async () => {
    const pair = await selfSigned();
    const { url } = signInManager(pair);
    const answer = (text: string) => ({ stdin: text, stdinTty: true, stderrTty: true });
    const no = await run(["login", url, ...WITH_PASSWORD], answer("n\n"));
    expect([no.code, kept()]).toEqual([1, undefined]);
    expect(no.io.stderr()).toContain(fingerprintOf(pair.cert));
  });
});

test("a fingerprint may be written as hex or base64", async () => {
  const { cert } = await selfSigned();
  const hex = fingerprintOf(cert);
  const base64 = Buffer.from(hex.replaceAll(":", ""), "hex");
  for (const text of [
    hex,
    hex.toLowerCase(),
    hex.replaceAll(":", ""),
    `SHA256:${base64.toString("base64")}`,
  ]) {
    expect(fingerprintMatches(cert, text)).toBe(true);
  }
  expect(fingerprintMatches(cert, base64.toString("base64url"))).toBe(true);
  expect(fingerprintMatches(cert, `00${hex.slice(2)}`) && !hex.startsWith("00")).toBe(false);
});
