import { afterAll, expect, test } from "bun:test";
import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { writeFileAtomic, writeFileAtomicSync } from "./atomic-file.ts";
import { tryFileLock } from "./file-lock.ts";

const dir = mkdtempSync(join(tmpdir(), "berth-files-"));
afterAll(() => rmSync(dir, { recursive: true }));

test("a file is replaced whole, with the mode asked for, leaving nothing else", async () => {
  const path = join(dir, "a.json");
  await writeFileAtomic(path, "one");
  writeFileAtomicSync(path, "two");
  expect(readFileSync(path, "utf8")).toBe("two");
  expect(statSync(path).mode & 0o777).toBe(0o600);
  expect(readdirSync(dir)).toEqual(["a.json"]);
});

test("a failed write leaves the old content and no temporary file", () => {
  expect(() => writeFileAtomicSync(join(dir, "missing", "b"), "x")).toThrow();
  expect(readdirSync(dir)).toEqual(["a.json"]);
});

test("a lock is held once, and free again after its release or its holder's death", async () => {
  const path = join(dir, "lock");
  const lock = tryFileLock(path);
  expect(lock).toBeDefined();
  expect(tryFileLock(path)).toBeUndefined();
  lock?.release();
  lock?.release();
  const script = `import { tryFileLock } from ${JSON.stringify(join(import.meta.dir, "file-lock.ts"))};
    if (tryFileLock(${JSON.stringify(path)}) === undefined) process.exit(1);
    process.stdout.write("held"); setInterval(() => {}, 1000);`;
  const child = Bun.spawn([process.execPath, "-e", script], { stdout: "pipe" });
  const { value } = await child.stdout.getReader().read();
  expect(Buffer.from(value ?? []).toString()).toBe("held");
  expect(tryFileLock(path)).toBeUndefined();
  child.kill("SIGKILL");
  await child.exited;
  const again = tryFileLock(path);
  expect(again).toBeDefined();
  again?.release();
});
