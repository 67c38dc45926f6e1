import { afterEach, beforeEach, describe, expect, test } from "bun:test";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { checkBoundaries } from "./boundaries.ts";
import { findImports } from "./imports.ts";

let root = "";

function write(path: string, text: string): void {
  mkdirSync(dirname(join(root, path)), { recursive: true });
  writeFileSync(join(root, path), text);
}

const found = () =>
  checkBoundaries(root).violations.map(({ file, line, sentence }) => `${file}:${line}: ${sentence}`);

beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), "berth-boundaries-"));
  const dependencies = { dockerode: "1", kysely: "1", "better-sqlite3": "1", zod: "1" };
  write(
    "package.json",
    JSON.stringify({ version: "1", dependencies, devDependencies: { "fast-check": "1" } }),
  );
  write("src/kit/ids.ts", "export type Id = string; export const a = 1;");
  write(
    "src/contract/session.ts",
    'import { z } from "zod"; import { a } from "../kit/ids.ts"; export { z, a };',
  );
  write("src/wire/link.ts", 'import * as net from "node:net"; export const link = net;');
  write(
    "src/manager/users/repository.ts",
    'import type { Kysely } from "kysely"; export type R = Kysely<{}>;',
  );
  write("src/manager/users/service.ts", 'import type { R } from "./repository.ts"; export type S = R;');
  write("src/manager/manager.ts", 'import type { R } from "./users/repository.ts"; export type M = R;');
  write("src/agent/engine/docker.ts", 'import Docker from "dockerode"; export const d = Docker;');
  write("src/main.ts", 'const m = () => import("./manager/manager.ts"); export { m };');
});

afterEach(() => rmSync(root, { recursive: true, force: true }));

test("a tree that keeps the rules is accepted", () => {
  expect(found()).toEqual([]);
  expect(checkBoundaries(root).files).toBe(8);
});

describe("one bad import is refused", () => {
  test.each([
    ["src/kit/bad.ts", 'import { z } from "../contract/session.ts";', "kit may import itself; not contract"],
    ["src/kit/bad.ts", 'import { readFileSync } from "node:fs";', "kit does no input or output"],
    ["src/kit/bad.ts", 'import { dlopen } from "bun:ffi";', "kit does no input or output"],
    ["src/contract/bad.ts", 'export * from "../wire/link.ts";', "contract may import itself, kit; not wire"],
    [
      "src/wire/bad.ts",
      'export type { M } from "../manager/manager.ts";',
      "wire may import itself, kit; not manager",
    ],
    [
      "src/agent/bad.ts",
      'import { z } from "../contract/session.ts";',
      "agent may import itself, wire, kit; not contract",
    ],
    ["src/agent/bad.ts", 'import type { M } from "../manager/manager.ts";', "not manager"],
    ["src/manager/bad.ts", 'import { d } from "../agent/engine/docker.ts";', "not agent"],
    [
      "src/cli/bad.ts",
      'const l = await import("../wire/link.ts");',
      "cli may import itself, contract, kit; not wire",
    ],
    [
      "src/cli/bad.ts",
      'type L = import("../wire/link.ts").L;',
      "cli may import itself, contract, kit; not wire",
    ],
    [
      "web/src/bad.tsx",
      'import { a } from "../../src/kit/ids.ts";',
      "web may import itself, contract; not kit",
    ],
    [
      "src/agent/bad.ts",
      'import type Docker from "dockerode";',
      "only src/agent/engine/ may import dockerode",
    ],
    [
      "src/agent/bad.ts",
      'import Db from "better-sqlite3/linux-x64";',
      "only src/manager/ may import better-sqlite3",
    ],
    ["src/cli/bad.ts", 'import { type Kysely } from "kysely";', "only src/manager/ may import kysely"],
    [
      "src/manager/groups/bad.ts",
      'import type { R } from "../users/repository.ts";',
      "go through its service",
    ],
    ["src/kit/bad.ts", 'import fc from "fast-check";', "is a tool of development"],
    ["src/kit/bad.ts", 'import x from "left-pad";', "left-pad is not in package.json"],
    ["src/kit/bad.ts", 'import "./ids.test.ts";', "only tests may import a test"],
    ["src/kit/bad.ts", 'import "../../test/helper.ts";', "only tests may import from test/"],
  ])("%s: %s", (path, line, sentence) => {
    write(path, `// a comment\n\n${line}\n`);
    expect(found()).toEqual([expect.stringContaining(sentence)]);
    expect(found()).toEqual([expect.stringMatching(new RegExp(`^${path}:3: `))]);
  });

  test("a cycle, of types too", () => {
    write("src/kit/ids.ts", 'import type { B } from "./b.ts"; export type Id = B; export const a = 1;');
    write("src/kit/b.ts", 'export type { C } from "./c.ts"; export type B = 1;');
    write("src/kit/c.ts", 'import { a } from "./ids.ts"; export type C = typeof a;');
    expect(found()).toEqual([expect.stringMatching(/cycle src\/kit\/\w+\.ts(?: → src\/kit\/\w+\.ts){3}$/)]);
  });
});

test("tests may use tools and the test folder, but keep the layers", () => {
  write("src/kit/a.test.ts", 'import fc from "fast-check"; import "../../test/helper.ts"; export { fc };');
  expect(found()).toEqual([]);
  write("src/kit/a.test.ts", 'import "../agent/engine/docker.ts";');
  expect(found()).toEqual([expect.stringContaining("not agent")]);
});

test("what only looks like an import is none", () => {
  const source =
    "// import a from './a.ts'\n/* import './b.ts' */\nconst s = \"import './c.ts'\";\nexport const x = s;";
  expect(findImports("x.ts", source)).toEqual([]);
});

test("the command exits with 1 and prints the line", async () => {
  write("src/kit/bad.ts", 'import "../agent/engine/docker.ts";');
  const child = Bun.spawn([process.execPath, join(import.meta.dir, "boundaries.ts"), root], {
    stderr: "pipe",
  });
  expect(await new Response(child.stderr).text()).toContain(
    'src/kit/bad.ts:1: imports "../agent/engine/docker.ts"',
  );
  expect(await child.exited).toBe(1);
});
