import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { silentLogger } from "../../kit/log.ts";
import { createConnectionCount } from "./connections.ts";

const count = (connections: number, perClient: number) =>
  createConnectionCount({
    limits: { connections, perClient },
    exempt: (address) => address === "127.0.0.1",
    log: silentLogger,
  });

describe("the count of connections", () => {
  test("holds one client to its limit, whatever address of its network it takes", () => {
    const { admit, leave } = count(100, 2);
    expect(["2001:db8::1", "2001:db8::2", "2001:db8::3"].map(admit)).toEqual([true, true, false]);
    expect(["2001:db8:0:1::1", "192.0.2.1", "::ffff:192.0.2.1", "192.0.2.1"].map(admit)).toEqual([
      true,
      true,
      true,
      false,
    ]);
    leave("2001:db8::2");
    expect(["2001:db8::9", "2001:db8::9"].map(admit)).toEqual([true, false]);
  });

  test("those that are exempt, and Unix sockets, count for the whole alone", () => {
    const { admit, open } = count(5, 1);
    const many = ["127.0.0.1", "127.0.0.1", "::ffff:127.0.0.1", undefined, undefined, "127.0.0.1", undefined];
    expect(many.map(admit)).toEqual([true, true, true, true, true, false, false]);
    expect(open()).toBe(5);
  });

  test("never passes a limit, and forgets whoever left", () => {
    const clients = ["192.0.2.1", "192.0.2.2", "192.0.2.3", "127.0.0.1"];
    const steps = fc.array(fc.record({ client: fc.constantFrom(...clients), leaves: fc.boolean() }));
    fc.assert(
      fc.property(steps, (list) => {
        const { admit, leave, open } = count(6, 3);
        const held: string[] = [];
        for (const { client, leaves } of list) {
          const own = held.filter((other) => other === client).length;
          if (leaves && own > 0) {
            leave(client);
            held.splice(held.indexOf(client), 1);
          } else if (!leaves) {
            const fits = held.length < 6 && (client === "127.0.0.1" || own < 3);
            expect(admit(client)).toBe(fits);
            if (fits) held.push(client);
          }
          expect(open()).toBe(held.length);
        }
      }),
    );
  });
});
