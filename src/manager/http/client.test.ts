import { describe, expect, test } from "bun:test";
import { createClientReader } from "./client.ts";

const read = (
  peer: string,
  headers: Record<string, string>,
  options: { behindProxy?: boolean; trustedProxies?: readonly string[] } = {},
) =>
  createClientReader({ behindProxy: true, trustedProxies: [], ...options })({
    remoteAddress: peer,
    encrypted: false,
    header: (name) => headers[name],
  });

describe("who the client is", () => {
  test("forwarded headers count for nothing without a proxy, and from a stranger", () => {
    const lie = {
      "x-forwarded-for": "1.2.3.4",
      "x-forwarded-proto": "https",
      "x-forwarded-host": "evil.test",
      host: "us",
    };
    const plain = { secure: false, host: "us" };
    expect(read("10.0.0.1", lie, { behindProxy: false })).toEqual({ address: "10.0.0.1", ...plain });
    expect(read("203.0.113.7", lie)).toEqual({ address: "203.0.113.7", ...plain });
  });

  test.each([
    ["203.0.113.7", "203.0.113.7"],
    // What a client puts in front by itself is not believed.
    ["1.1.1.1, 203.0.113.7", "203.0.113.7"],
    ["203.0.113.7, 10.0.0.9", "203.0.113.7"],
    ["10.9.9.9, 10.0.0.9", "10.9.9.9"],
    ["nonsense", "127.0.0.1"],
    ["", "127.0.0.1"],
    ["::ffff:203.0.113.7", "203.0.113.7"],
    ["2001:db8::1", "2001:db8::1"],
  ])("X-Forwarded-For %p is %s", (chain, address) => {
    expect(read("::ffff:127.0.0.1", { "x-forwarded-for": chain }).address).toBe(address);
  });

  test("the proxy tells scheme and host", () => {
    const headers = {
      "x-forwarded-proto": "https",
      "x-forwarded-host": "berth.lab.test",
      host: "10.0.0.2:7410",
    };
    expect(read("127.0.0.1", headers)).toMatchObject({ secure: true, host: "berth.lab.test" });
  });

  test("only listed proxies are trusted when some are listed", () => {
    const options = { trustedProxies: ["192.0.2.0/24", "2001:db8::5"] };
    const headers = { "x-forwarded-for": "203.0.113.7" };
    expect(read("127.0.0.1", headers, options).address).toBe("127.0.0.1");
    expect(read("192.0.2.200", headers, options).address).toBe("203.0.113.7");
    expect(read("2001:db8::5", headers, options).address).toBe("203.0.113.7");
    expect(() => createClientReader({ behindProxy: true, trustedProxies: ["lab"] })).toThrow(
      '"lab" is no address',
    );
  });
});
