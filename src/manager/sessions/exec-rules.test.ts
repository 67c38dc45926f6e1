import { expect, test } from "bun:test";
import { isBerthError } from "../../kit/errors.ts";
import { readExecOpen } from "./exec-rules.ts";

/** The code of the refusal, if there is one. */
function codes(over: Readonly<Record<string, unknown>>): readonly string[] {
  try {
    readExecOpen({ argv: ["true"], ...over });
    return [];
  } catch (error) {
    if (!isBerthError(error)) throw error;
    return [error.code];
  }
}

test("what is no request is told as such", () => {
  expect(readExecOpen({ argv: ["ls"] })).toMatchObject({ argv: ["ls"], tty: false, environment: {} });
  expect(() => readExecOpen(undefined)).toThrow("The first message must be an OPEN frame");
  expect(codes({ argv: [] })).toEqual(["invalid-request"]);
  expect(codes({ shell: "x" })).toEqual(["invalid-request"]);
});

test("the environment of a command has the rules of a session's", () => {
  expect(codes({ environment: { TERM: "xterm", HOME: "/x" } })).toEqual([]);
  expect(codes({ environment: { BERTH_SESSION_ID: "x" } })).toEqual(["reserved-env"]);
  expect(codes({ environment: { "A=B": "x" } })).toEqual(["invalid-env-name"]);
  expect(codes({ environment: { "": "x" } })).toEqual(["invalid-env-name"]);
  expect(codes({ environment: { A: "a\0b" } })).toEqual(["invalid-env-value"]);
  expect(() => readExecOpen(JSON.parse('{"argv":["x"],"environment":{"__proto__":"y"}}'))).toThrow(
    "No environment variable can be named `__proto__`",
  );
});

test("the folder is a whole path", () => {
  expect(codes({ workdir: "/data/한글 x" })).toEqual([]);
  for (const workdir of ["", "data", "./x", "~", "/a\0b", "/\ud800"]) {
    expect(codes({ workdir })).toEqual(["invalid-workdir"]);
  }
});

test("the command is text with a program", () => {
  expect(codes({ argv: ["echo", ""] })).toEqual([]);
  expect(codes({ argv: ["", "x"] })).toEqual(["command-missing"]);
  expect(codes({ argv: ["echo", "a\0b"] })).toEqual(["invalid-command"]);
});
