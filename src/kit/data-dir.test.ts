import { afterEach, beforeEach, describe, expect, test } from "bun:test";
import { chmodSync, mkdirSync, mkdtempSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { prepareDataDir } from "./data-dir.ts";

let root: string;
beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), "berth-data-dir-"));
});
afterEach(() => rmSync(root, { recursive: true, force: true }));

const modeOf = (path: string) => statSync(path).mode & 0o7777;

function folder(mode: number, ...files: readonly string[]): string {
  const path = join(root, "data");
  mkdirSync(path);
  for (const file of files) writeFileSync(join(path, file), "");
  chmodSync(path, mode);
  return path;
}

describe("a data folder", () => {
  test("is made for its user alone, with the folders before it", () => {
    const path = join(root, "a/b");
    prepareDataDir(path, ["lock"]);
    expect(modeOf(path)).toBe(0o700);
  });

  test.each([
    ["an empty one", 0o777, []],
    ["a new file system", 0o755, ["lost+found"]],
    ["one of ours", 0o777, ["lock", "other"]],
  ])("is closed to others when it is %s", (_name, mode, files) => {
    const path = folder(mode, ...files);
    prepareDataDir(path, ["lock"]);
    expect(modeOf(path)).toBe(0o700);
  });

  test.each([
    ["of others' things", 0o777, ["theirs"]],
    ["of others' things in a group", 0o770, ["theirs"]],
    ["meant for everybody", 0o1777, []],
  ])("is refused and left alone when it is a folder %s", (_name, mode, files) => {
    const path = folder(mode, ...files);
    expect(() => prepareDataDir(path, ["lock"])).toThrow(
      `${path} cannot be used: other users may write in it`,
    );
    expect(modeOf(path)).toBe(mode);
  });

  test("with other things in which others can only read is taken as it is", () => {
    const path = folder(0o755, "theirs");
    prepareDataDir(path, ["lock"]);
    expect(modeOf(path)).toBe(0o755);
  });

  test("that is a file, or below one, is refused in words", () => {
    const file = join(root, "file");
    writeFileSync(file, "");
    for (const path of [file, join(file, "below")]) {
      expect(() => prepareDataDir(path, [])).toThrow(/^The data folder \S+ cannot be used: .*--data-dir/);
    }
    expect(() => prepareDataDir(file, [])).toThrow("it is no folder");
  });
});
