import { accessSync, chmodSync, constants, existsSync, mkdirSync, readdirSync, statSync } from "node:fs";
import { join } from "node:path";
import { BerthError, messageOf } from "./errors.ts";

const OTHERS = 0o077;
const OTHERS_WRITE = 0o022;
const STICKY = 0o1000;

function unusable(path: string, why: string, cause?: unknown): BerthError {
  const sentence = `The data folder ${path} cannot be used: ${why}. Give another with --data-dir.`;
  return new BerthError("invalid-config", sentence, { field: "dataDir", cause });
}

function make(path: string): void {
  try {
    mkdirSync(path, { recursive: true, mode: 0o700 });
    accessSync(path, constants.R_OK | constants.W_OK | constants.X_OK);
  } catch (err) {
    if (existsSync(path) && !statSync(path).isDirectory()) throw unusable(path, "it is no folder", err);
    throw unusable(path, messageOf(err), err);
  }
  if (!statSync(path).isDirectory()) throw unusable(path, "it is no folder");
}

/** Whether nobody else can have put anything of theirs there: it is empty, or has files that we made. */
function isOurs(path: string, marks: readonly string[]): boolean {
  // A new file system has this folder from the start.
  const entries = readdirSync(path).filter((name) => name !== "lost+found");
  return entries.length === 0 || marks.some((mark) => existsSync(join(path, mark)));
}

/**
 * Makes the folder of all that a role keeps, for its user alone. One that is there is closed to others when it is ours
 * (one of the files `marks` is in it) or empty. Throws `invalid-config` for what is no folder or cannot be written,
 * and for a folder with other things in which others may write: they could replace keys and the database.
 */
export function prepareDataDir(path: string, marks: readonly string[]): void {
  make(path);
  const { mode, uid } = statSync(path);
  if ((mode & OTHERS) === 0) return;
  // A sticky folder, such as /tmp, is meant for everybody, also while it is empty.
  const closable = uid === process.getuid?.() && (mode & STICKY) === 0 && isOurs(path, marks);
  if (closable) chmodSync(path, 0o700);
  if (closable || (mode & OTHERS_WRITE) === 0) return;
  const told = (mode & 0o7777).toString(8).padStart(4, "0");
  const why = `other users may write in it (mode ${told}) and it is not Berth's alone; a folder of mode 0700 is right`;
  throw unusable(path, why);
}
