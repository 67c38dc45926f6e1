import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { networkOf, readNetwork } from "./network.ts";

const word = fc.oneof(fc.constant(0), fc.integer({ min: 0, max: 0xffff }));
const words = (length: number) => fc.array(word, { minLength: length, maxLength: length });
const text = (list: readonly number[]) => list.map((n) => n.toString(16)).join(":");
const shortest = (address: string) => new URL(`http://[${address}]/`).hostname.slice(1, -1);

describe("the network of an address", () => {
  test.each([
    ["192.0.2.7", "192.0.2.7"],
    ["2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"],
    ["2001:DB8:0001:0002::", "2001:db8:1:2::/64"],
    ["2001:db8::5", "2001:db8:0:0::/64"],
    ["fe80::1%eth0", "fe80:0:0:0::/64"],
    ["::", "0:0:0:0::/64"],
    ["64:ff9b::192.0.2.33", "64:ff9b:0:0::/64"],
    ["local", "local"],
    ["", ""],
  ])("%p is %s", (address, network) => {
    expect(networkOf(address)).toBe(network);
  });

  test("depends on the first 64 bits alone, however the address is written", () => {
    fc.assert(
      fc.property(words(4), words(4), (network, host) => {
        const whole = text([...network, ...host]);
        expect(networkOf(whole)).toBe(`${text(network)}::/64`);
        expect(networkOf(shortest(whole))).toBe(networkOf(whole));
      }),
    );
  });
});

describe("what is written as an address or network", () => {
  test.each([
    ["192.0.2.1", { address: "192.0.2.1", family: "ipv4", bits: undefined }],
    ["10.0.0.0/8", { address: "10.0.0.0", family: "ipv4", bits: 8 }],
    ["0.0.0.0/0", { address: "0.0.0.0", family: "ipv4", bits: 0 }],
    ["fd00::/128", { address: "fd00::", family: "ipv6", bits: 128 }],
  ] as const)("%s", (text, network) => {
    expect(readNetwork(text)).toEqual(network);
  });

  test.each([
    "zzz",
    "",
    "/8",
    "10.0.0.0/",
    "10.0.0.0/33",
    "10.0.0.0/-1",
    "10.0.0/8",
    "fd00::/129",
    "::1/1/1",
  ])("%p is none", (text) => {
    expect(readNetwork(text)).toBeUndefined();
  });
});
