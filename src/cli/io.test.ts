import { expect, test } from "bun:test";
import { join } from "node:path";

// The process's own streams cannot be replaced in here, so a process of its own has them.
async function writeTo(shell: string) {
  const script = `const { processIo } = await import(${JSON.stringify(join(import.meta.dir, "io.ts"))});
    const io = processIo();
    await io.out("x").catch((error) => io.err(error.code + ": " + error.message));`;
  const child = Bun.spawn(["/bin/sh", "-c", shell], {
    env: { BUN: process.execPath, SCRIPT: script, PATH: "/usr/bin:/bin" },
    stderr: "pipe",
    stdout: "ignore",
  });
  const [text] = await Promise.all([new Response(child.stderr).text(), child.exited]);
  return text;
}

test("only a pipe without a reader is a reader that has gone", async () => {
  expect(await writeTo('{ sleep 0.2; "$BUN" -e "$SCRIPT"; } | true')).toStartWith("output-closed: ");
  expect(await writeTo('"$BUN" -e "$SCRIPT" > /dev/full')).toBe(
    "output-failed: The output cannot be written: no space left on device.",
  );
});

test("words that are no UTF-8 are noticed, the replacement character itself is text", () => {
  const script = `const { processIo } = await import(${JSON.stringify(join(import.meta.dir, "io.ts"))});
    process.stdout.write(String(processIo().argvIsText));`;
  const told = (word: string) =>
    Bun.spawnSync(["/bin/sh", "-c", `"$BUN" -e "$SCRIPT" "$(printf '${word}')"`], {
      env: { BUN: process.execPath, SCRIPT: script, PATH: "/usr/bin:/bin" },
    }).stdout.toString();
  expect([told("caf\\351"), told("caf\\357\\277\\275"), told("plain")]).toEqual(["false", "true", "true"]);
});
