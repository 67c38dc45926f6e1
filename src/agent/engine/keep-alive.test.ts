import { expect, test } from "bun:test";
import { mkdtemp, rm, stat } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { installKeepAlive, keepAliveProgram } from "./keep-alive.ts";

test("runs until it is told to end", async () => {
  const dir = await mkdtemp(join(tmpdir(), "berth-keep-alive-"));
  try {
    const path = await installKeepAlive(dir, process.arch);
    expect((await stat(path)).mode & 0o777).toBe(0o755);
    const child = Bun.spawn([path]);
    expect(child.exitCode).toBeNull();
    child.kill("SIGTERM");
    await child.exited;
    expect(child.signalCode).toBe("SIGTERM");
  } finally {
    await rm(dir, { recursive: true });
  }
});

test("names a processor it has no program for", () => {
  expect(() => keepAliveProgram("riscv64")).toThrow("riscv64");
});

test("is a program for arm64 too", () => {
  const program = keepAliveProgram("arm64");
  expect(new DataView(program.buffer).getUint16(18, true)).toBe(183);
  expect([...program.subarray(-4)]).toEqual([0xfa, 0xff, 0xff, 0x17]);
});
