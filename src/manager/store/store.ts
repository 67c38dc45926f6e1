import { AsyncLocalStorage } from "node:async_hooks";
import { chmodSync, existsSync, mkdirSync, writeFileSync } from "node:fs";
import { dirname } from "node:path";
import { Kysely, type SqliteDatabase, SqliteDialect } from "kysely";
import type { Brand } from "../../kit/brand.ts";
import type { Clock } from "../../kit/clock.ts";
import { asId, type ClusterId, newId } from "../../kit/ids.ts";
import type { Logger } from "../../kit/log.ts";
import { VERSION } from "../../kit/version.ts";
import { type Migration, migrate } from "./migrate.ts";
import { MIGRATIONS } from "./migrations/all.ts";
import type { Database } from "./schema.ts";
import { type Connection, openReader, openWriter, type Synchronous } from "./sqlite.ts";

/** A handle that can only read. */
export type Db = Pick<Kysely<Database>, "selectFrom" | "with" | "selectNoFrom" | "fn" | "getExecutor">;

type Writing = Pick<
  Kysely<Database>,
  "selectFrom" | "selectNoFrom" | "with" | "fn" | "insertInto" | "updateTable" | "deleteFrom" | "getExecutor"
>;
type Handle = Writing & {
  /** Runs `fn` once the transaction is committed, never otherwise. What it throws is logged. */
  afterCommit(fn: () => void): void;
};
/** The transaction under way; only `Store.write` makes one, so a repository that takes it writes in one. */
export type Tx = Brand<Handle, "Tx">;

export type Store = {
  readonly clusterId: ClusterId;
  /** Raised by each restore from a backup; containers of another epoch are not ours to remove. */
  readonly epoch: number;
  /**
   * Runs `fn` on one consistent snapshot of what is committed. Reads wait for each other, so `fn` waits for nothing
   * but its queries. Throws inside a transaction, whose own handle must be used there.
   */
  read<T>(fn: (db: Db) => Promise<T>): Promise<T>;
  /**
   * Runs `fn` in a transaction (`BEGIN IMMEDIATE`), one at a time; what it throws undoes everything. No network and
   * no waiting inside. Throws inside another transaction: that would wait for itself for ever.
   */
  write<T>(fn: (tx: Tx) => Promise<T>): Promise<T>;
  /**
   * As `write`, but what `fn` calls may use `read` and `write` too: they join this transaction, one after another,
   * and what a joined write throws undoes that one alone. For a whole that is made of services' own transactions.
   */
  writeWhole<T>(fn: (tx: Tx) => Promise<T>): Promise<T>;
  /** Waits for the transactions under way and closes the file. */
  close(): Promise<void>;
};

export type StoreOptions = {
  readonly path: string;
  readonly backupDir: string;
  readonly clock: Clock;
  readonly log: Logger;
  /** For tests of the runner; the program's own by default. */
  readonly migrations?: readonly Migration[];
  readonly synchronous?: Synchronous;
};

const CACHED_STATEMENTS = 400;

/** Keeps prepared statements: Kysely asks for each query anew. Its statements are run at once, so sharing is safe. */
function cached(connection: Connection, check: () => void): SqliteDatabase {
  const statements = new Map<string, ReturnType<Connection["prepare"]>>();
  return {
    close: () => connection.close(),
    prepare: (sql) => {
      check();
      const found = statements.get(sql);
      if (found !== undefined) return found;
      const made = connection.prepare(sql);
      const oldest = statements.size >= CACHED_STATEMENTS ? statements.keys().next().value : undefined;
      if (oldest !== undefined) statements.delete(oldest);
      statements.set(sql, made);
      return made;
    },
  };
}

/** Runs one task at a time, in the order of asking. */
function createTurns() {
  let last: Promise<unknown> = Promise.resolve();
  return {
    take<T>(task: () => Promise<T>): Promise<T> {
      const mine = last.then(task);
      last = mine.catch(() => {});
      return mine;
    },
    idle: () => last,
  };
}

function prepareFile(path: string): void {
  mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
  if (!existsSync(path)) writeFileSync(path, "", { mode: 0o600 });
  else chmodSync(path, 0o600);
}

function meta(connection: Connection, key: string): string | undefined {
  const row = connection.prepare("select value from meta where key = ?").all([key])[0];
  return typeof row === "object" && row !== null && "value" in row ? String(row.value) : undefined;
}

function ensureMeta(connection: Connection, clock: Clock): { clusterId: ClusterId; epoch: number } {
  const insert = connection.prepare(
    "insert into meta (key, value) values (?, ?) on conflict (key) do nothing",
  );
  insert.run(["cluster_id", newId<ClusterId>(clock)]);
  insert.run(["epoch", "1"]);
  connection
    .prepare(
      "insert into meta (key, value) values ('program_version', ?) on conflict (key) do update set value = excluded.value",
    )
    .run([VERSION]);
  return {
    clusterId: asId<ClusterId>(meta(connection, "cluster_id") ?? ""),
    epoch: Number(meta(connection, "epoch")),
  };
}

