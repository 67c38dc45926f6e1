import Sqlite from "better-sqlite3/linux-x64";
import { BerthError } from "../../kit/errors.ts";

export type Connection = InstanceType<typeof Sqlite>;

/** Older versions of SQLite lose data in WAL mode (a checkpoint may run into a writer's reset of the log). */
const LEAST_VERSION = [3, 51, 3] as const;
const BUSY_MS = 2_000;

/** Whether a version text such as "3.54.1" is at least `least`. */
export function versionAtLeast(text: string, least: readonly number[]): boolean {
  const parts = text.split(".").map(Number);
  for (const [at, wanted] of least.entries()) {
    const have = parts[at] ?? 0;
    if (have !== wanted) return have > wanted;
  }
  return true;
}

function checkVersion(connection: Connection): void {
  const version = String(connection.prepare("select sqlite_version() as v").all().map(columnV)[0]);
  if (versionAtLeast(version, LEAST_VERSION)) return;
  throw new BerthError(
    "sqlite-too-old",
    `SQLite ${version} is built in, but Berth needs at least ${LEAST_VERSION.join(".")}: older ones can lose data.`,
  );
}

function columnV(row: unknown): unknown {
  return typeof row === "object" && row !== null && "v" in row ? row.v : undefined;
}

export type Synchronous = "FULL" | "OFF";

/** Opens the connection that writes. `synchronous: "OFF"` is for tests alone: it may lose what was committed. */
export function openWriter(path: string, synchronous: Synchronous): Connection {
  const connection = new Sqlite(path, { timeout: BUSY_MS });
  checkVersion(connection);
  connection.exec("pragma journal_mode = WAL");
  connection.exec(`pragma synchronous = ${synchronous}`);
  connection.exec("pragma foreign_keys = ON");
  // Bounds the write-ahead log on disk after a burst.
  connection.exec("pragma journal_size_limit = 67108864");
  return connection;
}

/** Opens a connection that can only read; it sees the last committed state and never waits for the writer. */
export function openReader(path: string): Connection {
  const connection = new Sqlite(path, { readonly: true, fileMustExist: true, timeout: BUSY_MS });
  connection.exec("pragma query_only = ON");
  return connection;
}

/** The number of the newest migration that this file went through; 0 for a new file. */
export function schemaVersion(connection: Connection): number {
  return Number(connection.pragma("user_version", { simple: true }));
}
