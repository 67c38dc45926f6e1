import { expect, test } from "bun:test";
import { join } from "node:path";
import { version } from "../package.json";

async function berth(...argv: string[]) {
  const child = Bun.spawn([process.execPath, join(import.meta.dir, "main.ts"), ...argv], {
    env: { PATH: process.env.PATH ?? "", HOME: "/nonexistent", NO_COLOR: "1" },
    stdin: "ignore",
    stdout: "pipe",
    stderr: "pipe",
  });
  const [out, err] = await Promise.all([
    new Response(child.stdout).text(),
    new Response(child.stderr).text(),
  ]);
  return { code: await child.exited, out, err };
}

test("without arguments it tells what there is", async () => {
  const { code, out } = await berth();
  expect(code).toBe(0);
  for (const word of ["run", "login", "berth up", "berth manager", "berth agent"])
    expect(out).toContain(word);
});

test("version", async () => {
  expect(await berth("version")).toMatchObject({ code: 0, out: expect.stringContaining(version) });
});

test.each(["manager", "agent", "up", "agent-cleanup"])(
  "%s refuses an unknown option in a sentence",
  async (role) => {
    const { code, out, err } = await berth(role, "--frobnicate", "1");
    expect([code, out]).toEqual([1, ""]);
    expect(err).toBe("berth: --frobnicate is not a known option.\n");
  },
);

test("a client's command that fails by itself is told from what a session's command returns", async () => {
  const { code, err } = await berth("run", "--", "true");
  expect([code, err]).toEqual([125, expect.stringContaining("berth login URL")]);
});

test("a role that the object of roles inherits is none", async () => {
  expect(await berth("toString")).toMatchObject({ code: 2 });
});
