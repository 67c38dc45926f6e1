import { describe, expect, test } from "bun:test";
import { resolve } from "node:path";
import { isBerthError } from "../kit/errors.ts";
import { loadAgentConfig } from "./config.ts";
import { diskProblem, engineProblem, skewProblem } from "./health.ts";
import { addressFor } from "./identity.ts";
import { processAge, readBootId } from "./node.ts";
import { cpuMilliBetween } from "./usage-report.ts";

describe("configuration", () => {
  const load = (argv: string[], env: Record<string, string> = {}) => loadAgentConfig({ argv, env }).value;

  test("defaults are those of an installed node", () => {
    expect(load([])).toMatchObject({
      dataDir: "/var/lib/berth/agent",
      engineSocket: "/var/run/docker.sock",
      reservedCpu: 0,
      reservedMem: 512 * 2 ** 20,
      scratchMode: "auto",
    });
    expect(load([]).token).toBeUndefined();
    expect(load(["--data-dir", "here"]).dataDir).toBe(resolve("here"));
  });

  test("the client's token is no join token", () => {
    expect(load([], { BERTH_TOKEN: "api" }).token).toBeUndefined();
    expect(load([], { BERTH_TOKEN: "api", BERTH_JOIN_TOKEN: "bj1.x" }).token).toBe("bj1.x");
    expect(load(["--token", "flag"], { BERTH_JOIN_TOKEN: "bj1.x" }).token).toBe("flag");
  });

  const refused: [string, string[], string][] = [
    ["a URL without a scheme", ["--manager", "host:7410"], "manager"],
    ["a size", ["--scratch-size", "-1g"], "scratchSize"],
    ["a scratch mode", ["--scratch-mode", "btrfs"], "scratchMode"],
    ["a range", ["--subnet-pool", "10.0.0.0"], "subnetPool"],
    ["an unknown key", ["--listen", "0.0.0.0:1"], "listen"],
  ];
  for (const [what, argv, field] of refused) {
    test(`${what} is refused by name`, () => {
      try {
        load(argv);
      } catch (err) {
        expect(isBerthError(err) && err.code === "invalid-config" ? err.field : err).toBe(field);
        return;
      }
      throw new Error("it was accepted");
    });
  }
});

describe("where the manager is", () => {
  const joined = { host: "m", port: 7411, managerUrl: "https://m:7410" };

  test("as it was when the node joined", () => {
    expect(addressFor(joined, undefined)).toEqual({ host: "m", port: 7411 });
    expect(addressFor(joined, "https://m:7410")).toEqual({ host: "m", port: 7411 });
  });
  test("under a new name, with the port of before", () => {
    expect(addressFor(joined, "https://[fd00::1]:7410")).toEqual({ host: "fd00::1", port: 7411 });
  });
  test("on a new port, the one after it", () => {
    expect(addressFor(joined, "https://m:9000")).toEqual({ host: "m", port: 9001 });
  });
});

describe("health", () => {
  test("little disk is told from a tenth downwards", () => {
    expect(diskProblem("/d", { freeBytes: 10, totalBytes: 100 })).toBeUndefined();
    expect(diskProblem("/d", { freeBytes: 9, totalBytes: 100 })).toMatchObject({ code: "disk-low" });
    expect(diskProblem("/d", { freeBytes: 0, totalBytes: 0 })).toBeUndefined();
  });
  test("a clock is told when it is more than a minute away, on either side", () => {
    expect(skewProblem(60_000)).toBeUndefined();
    expect(skewProblem(61_000)?.message).toContain("1m1s behind");
    expect(skewProblem(-61_000)?.message).toContain("1m1s ahead of");
  });
  test("the engine's problems keep their words", () => {
    expect(engineProblem({ code: "no-firewall", message: "words" })).toMatchObject({
      code: "no-firewall",
      message: "words",
    });
  });
});

test("CPU in use is what was added between two looks", () => {
  expect(cpuMilliBetween({ atMs: 1000, nanos: 0 }, { atMs: 3000, nanos: 1_000_000_000 })).toBe(500);
  expect(cpuMilliBetween(undefined, { atMs: 3000, nanos: 1 })).toBe(0);
  expect(cpuMilliBetween({ atMs: 1000, nanos: 5 }, { atMs: 2000, nanos: 1 })).toBe(0);
  expect(cpuMilliBetween({ atMs: 1000, nanos: 5 }, { atMs: 1000, nanos: 9 })).toBe(0);
});

test("a process's age grows from its own start, and a process that is not there has none", async () => {
  const child = Bun.spawn(["sleep", "30"]);
  const young = processAge(child.pid);
  const own = processAge(process.pid);
  expect(young).toBeGreaterThanOrEqual(0);
  expect(own ?? 0).toBeGreaterThanOrEqual(young ?? Number.POSITIVE_INFINITY);
  child.kill();
  await child.exited;
  expect(processAge(child.pid)).toBeUndefined();
  expect(readBootId()).not.toBe("");
});
