import { expect, test } from "bun:test";
import { mustRun, run } from "./run.ts";

test("gives back what a program says and how it ended", async () => {
  expect(await run(["/bin/sh", "-c", "cat; echo no >&2; exit 3"], { input: "in" })).toEqual({
    code: 3,
    stdout: "in",
    stderr: "no\n",
  });
  await expect(
    mustRun(["/bin/sh", "-c", "echo first >&2; echo last words >&2; exit 1"]),
  ).rejects.toMatchObject({
    code: "tool-failed",
    message: "/bin/sh failed with exit code 1: last words",
  });
});

test("a program that is not there, or does not end, is named", async () => {
  await expect(run(["berth-no-such-tool"])).rejects.toMatchObject({ code: "tool-missing" });
  await expect(run(["sleep", "1000"], { limitMs: 20 })).rejects.toMatchObject({ code: "tool-stuck" });
});
