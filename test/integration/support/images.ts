import { existsSync, readFileSync } from "node:fs";
import { makeTar, type TarEntry } from "../../../src/agent/engine/archive.ts";

/** A shell without libraries (Debian's package busybox-static), of which a tiny image can be made. */
const BUSYBOX = "/usr/bin/busybox";

/** Whether this machine has what image tests need. */
export const hasBusybox = existsSync(BUSYBOX);

const APPLETS = ["sh", "cat", "echo", "id", "sleep", "pwd", "ls", "stat", "touch", "seq"];

/** Entries of a small system with a shell. */
export function busyboxEntries(): TarEntry[] {
  return [
    { name: "bin", mode: 0o755 },
    { name: "bin/busybox", mode: 0o755, bytes: readFileSync(BUSYBOX) },
    ...APPLETS.map((name) => ({ name: `bin/${name}`, mode: 0o777, link: "busybox" })),
  ];
}

/** Imports an image into the engine; `changes` are lines as in a Dockerfile. */
export async function importImage(
  reference: string,
  entries: readonly TarEntry[],
  changes: readonly string[] = [],
): Promise<void> {
  const flags = changes.flatMap((change) => ["--change", change]);
  const child = Bun.spawn(["docker", "import", ...flags, "-", reference], {
    stdin: new Blob([await makeTar(entries)]),
    stdout: "ignore",
    stderr: "pipe",
  });
  if ((await child.exited) !== 0) throw new Error(await new Response(child.stderr).text());
}
