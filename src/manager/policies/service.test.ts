import { expect, test } from "bun:test";
import { manualClock } from "../../kit/clock.ts";
import type { PolicyId } from "../../kit/ids.ts";
import { openTestStore } from "../store/testing.ts";
import { NO_LIMITS } from "./limits.ts";
import { createPolicies } from "./service.ts";

test("there is one default policy, which limits nothing until it is changed", async () => {
  const clock = manualClock();
  const store = await openTestStore(clock);
  const policies = createPolicies({ store, clock });
  await policies.ensureDefault();
  await policies.ensureDefault();
  const { items } = await policies.list({ limit: 50 });
  expect(items).toMatchObject([{ name: "default", isDefault: true, limits: NO_LIMITS }]);

  await policies.update("default", { maxConcurrentSessions: 3, totalSlots: { cpu: 4000 } });
  const changed = await policies.update("default", { maxConcurrentSessions: 0 });
  expect(changed.limits).toEqual({ ...NO_LIMITS, maxConcurrentSessions: 0, totalSlots: { cpu: 4000 } });
  const id = items[0]?.id as PolicyId;
  expect(await store.read((db) => policies.of(db, id))).toMatchObject({
    name: "default",
    maxConcurrentSessions: 0,
  });
  expect(
    (await policies.update("default", { maxConcurrentSessions: null })).limits.maxConcurrentSessions,
  ).toBeNull();
  await expect(policies.update("none", {})).rejects.toMatchObject({ code: "policy-not-found" });
  await store.close();
});
