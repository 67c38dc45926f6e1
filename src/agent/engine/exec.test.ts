import { expect, test } from "bun:test";
import { readRefusal } from "./exec.ts";

test("a start that the engine refused is told as a shell would", () => {
  const refused = (why: string) =>
    readRefusal(`OCI runtime exec failed: exec failed: ${why}: unknown\r\n`, "foo");
  expect(refused('exec: "foo": executable file not found in $PATH')).toEqual({
    exitCode: 127,
    words: "foo: command not found",
  });
  expect(refused('exec: "foo": permission denied')).toEqual({
    exitCode: 126,
    words: "foo: permission denied",
  });
  expect(refused("chdir to cwd failed")?.exitCode).toBe(126);
  expect(readRefusal("hello", "foo")).toBeUndefined();
});
