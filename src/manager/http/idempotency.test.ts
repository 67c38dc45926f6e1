import { afterEach, beforeEach, expect, test } from "bun:test";
import { manualClock } from "../../kit/clock.ts";
import type { Store } from "../store/store.ts";
import { openTestStore } from "../store/testing.ts";
import { createIdempotency, type Idempotency } from "./idempotency.ts";

let store: Store;
let idempotency: Idempotency;
beforeEach(async () => {
  const clock = manualClock();
  store = await openTestStore(clock);
  idempotency = createIdempotency({ store, clock });
});
afterEach(() => store.close());

const attempt = (key: string) => ({ user: "u", route: "r", key, hash: "h" });
const kept = async () =>
  JSON.stringify(await store.read((db) => db.selectFrom("idempotency_keys").selectAll().execute()));

const ANSWER = {
  items: [
    { name: "one", environment: { API_KEY: "hunter2", EMPTY: "" }, tags: ["a"], exitCode: null },
    { name: "two", environment: { API_KEY: "hunter2" }, nested: [{ environment: { DEEP: "hunter2" } }] },
  ],
};
const REPEATED = {
  items: [
    { name: "one", environment: { API_KEY: null, EMPTY: null }, tags: ["a"], exitCode: null },
    { name: "two", environment: { API_KEY: null }, nested: [{ environment: { DEEP: null } }] },
  ],
};

test("values of environment variables are answered once and never kept", async () => {
  const run = async () => ANSWER;
  expect(await idempotency.whole(attempt("whole"), 201, run)).toEqual({ replayed: false, body: ANSWER });
  await idempotency.begin(attempt("parts"));
  await idempotency.finish(attempt("parts"), { status: 201, body: ANSWER });
  expect(await kept()).not.toContain("hunter2");
  expect(await idempotency.whole(attempt("whole"), 201, run)).toEqual({ replayed: true, body: REPEATED });
  expect(await idempotency.begin(attempt("parts"))).toEqual({ status: 201, body: REPEATED });
});

test("passwords and secrets are not kept, what only has such a name is", async () => {
  const body = {
    password: "hunter2",
    secret: "hunter2",
    labels: { secret: "public", environment: "python" },
  };
  await idempotency.whole(attempt("k"), 201, async () => body);
  expect(await kept()).not.toContain("hunter2");
  const { body: again } = await idempotency.whole(attempt("k"), 201, async () => body);
  expect(again).toEqual({ ...body, password: null, secret: null });
});
