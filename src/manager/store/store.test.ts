import { afterEach, beforeEach, describe, expect, test } from "bun:test";
import { readdirSync, statSync } from "node:fs";
import { join } from "node:path";
import { sql } from "kysely";
import { manualClock } from "../../kit/clock.ts";
import { silentLogger } from "../../kit/log.ts";
import type { Migration } from "./migrate.ts";
import { MIGRATIONS } from "./migrations/all.ts";
import { openWriter, versionAtLeast } from "./sqlite.ts";
import { openStore, type Store, type Tx } from "./store.ts";
import { openTestStore } from "./testing.ts";

let store: Store & { readonly dir: string };
beforeEach(async () => {
  store = await openTestStore();
});
afterEach(() => store.close());

const put = (tx: Tx, key: string, value = "x") => tx.insertInto("meta").values({ key, value }).execute();
const keys = (from: Store = store) =>
  from.read(async (db) =>
    (await db.selectFrom("meta").select("key").where("key", "like", "t%").orderBy("key").execute()).map(
      (row) => row.key,
    ),
  );

describe("transactions", () => {
  test("commit is seen by readers, what was thrown is undone", async () => {
    await store.write((tx) => put(tx, "t1"));
    const failed = store.write(async (tx) => {
      await put(tx, "t2");
      throw new Error("no");
    });
    await expect(failed).rejects.toThrow("no");
    expect(await keys()).toEqual(["t1"]);
  });

  test("run one after another, also when they wait in the middle", async () => {
    const order: string[] = [];
    const one = (name: string) =>
      store.write(async (tx) => {
        order.push(`${name} in`);
        await put(tx, `t${name}`);
        await Promise.resolve();
        order.push(`${name} out`);
      });
    await Promise.all(["a", "b", "c"].map(one));
    expect(order).toEqual(["a in", "a out", "b in", "b out", "c in", "c out"]);
  });

  test("readers see the last committed state while one is under way", async () => {
    await store.write((tx) => put(tx, "t1"));
    let seen: readonly string[] = [];
    const gate = Promise.withResolvers<void>();
    const begun = Promise.withResolvers<void>();
    const writing = store.write(async (tx) => {
      await put(tx, "t2");
      begun.resolve();
      await gate.promise;
    });
    await begun.promise;
    seen = await keys();
    gate.resolve();
    await writing;
    expect(seen).toEqual(["t1"]);
    expect(await keys()).toEqual(["t1", "t2"]);
  });

  test("the root handle inside one throws instead of waiting for ever", async () => {
    const inner = (fn: () => Promise<unknown>) => store.write(async () => void (await fn()));
    await expect(inner(() => store.write(async () => {}))).rejects.toThrow("wait for itself");
    await expect(inner(() => keys())).rejects.toThrow("inside a transaction");
    await expect(store.read(() => store.write(async () => {}))).rejects.toThrow("wait for itself");
  });

  test("a read inside a read takes the same snapshot", async () => {
    await store.write((tx) => put(tx, "t1"));
    expect(await store.read(() => keys())).toEqual(["t1"]);
  });

  test("work that a transaction started may write once it ended", async () => {
    let later: Promise<unknown> = Promise.resolve();
    const done = Promise.withResolvers<void>();
    await store.write(async (tx) => {
      later = done.promise.then(() => store.write((other) => put(other, "t2")));
      await put(tx, "t1");
    });
    done.resolve();
    await later;
    expect(await keys()).toEqual(["t1", "t2"]);
  });

  test("a query that was not awaited is refused, not run in another's transaction", async () => {
    let leaked: Tx | undefined;
    await store.write(async (tx) => {
      leaked = tx;
    });
    const late = async () => leaked !== undefined && (await put(leaked, "t1"));
    await expect(late()).rejects.toThrow("outside of its write");
  });

  test("hooks run after the commit, in order, and never when it failed", async () => {
    const seen: string[] = [];
    await store.write(async (tx) => {
      tx.afterCommit(() => {
        seen.push("first");
        throw new Error("must not stop the next");
      });
      tx.afterCommit(() => seen.push("second"));
      await put(tx, "t1");
      expect(seen).toEqual([]);
    });
    await store
      .write(async (tx) => {
        tx.afterCommit(() => seen.push("never"));
        throw new Error("undone");
      })
      .catch(() => {});
    expect(seen).toEqual(["first", "second"]);
  });

  test("a reader cannot write, and a dangling reference is refused", async () => {
    const sneaky = store.read((db) => sql`insert into meta values ('t1', 'x')`.execute(db));
    await expect(sneaky).rejects.toThrow("readonly");
    const dangling = store.write((tx) =>
      sql`insert into image_nodes values ('no', 'no', null, 1)`.execute(tx),
    );
    await expect(dangling).rejects.toThrow("FOREIGN KEY");
  });

  test("nothing starts after close", async () => {
    await store.close();
    await expect(keys()).rejects.toThrow("closed");
  });
});

