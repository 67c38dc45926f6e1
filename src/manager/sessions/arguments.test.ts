import { describe, expect, test } from "bun:test";
import { checkArgumentSizes, MAX_ARGUMENT_BYTES, MAX_ARGUMENTS_BYTES } from "./arguments.ts";
import { readExecOpen } from "./exec-rules.ts";

const codes = (command: readonly string[] | string) =>
  checkArgumentSizes(command, "command").map(({ code, field }) => `${code} ${field}`);
const TOO_LONG = ["command-too-long command"];

describe("the size of a command", () => {
  test("one argument may have 131071 bytes, in UTF-8", () => {
    expect(MAX_ARGUMENT_BYTES).toBe(131_071);
    expect(codes(["x", "a".repeat(MAX_ARGUMENT_BYTES)])).toEqual([]);
    expect(codes(["x", "a".repeat(MAX_ARGUMENT_BYTES + 1)])).toEqual(TOO_LONG);
    expect(codes(["x", "é".repeat(65_535)])).toEqual([]);
    expect(codes(["x", "é".repeat(65_536)])).toEqual(TOO_LONG);
    const [refusal] = checkArgumentSizes(["x", "y", "é".repeat(65_536)], "argv");
    expect(refusal?.sentence).toStartWith("Argument 2 has 131072 bytes in UTF-8; the system takes 131071.");
  });

  test("a text for the shell is one argument", () => {
    expect(codes("a".repeat(MAX_ARGUMENT_BYTES))).toEqual([]);
    expect(codes("한".repeat(43_691))).toEqual(TOO_LONG);
  });

  test("all together stay within a mebibyte, counting what the system adds", () => {
    const eights = Array.from({ length: 8 }, () => "a".repeat(MAX_ARGUMENT_BYTES));
    expect(codes(eights)).toEqual(TOO_LONG);
    expect(codes(eights.slice(1))).toEqual([]);
    const left = MAX_ARGUMENTS_BYTES - 7 * (MAX_ARGUMENT_BYTES + 9);
    expect(codes([...eights.slice(1), "a".repeat(left - 9)])).toEqual([]);
    expect(codes([...eights.slice(1), "a".repeat(left - 8)])).toEqual(TOO_LONG);
  });

  test("a command for a running session is measured too", () => {
    expect(readExecOpen({ argv: ["echo", "é".repeat(65_535)] }).argv.length).toBe(2);
    expect(() => readExecOpen({ argv: ["echo", "é".repeat(65_536)] })).toThrow("131072 bytes in UTF-8");
  });
});
