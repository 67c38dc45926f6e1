import { describe, expect, test } from "bun:test";
import {
  effectiveLimit,
  exceededSlots,
  NO_LIMITS,
  pendingSlotLimit,
  type ResourcePolicy,
  totalSlotLimit,
  within,
} from "./limits.ts";

const policy = (over: Partial<ResourcePolicy>): ResourcePolicy => ({ ...NO_LIMITS, name: "p", ...over });

describe("limits", () => {
  test("null limits nothing and 0 allows nothing", () => {
    expect(within(null, 1e9, 1e9)).toBe(true);
    expect(within(0, 0, 1)).toBe(false);
    expect(within(0, 0, 0)).toBe(true);
    expect(within(2, 1, 1)).toBe(true);
    expect(within(2, 2, 1)).toBe(false);
  });
  test("adding nothing is within even where more is held than allowed", () => {
    expect(within(1, 5, 0)).toBe(true);
  });
  test("the tightest limit counts", () => {
    expect(effectiveLimit(null, 5, 3, null)).toBe(3);
    expect(effectiveLimit(0, 5)).toBe(0);
    expect(effectiveLimit(null, null)).toBeNull();
    expect(effectiveLimit()).toBeNull();
  });
  test("a slot without a limit is free, or zero where the policy says so", () => {
    expect(totalSlotLimit(policy({}), "cpu")).toBeNull();
    expect(totalSlotLimit(policy({ totalSlots: { cpu: 1000 } }), "cpu")).toBe(1000);
    expect(totalSlotLimit(policy({ totalSlots: { cpu: 1000 } }), "mem")).toBeNull();
    expect(totalSlotLimit(policy({ totalSlots: { cpu: 0 }, unspecifiedSlots: "zero" }), "mem")).toBe(0);
    expect(pendingSlotLimit(policy({ maxPendingSlots: { cpu: 0 } }), "cpu")).toBe(0);
    expect(pendingSlotLimit(policy({ unspecifiedSlots: "zero" }), "cpu")).toBeNull();
  });
  test("exceeded slots tell the limit, what is held and what is added", () => {
    const limits = policy({ totalSlots: { cpu: 4000, gpu: 0 } });
    const limitOf = (slot: string) => totalSlotLimit(limits, slot);
    expect(exceededSlots(limitOf, { cpu: 3000 }, { cpu: 1000, mem: 5 })).toEqual([]);
    expect(exceededSlots(limitOf, { cpu: 3000 }, { cpu: 1001, mem: 5, gpu: 1 })).toEqual([
      { slot: "cpu", limit: 4000, held: 3000, adding: 1001 },
      { slot: "gpu", limit: 0, held: 0, adding: 1 },
    ]);
    expect(exceededSlots(limitOf, { gpu: 3 }, { cpu: 1, gpu: 0 })).toEqual([]);
  });
});
