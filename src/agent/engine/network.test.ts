import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { formatSubnet, freeSubnets, parseRoutes, parseSubnet, type Subnet } from "./network.ts";

const subnet = (text: string): Subnet => {
  const parsed = parseSubnet(text);
  if (parsed === undefined) throw new Error(text);
  return parsed;
};

describe("parseSubnet", () => {
  test("reads a network and drops what lies beyond its prefix", () => {
    expect(formatSubnet(subnet("10.213.7.9/16"))).toBe("10.213.0.0/16");
    expect(formatSubnet(subnet("255.255.255.255/32"))).toBe("255.255.255.255/32");
  });

  test("refuses what is none", () => {
    for (const text of [
      "",
      "10.0.0.0",
      "10.0.0/8",
      "256.0.0.0/8",
      "10.0.0.0/33",
      "fd00::/8",
      "10.0.0.0/-1",
    ]) {
      expect(parseSubnet(text)).toBeUndefined();
    }
  });
});

test("parseRoutes reads the node's routes without the default one", () => {
  const text = `Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT
eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0
docker0\t000011AC\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0
eth0\t000200C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0
`;
  expect(parseRoutes(text).map(formatSubnet)).toEqual(["172.17.0.0/16", "192.0.2.0/24"]);
});

describe("freeSubnets", () => {
  test("gives parts of the pool that nobody uses, beginning at the seed's place", () => {
    const free = freeSubnets(subnet("10.213.0.0/20"), [subnet("10.213.4.0/24")], 1).map(formatSubnet);
    expect(free).toEqual(["10.213.8.0/22", "10.213.12.0/22", "10.213.0.0/22"]);
  });

  test("gives a small pool whole, and nothing when a larger network covers it", () => {
    expect(freeSubnets(subnet("10.9.8.0/24"), [], 77).map(formatSubnet)).toEqual(["10.9.8.0/24"]);
    expect(freeSubnets(subnet("10.9.8.0/24"), [subnet("10.0.0.0/8")], 0)).toEqual([]);
  });

  test("never overlaps what is taken", () => {
    const any = fc.record({
      base: fc.integer({ min: 0, max: 255 }),
      prefix: fc.integer({ min: 17, max: 32 }),
    });
    fc.assert(
      fc.property(fc.array(any), fc.nat(), (raw, seed) => {
        const taken = raw.map(({ base, prefix }) => subnet(`10.213.${base}.0/${prefix}`));
        for (const one of freeSubnets(subnet("10.213.0.0/16"), taken, seed)) {
          const end = one.base + 2 ** (32 - one.prefix);
          for (const other of taken) {
            expect(one.base >= other.base + 2 ** (32 - other.prefix) || other.base >= end).toBe(true);
          }
        }
      }),
    );
  });
});
