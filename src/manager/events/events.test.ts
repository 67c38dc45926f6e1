import { afterEach, beforeEach, describe, expect, test } from "bun:test";
import { type ManualClock, manualClock } from "../../kit/clock.ts";
import { newId, type UserId } from "../../kit/ids.ts";
import { silentLogger } from "../../kit/log.ts";
import type { Store } from "../store/store.ts";
import { openTestStore } from "../store/testing.ts";
import { createEventLog, type EventFilter, type EventLog, type NewEvent } from "./log.ts";
import { streamEvents } from "./stream.ts";

let clock: ManualClock;
let store: Store;
let log: EventLog;
beforeEach(async () => {
  clock = manualClock();
  store = await openTestStore(clock);
  log = createEventLog({ store, clock, log: silentLogger });
});
afterEach(() => store.close());

const owner = newId<UserId>(manualClock());
const event = (subject: string, more: Partial<NewEvent> = {}): NewEvent => ({
  kind: "session.status",
  subject,
  ownerId: owner,
  data: { to: "RUNNING" },
  ...more,
});
const add = (...events: NewEvent[]) =>
  store.write(async (tx) => {
    for (const one of events) await log.append(tx, one);
  });

/** Reads events (not comments) from a stream until `count` came. */
async function subjects(stream: AsyncGenerator<string>, count: number): Promise<string[]> {
  const seen: string[] = [];
  while (seen.length < count) {
    const { value, done } = await stream.next();
    if (done === true) break;
    const kind = /^event: (\S+)$/m.exec(value)?.[1];
    if (kind === "reset") seen.push("reset");
    else if (kind !== undefined) seen.push(JSON.parse(/^data: (.*)$/m.exec(value)?.[1] ?? "{}").subject);
  }
  return seen;
}

function open(after: number | undefined, filter: EventFilter = {}) {
  const stop = new AbortController();
  return { stop, stream: streamEvents({ log, clock, filter, after, signal: stop.signal }) };
}

describe("the log", () => {
  test("tells subscribers after the commit, in order, and of nothing that was undone", async () => {
    const heard: string[] = [];
    log.subscribe(({ subject }) => heard.push(subject));
    await store.write(async (tx) => {
      await log.append(tx, event("a"));
      await log.append(tx, event("b"));
      expect(heard).toEqual([]);
    });
    await store
      .write(async (tx) => {
        await log.append(tx, event("undone"));
        throw new Error("no");
      })
      .catch(() => {});
    expect(heard).toEqual(["a", "b"]);
    expect((await log.after(0, {}, 10)).map(({ subject }) => subject)).toEqual(["a", "b"]);
  });

  test("is pruned by age and by number, and never uses a number again", async () => {
    await add(event("old"));
    clock.advance(1000);
    await add(event("a"), event("b"), event("c"));
    expect(await log.prune({ maxAgeMs: 500, maxRows: 2 })).toBe(2);
    expect(await log.bounds()).toEqual({ first: 3, last: 4 });
    await log.prune({ maxAgeMs: -1, maxRows: 0 });
    await add(event("d"));
    expect(await log.bounds()).toEqual({ first: 5, last: 5 });
  });

  test("filters by owner, subject and kind", async () => {
    const other = newId<UserId>(manualClock());
    await add(
      event("mine"),
      event("theirs", { ownerId: other }),
      event("admins", { ownerId: null }),
      event("all", { ownerId: null, everyone: true, kind: "image.updated" }),
    );
    const find = async (filter: EventFilter) =>
      (await log.after(0, filter, 10)).map(({ subject }) => subject);
    expect(await find({ ownerId: owner })).toEqual(["mine", "all"]);
    expect(await find({ subject: "admins" })).toEqual(["admins"]);
    expect(await find({ kinds: ["image"] })).toEqual(["all"]);
    expect(await find({ kinds: ["session.status", "image.updated"] })).toHaveLength(4);
    expect(await find({ kinds: ["sess"] })).toEqual([]);
    expect(await find({ kinds: ["session"] })).toEqual(["mine", "theirs", "admins"]);
    for (const kind of ["%", "_", "sess%", "SESSION", "session.", "session/", "session.status.", ""]) {
      expect(await find({ kinds: [kind] })).toEqual([]);
    }
  });
});

describe("a stream", () => {
  test("begins with what happens from now on, or after a number", async () => {
    await add(event("before"));
    const live = open(undefined);
    await live.stream.next();
    const resumed = open(0);
    const waiting = subjects(live.stream, 1);
    await Promise.resolve();
    await add(event("now"));
    expect(await waiting).toEqual(["now"]);
    expect(await subjects(resumed.stream, 2)).toEqual(["before", "now"]);
    await live.stream.return(undefined);
    await resumed.stream.return(undefined);
  });

  test("gives each event once and in order while many come, also to a slow reader", async () => {
    const { stream } = open(0);
    const expected: string[] = [];
    const reading: string[] = [];
    for (let round = 0; round < 8; round++) {
      const batch = Array.from({ length: 200 }, (_, i) => `${round}-${i}`);
      expected.push(...batch);
      await add(...batch.map((subject) => event(subject)));
      // Far behind what its queue in memory can hold.
      reading.push(...(await subjects(stream, round === 7 ? 8 * 200 - 7 * 5 : 5)));
    }
    expect(reading).toEqual(expected);
    await stream.return(undefined);
  });

  test("tells when what was asked for is gone, and when the number is of another database", async () => {
    await add(event("a"), event("b"), event("c"));
    await log.prune({ maxAgeMs: 1e9, maxRows: 1 });
    const old = open(1);
    expect(await subjects(old.stream, 2)).toEqual(["reset", "c"]);
    const future = open(99);
    const waiting = subjects(future.stream, 2);
    await Bun.sleep(0);
    await add(event("d"));
    expect(await waiting).toEqual(["reset", "d"]);
    await old.stream.return(undefined);
    await future.stream.return(undefined);
  });

  test("says every 15 seconds that it lives, and ends by its signal", async () => {
    const { stream, stop } = open(undefined);
    await stream.next();
    const beat = stream.next();
    for (let i = 0; i < 20; i++) await Bun.sleep(0);
    clock.advance(15_000);
    expect((await beat).value).toStartWith(":");
    const end = stream.next();
    stop.abort();
    expect((await end).done).toBe(true);
  });
});
