import { describe, expect, test } from "bun:test";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { systemClock } from "../kit/clock.ts";
import { selfSignedHttps } from "../wire/ca.ts";
import { checkManagerConfig, isLoopback, loadManagerConfig } from "./config.ts";

const load = (argv: readonly string[], env: Record<string, string> = {}) =>
  loadManagerConfig({ argv, env }).value;

describe("addresses", () => {
  test.each([
    ["127.0.0.1:7410", "127.0.0.1", 7410],
    [":80", "0.0.0.0", 80],
    ["[::1]:0", "::1", 0],
    ["lab.example.org:443", "lab.example.org", 443],
  ])("%s", (text, host, port) => {
    expect(load(["--listen", text]).listen).toEqual({ host, port });
  });

  test.each(["7410", "localhost", "1.2.3.4:99999", "::1:80", "a b:80", ""])(
    "%p is refused by name",
    (text) => {
      expect(() => load([`--listen=${text}`])).toThrow(/^listen \(flag --listen\): .*no address such as/);
    },
  );

  test.each([
    ["127.0.0.1", true],
    ["127.8.9.1", true],
    ["localhost", true],
    ["::1", true],
    ["0.0.0.0", false],
    ["127.0.0.1.evil.test", false],
    ["192.168.0.1", false],
  ])("%s is loopback: %p", (host, expected) => {
    expect(isLoopback(host)).toBe(expected);
  });
});

describe("what goes together", () => {
  test.each([
    [["--tls-cert", "c.pem"], "go together"],
    [["--tls-cert", "c", "--tls-key", "k", "--behind-proxy"], "does not go with"],
    [["--agent-lost-after", "6s"], "at least twice"],
    [["--public-url", "berth.example.org"], "must be a URL"],
    [["--log-level", "loud"], "must be one of"],
    [["--listen", "127.0.0.1:65535"], "give agent-listen, or a lower port"],
    [
      ["--trusted-proxies", "zzz"],
      'trusted-proxies (flag --trusted-proxies): "zzz" is no address or network',
    ],
    [["--trusted-proxies", "10.0.0.1,10.0.0.0/99"], '"10.0.0.0/99" is no address or network'],
    ...["agent-heartbeat", "agent-report", "agent-usage"].flatMap((key): [string[], string][] =>
      ["0s", "999ms", "25h"].map((value) => [
        [`--${key}`, value],
        `${key} (flag --${key}): must be between 1s and 1d`,
      ]),
    ),
  ])("%p", (argv, words) => {
    expect(() => load(argv)).toThrow(words);
  });

  test("variables of the manager come before common ones", () => {
    const env = { BERTH_MANAGER_DATA_DIR: "/a", BERTH_DATA_DIR: "/b", BERTH_LOG_LEVEL: "debug" };
    expect(load([], env)).toMatchObject({ dataDir: "/a", logLevel: "debug" });
  });
});

test("the last port is right where agents have their own, and networks are taken as they are written", () => {
  const networks = ["192.0.2.1", "10.0.0.0/8", "fd00::/8"];
  const argv = ["--listen", ":65535", "--agent-listen", ":7411", "--trusted-proxies", networks.join(",")];
  expect(load(argv)).toMatchObject({ listen: { port: 65_535 }, trustedProxies: networks });
});

test("a check looks into the files of certificate and key, and whether they belong together", async () => {
  const dir = mkdtempSync(join(tmpdir(), "berth-config-"));
  const write = (name: string, text: string) => {
    writeFileSync(join(dir, name), text);
    return join(dir, name);
  };
  const make = () => selfSignedHttps({ hosts: ["localhost"], clock: systemClock });
  const [one, other] = [await make(), await make()];
  const cert = write("cert.pem", one.certPem);
  const key = write("key.pem", one.keyPem);
  const check = (certPath: string, keyPath: string) =>
    checkManagerConfig(["--tls-cert", certPath, "--tls-key", keyPath]);
  const refused = async (certPath: string, keyPath: string, field: string, words: string) =>
    expect(check(certPath, keyPath)).rejects.toMatchObject({
      code: "invalid-config",
      field,
      message: expect.stringContaining(words),
    });
  try {
    await refused(join(dir, "none.pem"), key, "tlsCert", "none.pem cannot be read");
    await refused(cert, join(dir, "none.pem"), "tlsKey", "none.pem cannot be read");
    await refused(key, key, "tlsCert", "holds no PEM text");
    await refused(
      write("bad.pem", "-----BEGIN CERTIFICATE-----\nx\n"),
      key,
      "tlsCert",
      "bad.pem is not valid",
    );
    await refused(
      cert,
      write("bad.key", "-----BEGIN PRIVATE KEY-----\nx\n"),
      "tlsKey",
      "bad.key is not valid",
    );
    await refused(cert, write("other.pem", other.keyPem), "tlsKey", "is not the key of the certificate");
    expect((await check(cert, key)).value.tlsCert).toBe(cert);
  } finally {
    rmSync(dir, { recursive: true });
  }
});

test.each([
  [[], { host: "127.0.0.1", port: 7411 }],
  [["--listen", "[::1]:0"], { host: "::1", port: 0 }],
  [["--agent-listen", "10.0.0.1:9"], { host: "10.0.0.1", port: 9 }],
])("a check tells where agents are awaited: %p", async (argv, agentListen) => {
  const { value, sources } = await checkManagerConfig(argv);
  expect(value.agentListen).toEqual(agentListen);
  expect(sources.agentListen).toBe(argv[0] === "--agent-listen" ? "flag --agent-listen" : "default");
});