describe("a whole made of several", () => {
  test("is one transaction with what is called below, hooks after all of it", async () => {
    const seen: string[] = [];
    await store.writeWhole(async (tx) => {
      await store.write(async (inner) => {
        await put(inner, "t1");
        inner.afterCommit(() => seen.push("inner"));
      });
      expect(await keys()).toEqual(["t1"]);
      await put(tx, "t2");
      tx.afterCommit(() => seen.push("outer"));
      expect(seen).toEqual([]);
    });
    expect(seen).toEqual(["inner", "outer"]);
    expect(await keys()).toEqual(["t1", "t2"]);
  });

  test("is undone as a whole", async () => {
    const seen: string[] = [];
    const failing = store.writeWhole(async () => {
      await store.write(async (inner) => {
        await put(inner, "t1");
        inner.afterCommit(() => seen.push("inner"));
      });
      throw new Error("no");
    });
    await expect(failing).rejects.toThrow("no");
    expect([await keys(), seen]).toEqual([[], []]);
  });

  test("lives on when a part that is undone was expected", async () => {
    const seen: string[] = [];
    await store.writeWhole(async (tx) => {
      const part = store.write(async (inner) => {
        await put(inner, "t1");
        inner.afterCommit(() => seen.push("undone"));
        throw new Error("part");
      });
      await part.catch(() => {});
      await put(tx, "t2");
    });
    expect([await keys(), seen]).toEqual([["t2"], []]);
  });

  test("keeps the guard inside its parts, and lets others wait", async () => {
    const nested = store.writeWhole(() => store.write(() => store.write(async () => {})));
    await expect(nested).rejects.toThrow("wait for itself");
    await Promise.all([
      store.writeWhole(() => store.write((inner) => put(inner, "t1"))),
      store.write((tx) => put(tx, "t2")),
    ]);
    expect(await keys()).toEqual(["t1", "t2"]);
  });
});

describe("the file", () => {
  const again = (migrations: readonly Migration[], dir = store.dir) =>
    openStore({
      path: join(dir, "berth.sqlite"),
      backupDir: join(dir, "backups"),
      clock: manualClock(),
      log: silentLogger,
      migrations,
    });
  const step = (version: number, text: string): Migration => ({
    version,
    name: `step-${version}`,
    sql: text,
  });

  test("keeps cluster id and data, is private, and is not copied without need", async () => {
    await store.write((tx) => put(tx, "t1"));
    await using second = await disposable(again(MIGRATIONS));
    expect(second.store.clusterId).toBe(store.clusterId);
    expect(second.store.epoch).toBe(1);
    expect(await keys(second.store)).toEqual(["t1"]);
    expect(statSync(join(store.dir, "berth.sqlite")).mode & 0o777).toBe(0o600);
    expect(() => readdirSync(join(store.dir, "backups"))).toThrow();
  });

  test("is copied before an upgrade; the last three copies stay", async () => {
    await store.write((tx) => put(tx, "t1"));
    const steps = [...MIGRATIONS];
    for (const version of [2, 3, 4, 5]) {
      steps.push(step(version, `create table extra_${version} (id integer)`));
      await using next = await disposable(again(steps));
      expect(await keys(next.store)).toEqual(["t1"]);
    }
    const copies = readdirSync(join(store.dir, "backups"));
    expect(copies.map((name) => name.slice(0, 15)).sort()).toEqual([
      "before-schema-3",
      "before-schema-4",
      "before-schema-5",
    ]);
    const copy = openWriter(join(store.dir, "backups", copies[0] ?? ""), "OFF");
    expect(copy.prepare("select key from meta where key = 't1'").all()).toHaveLength(1);
    copy.close();
  });

  test("a failing migration changes nothing", async () => {
    const bad = [...MIGRATIONS, step(2, "create table half (id integer); insert into nowhere values (1)")];
    await expect(again(bad)).rejects.toThrow("nowhere");
    const good = [...MIGRATIONS, step(2, "create table half (id integer)")];
    await using next = await disposable(again(good));
    expect(next.store.epoch).toBe(1);
  });

  test("a newer schema is refused by name of both versions", async () => {
    await (await again([...MIGRATIONS, step(2, "create table later (id integer)")])).close();
    await expect(again(MIGRATIONS)).rejects.toMatchObject({
      code: "schema-too-new",
      message: expect.stringMatching(/schema 2, written by Berth \d.*up to 1/),
    });
  });

  test("the version gate compares numbers", () => {
    const least = [3, 51, 3];
    expect(["3.54.1", "3.51.3", "4.0.0"].map((v) => versionAtLeast(v, least))).toEqual([true, true, true]);
    expect(["3.51.2", "3.9.9", "2.99.99"].map((v) => versionAtLeast(v, least))).toEqual([
      false,
      false,
      false,
    ]);
  });
});

async function disposable(opening: Promise<Store>) {
  const opened = await opening;
  return { store: opened, [Symbol.asyncDispose]: () => opened.close() };
}
