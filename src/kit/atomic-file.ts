import { randomBytes } from "node:crypto";
import { closeSync, fsyncSync, openSync, renameSync, rmSync, writeSync } from "node:fs";
import { open, rename, rm } from "node:fs/promises";
import { basename, dirname, join } from "node:path";

function temporary(path: string): string {
  return join(dirname(path), `.${basename(path)}.${randomBytes(6).toString("hex")}.tmp`);
}

/**
 * Replaces a file so that a crash or power loss at any moment leaves the old or the new content, whole.
 * The folder must exist. `mode` is the file's, 0600 by default.
 */
export async function writeFileAtomic(path: string, content: string, mode = 0o600): Promise<void> {
  const temp = temporary(path);
  try {
    const file = await open(temp, "wx", mode);
    try {
      await file.writeFile(content);
      await file.sync();
    } finally {
      await file.close();
    }
    await rename(temp, path);
  } catch (err) {
    await rm(temp, { force: true });
    throw err;
  }
  const folder = await open(dirname(path), "r");
  try {
    await folder.sync();
  } finally {
    await folder.close();
  }
}

/** As `writeFileAtomic`, done when it returns: for what must be on disk before the next message is sent. */
export function writeFileAtomicSync(path: string, content: string, mode = 0o600): void {
  const temp = temporary(path);
  try {
    const file = openSync(temp, "wx", mode);
    try {
      writeSync(file, content);
      fsyncSync(file);
    } finally {
      closeSync(file);
    }
    renameSync(temp, path);
  } catch (err) {
    rmSync(temp, { force: true });
    throw err;
  }
  const folder = openSync(dirname(path), "r");
  try {
    fsyncSync(folder);
  } finally {
    closeSync(folder);
  }
}
