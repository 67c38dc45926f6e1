import { describe, expect, test } from "bun:test";
import { systemClock } from "../../kit/clock.ts";
import { endProcesses, familyOf, parseStat, readProcess, signalProcess } from "./processes.ts";

const stat = (pid: number, parent: number, session = 1) => {
  return { pid, parent, session, terminal: false, state: "S", startTicks: pid };
};

describe("parseStat", () => {
  test("reads a name with brackets and blanks", () => {
    const line = `42 (a) (b c) S 7 42 40 0 -1 4194304 1 0 0 0 5 6 0 0 20 0 1 0 98765 1 2 3\n`;
    expect(parseStat(line)).toEqual({
      pid: 42,
      state: "S",
      parent: 7,
      session: 40,
      terminal: false,
      startTicks: 98765,
    });
  });

  test("is undefined for what is no such line", () => {
    expect(parseStat("")).toBeUndefined();
    expect(parseStat("1 (x) S 2")).toBeUndefined();
  });
});

test("a family is what descends from its root or belongs to its session", () => {
  const all = [stat(10, 1), stat(11, 10), stat(12, 11), stat(20, 1), stat(30, 1, 10)];
  expect(familyOf(10, all).map((p) => p.pid)).toEqual([10, 11, 12, 30]);
});

describe("ending processes", () => {
  test("kills what does not heed SIGTERM", async () => {
    const child = Bun.spawn(["/bin/sh", "-c", "trap '' TERM; echo up; while :; do sleep 0.01; done"], {
      stdout: "pipe",
    });
    await child.stdout.getReader().read();
    const find = () => [readProcess(child.pid)].flatMap((p) => p ?? []);
    expect(await endProcesses(find, 0, systemClock)).toBe(true);
    await child.exited;
    expect(child.signalCode).toBe("SIGKILL");
  });

  test("does not touch another process that got the same number", async () => {
    const child = Bun.spawn(["sleep", "100"]);
    const found = readProcess(child.pid);
    expect(found).toBeDefined();
    signalProcess({ pid: child.pid, startTicks: (found?.startTicks ?? 0) - 1 }, "SIGKILL");
    expect(readProcess(child.pid)).toBeDefined();
    signalProcess({ pid: child.pid, startTicks: found?.startTicks ?? 0 }, "SIGKILL");
    await child.exited;
    expect(child.signalCode).toBe("SIGKILL");
  });
});
