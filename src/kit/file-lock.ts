import { dlopen } from "bun:ffi";
import { closeSync, ftruncateSync, openSync, writeSync } from "node:fs";

const LOCK_EX = 2;
const LOCK_NB = 4;

export type FileLock = { release(): void };

/**
 * Takes the advisory lock of a file, which is made when missing, or returns undefined when another process (or
 * another open of this one) holds it. The system frees it when the process ends, however it ends.
 */
export function tryFileLock(path: string): FileLock | undefined {
  const libc = dlopen("libc.so.6", { flock: { args: ["i32", "i32"], returns: "i32" } });
  const file = openSync(path, "a", 0o600);
  const taken = libc.symbols.flock(file, LOCK_EX | LOCK_NB) === 0;
  libc.close();
  if (!taken) {
    closeSync(file);
    return undefined;
  }
  // For people only: the lock is the truth, the number says whom to ask.
  ftruncateSync(file, 0);
  writeSync(file, `${process.pid}\n`);
  let held = true;
  const release = () => {
    if (held) closeSync(file);
    held = false;
  };
  return { release };
}
