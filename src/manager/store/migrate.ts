import { chmodSync, mkdirSync, readdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import type { Clock } from "../../kit/clock.ts";
import { BerthError } from "../../kit/errors.ts";
import type { Logger } from "../../kit/log.ts";
import { VERSION } from "../../kit/version.ts";
import { type Connection, schemaVersion } from "./sqlite.ts";

/** One step forward of the schema. There is no way back but the copy that was taken before. */
export type Migration = {
  /** 1, 2, 3 …: becomes the file's `user_version`. */
  readonly version: number;
  readonly name: string;
  readonly sql: string;
};

export type MigrateOptions = {
  readonly clock: Clock;
  readonly log: Logger;
  /** Where the copies go that are taken before a migration. */
  readonly backupDir: string;
  readonly migrations: readonly Migration[];
};

const KEPT_COPIES = 3;
const COPY = /^before-schema-\d+-.*\.sqlite$/;

function lastProgramVersion(connection: Connection): string {
  const row = connection.prepare("select value from meta where key = 'program_version'").all()[0];
  const value = typeof row === "object" && row !== null && "value" in row ? row.value : undefined;
  return typeof value === "string" ? value : "of an unknown version";
}

function refuseNewer(connection: Connection, known: number): void {
  const found = schemaVersion(connection);
  if (found <= known) return;
  throw new BerthError(
    "schema-too-new",
    `The database has schema ${found}, written by Berth ${lastProgramVersion(connection)}; this is Berth ${VERSION}, ` +
      `which knows schemas up to ${known}. Run that version again, or restore the copy that was taken before its upgrade.`,
    { details: { found, known } },
  );
}

function copyBefore(connection: Connection, to: number, { clock, log, backupDir }: MigrateOptions): void {
  mkdirSync(backupDir, { recursive: true, mode: 0o700 });
  const time = new Date(clock.wall()).toISOString().replaceAll(/[:.]/g, "-");
  const file = join(backupDir, `before-schema-${to}-${time}.sqlite`);
  // A copy of the same name is the torso of an attempt that was cut.
  rmSync(file, { force: true });
  connection.prepare("vacuum into ?").run([file]);
  chmodSync(file, 0o600);
  log.info({ file }, "copied the database before the upgrade of its schema");
  const copies = readdirSync(backupDir)
    .filter((name) => COPY.test(name))
    .sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
  for (const old of copies.slice(0, -KEPT_COPIES)) rmSync(join(backupDir, old), { force: true });
}

function apply(connection: Connection, migration: Migration): void {
  connection.exec("begin immediate");
  try {
    connection.exec(migration.sql);
    const broken = connection.prepare("pragma foreign_key_check").all();
    if (broken.length > 0)
      throw new Error(`migration ${migration.name} leaves ${broken.length} dangling rows`);
    connection.exec(`pragma user_version = ${migration.version}`);
    connection.exec("commit");
  } catch (err) {
    if (connection.inTransaction) connection.exec("rollback");
    throw err;
  }
}

/**
 * Brings the file to the newest schema, each migration in a transaction of its own, after a copy of an existing
 * database. Throws `schema-too-new` when a newer Berth wrote it.
 */
export function migrate(connection: Connection, options: MigrateOptions): void {
  const newest = options.migrations.at(-1)?.version ?? 0;
  refuseNewer(connection, newest);
  const from = schemaVersion(connection);
  const due = options.migrations.filter((migration) => migration.version > from);
  if (due.length === 0) return;
  if (from > 0) copyBefore(connection, newest, options);
  // A migration that rebuilds a table drops the old one; that must not cascade.
  connection.exec("pragma foreign_keys = OFF");
  try {
    for (const migration of due) {
      apply(connection, migration);
      options.log.info({ schema: migration.version, migration: migration.name }, "upgraded the schema");
    }
  } finally {
    connection.exec("pragma foreign_keys = ON");
  }
}
