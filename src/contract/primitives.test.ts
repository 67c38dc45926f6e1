import { describe, expect, test } from "bun:test";
import { z } from "zod";
import { createGroup, policyChange } from "./cluster.ts";
import { durationInput, MAX_DURATION_MS, queryIntegerOr } from "./primitives.ts";

const messages = (result: { error?: { issues: { message: string }[] } | undefined }) =>
  result.error?.issues.map(({ message }) => message);

describe("durations", () => {
  const tooLong = ["The longest duration is 3650d (10 years)."];

  test("ten years are the most, as a number and as a text", () => {
    expect(durationInput.parse(MAX_DURATION_MS)).toBe(MAX_DURATION_MS);
    expect(durationInput.parse("3650d")).toBe(MAX_DURATION_MS);
    expect(messages(durationInput.safeParse(Number.MAX_SAFE_INTEGER))).toEqual(tooLong);
    expect(messages(durationInput.safeParse("99999999d"))).toEqual(tooLong);
  });

  test("a group's times are between a second and ten years, or none", () => {
    const group = (more: object) => createGroup.safeParse({ name: "gpu", ...more });
    expect(group({ pendingTimeout: null, deadlines: { PULLING: null } }).success).toBe(true);
    expect(group({ pendingTimeout: "1s", deadlines: { PULLING: 1000 } }).success).toBe(true);
    expect(messages(group({ pendingTimeout: 0 }))).toEqual(["The shortest time is 1s."]);
    expect(messages(group({ deadlines: { CREATING: "999ms" } }))).toEqual(["The shortest time is 1s."]);
    expect(messages(group({ deadlines: { PULLING: "3651d" } }))).toEqual(tooLong);
  });

  test("a policy's lifetime likewise", () => {
    expect(policyChange.safeParse({ maxSessionLifetimeMs: null }).success).toBe(true);
    expect(messages(policyChange.safeParse({ maxSessionLifetimeMs: MAX_DURATION_MS + 1 }))).toEqual(tooLong);
    expect(policyChange.safeParse({ maxSessionLifetimeMs: 0 }).success).toBe(false);
  });
});

describe("whole numbers in a query", () => {
  const limit = queryIntegerOr(50, 1, 200);

  test("may be absent", () => {
    expect(z.strictObject({ limit }).parse({})).toEqual({ limit: 50 });
  });

  test.each([
    ["1", 1],
    ["007", 7],
    ["200", 200],
  ])("%p is %p", (text, value) => {
    expect(limit.parse(text)).toBe(value);
  });

  test.each(["0x10", "1e2", "", " 5", "5 ", "+5", "-5", "5.0", "٥", "0", "201", "9007199254740993", 5.5])(
    "%p is refused",
    (text) => {
      expect(limit.safeParse(text).success).toBe(false);
    },
  );
});
