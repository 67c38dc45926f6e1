import { expect, test } from "bun:test";
import { sessionUlimits } from "./ulimits.ts";

const limits = (files: string, locked: string) =>
  `Limit                     Soft Limit           Hard Limit           Units     
Max core file size        0                    unlimited            bytes     
Max open files            1024                 ${files}                files     
Max locked memory         8388608              ${locked}              bytes     
`;

test("a node that may raise limits gives the full ones", () => {
  expect(sessionUlimits(limits("20000", "8388608"), "CapEff:\t000001ffffffffff\n")).toEqual([
    { Name: "nofile", Soft: 65_536, Hard: 1_048_576 },
    { Name: "memlock", Soft: -1, Hard: -1 },
    { Name: "core", Soft: 0, Hard: -1 },
  ]);
});

test("one that may not gives what it has", () => {
  expect(sessionUlimits(limits("20000", "8388608"), "CapEff:\t000001fffeffffff\n")).toEqual([
    { Name: "nofile", Soft: 20_000, Hard: 20_000 },
    { Name: "memlock", Soft: 8_388_608, Hard: 8_388_608 },
    { Name: "core", Soft: 0, Hard: -1 },
  ]);
  expect(sessionUlimits(limits("unlimited", "unlimited"), "CapEff:\t0000000000000000\n")[1]?.Hard).toBe(-1);
});
