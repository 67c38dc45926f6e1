import { describe, expect, test } from "bun:test";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseEnvFile, readEnvironment } from "./env-file.ts";

const caller = { HERE: "from here", EMPTY: "" };

describe("parseEnvFile", () => {
  test("takes values as they stand, quotes and equals signs included", () => {
    const text = '\ufeff# comment\r\n\r\nA=1\r\nB="x y"\nC=a=b\n  D=\nHERE\n   # another\n';
    expect(parseEnvFile(text, "f", caller)).toEqual({
      A: "1",
      B: '"x y"',
      C: "a=b",
      D: "",
      HERE: "from here",
    });
  });

  test("names the line at fault", () => {
    expect(() => parseEnvFile("A=1\n=2\n", "my.env", caller)).toThrow('my.env, line 2: "=2" is neither');
    expect(() => parseEnvFile("NOT_SET\n", "my.env", caller)).toThrow("the variable NOT_SET is not set here");
    expect(() => parseEnvFile("A B=1\n", "my.env", caller)).toThrow("line 1");
  });
});

describe("readEnvironment", () => {
  test("the later file wins, and -e over every file", () => {
    const dir = mkdtempSync(join(tmpdir(), "berth-env-"));
    try {
      writeFileSync(join(dir, "a"), "X=1\nY=1\nZ=1\n");
      writeFileSync(join(dir, "b"), "Y=2\n");
      const files = [join(dir, "a"), join(dir, "b")];
      expect(readEnvironment(files, ["Z=3", "EMPTY"], caller)).toEqual({ X: "1", Y: "2", Z: "3", EMPTY: "" });
    } finally {
      rmSync(dir, { recursive: true });
    }
  });

  test("what is no text is refused, not changed", () => {
    const dir = mkdtempSync(join(tmpdir(), "berth-env-"));
    try {
      writeFileSync(join(dir, "latin1"), Buffer.from([0x41, 0x3d, 0xe9, 0x0a]));
      expect(() => readEnvironment([join(dir, "latin1")], [], caller)).toThrow("latin1 is not UTF-8 text");
    } finally {
      rmSync(dir, { recursive: true });
    }
    expect(() => readEnvironment([], ["BAD"], { BAD: "caf\ufffd" })).toThrow(
      "BAD has here is not UTF-8 text",
    );
    expect(readEnvironment([], ["A=\ufffd"], {})).toEqual({ A: "\ufffd" });
  });

  test("no name is lost on the way", () => {
    expect(Object.entries(readEnvironment([], ["__proto__=x"], caller))).toEqual([["__proto__", "x"]]);
  });

  test("a file that is not there is named", () => {
    expect(() => readEnvironment(["/no/such.env"], [], caller)).toThrow("/no/such.env cannot be read");
  });
});