type Scope = { open: boolean } & (
  | { readonly kind: "read"; readonly db: Db }
  /** `join` lets calls below take part in the transaction. */
  | {
      readonly kind: "write";
      readonly join: { readonly tx: Tx; readonly hooks: Hook[]; busy: boolean } | undefined;
    }
);
type Hook = () => void;

/**
 * Opens the manager's database, making or upgrading it. Throws `sqlite-too-old` and `schema-too-new`; see `Store`
 * for the rules of its two ways in.
 */
export async function openStore(options: StoreOptions): Promise<Store> {
  const { path, clock, log, backupDir, migrations = MIGRATIONS, synchronous = "FULL" } = options;
  prepareFile(path);
  const writer = openWriter(path, synchronous);
  try {
    migrate(writer, { clock, log, backupDir, migrations });
  } catch (err) {
    writer.close();
    throw err;
  }
  const { clusterId, epoch } = ensureMeta(writer, clock);
  const reader = openReader(path);
  const writeTurns = createTurns();
  const readTurns = createTurns();
  const scopes = new AsyncLocalStorage<Scope>();
  let closing = false;

  /** A query that is not awaited runs after the end of its scope, in nobody's or somebody else's transaction. */
  const mustBeIn = (kind: Scope["kind"]) => () => {
    const scope = scopes.getStore();
    if (scope?.open === true && scope.kind === kind) return;
    throw new Error(`a query ran outside of its ${kind}: await every query, and keep no handle`);
  };
  const kysely = (connection: Connection, kind: Scope["kind"]) =>
    new Kysely<Database>({ dialect: new SqliteDialect({ database: cached(connection, mustBeIn(kind)) }) });
  const writing = kysely(writer, "write");
  const reading = kysely(reader, "read");

  /** The scope that the caller runs in, unless it ended and only its context lives on in a timer or promise. */
  const currentScope = (): Scope | undefined => {
    const scope = scopes.getStore();
    return scope?.open === true ? scope : undefined;
  };

  async function inScope<T>(scope: Scope, fn: () => Promise<T>): Promise<T> {
    try {
      return await scopes.run(scope, fn);
    } finally {
      scope.open = false;
    }
  }

  function runHooks(hooks: readonly Hook[]): void {
    for (const hook of hooks) {
      try {
        hook();
      } catch (err) {
        log.error({ err }, "what follows a transaction failed");
      }
    }
  }

  async function writeOnce<T>(fn: (tx: Tx) => Promise<T>, whole: boolean): Promise<T> {
    const hooks: Hook[] = [];
    writer.exec("begin immediate");
    let result: T;
    try {
      // A handle of its own, so that what is registered belongs to this transaction.
      const handle: Handle = Object.assign(writing.withoutPlugins(), {
        afterCommit: (hook: Hook): void => {
          hooks.push(hook);
        },
      });
      const tx = handle as Tx;
      const join = whole ? { tx, hooks, busy: false } : undefined;
      result = await inScope({ kind: "write", join, open: true }, () => fn(tx));
      writer.exec("commit");
    } catch (err) {
      if (writer.inTransaction) writer.exec("rollback");
      throw err;
    }
    runHooks(hooks);
    return result;
  }

  async function joined<T>(
    join: NonNullable<(Scope & { kind: "write" })["join"]>,
    fn: (tx: Tx) => Promise<T>,
  ) {
    if (join.busy) throw new Error("store.write inside a write: it would wait for itself");
    const before = join.hooks.length;
    join.busy = true;
    writer.exec("savepoint joined");
    try {
      const result = await fn(join.tx);
      writer.exec("release joined");
      return result;
    } catch (err) {
      join.hooks.length = before;
      if (writer.inTransaction) writer.exec("rollback to joined; release joined");
      throw err;
    } finally {
      join.busy = false;
    }
  }

  async function readOnce<T>(fn: (db: Db) => Promise<T>): Promise<T> {
    reader.exec("begin");
    try {
      return await inScope({ kind: "read", db: reading, open: true }, () => fn(reading));
    } finally {
      if (reader.inTransaction) reader.exec("rollback");
    }
  }

  async function begin<T>(fn: (tx: Tx) => Promise<T>, whole: boolean): Promise<T> {
    const scope = currentScope();
    if (scope?.kind === "write" && scope.join !== undefined) return joined(scope.join, fn);
    if (scope !== undefined) throw new Error(`store.write inside a ${scope.kind}: it would wait for itself`);
    if (closing) throw new Error("the store is closed");
    return writeTurns.take(() => writeOnce(fn, whole));
  }

  return {
    clusterId,
    epoch,
    read: async (fn) => {
      const scope = currentScope();
      if (scope?.kind === "read") return fn(scope.db);
      if (scope?.join !== undefined) return fn(scope.join.tx);
      if (scope !== undefined) throw new Error("store.read inside a transaction: use its own handle");
      if (closing) throw new Error("the store is closed");
      return readTurns.take(() => readOnce(fn));
    },
    write: (fn) => begin(fn, false),
    writeWhole: (fn) => begin(fn, true),
    close: async () => {
      if (closing) return;
      closing = true;
      await Promise.all([writeTurns.idle(), readTurns.idle()]);
      reader.close();
      writer.close();
    },
  };
}
