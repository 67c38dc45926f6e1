import { describe, expect, test } from "bun:test";
import { isLoopback, loadManagerConfig } from "./config.ts";

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
  ])("%p", (argv, words) => {
    expect(() => load(argv)).toThrow(words);
  });

  test("variables of the manager come before common ones", () => {
    const env = { BERTH_MANAGER_DATA_DIR: "/a", BERTH_DATA_DIR: "/b", BERTH_LOG_LEVEL: "debug" };
    expect(load([], env)).toMatchObject({ dataDir: "/a", logLevel: "debug" });
  });
});
