import { describe, expect, test } from "bun:test";
import { z } from "zod";
import { createUser } from "./accounts.ts";
import { createGroup, policyChange } from "./cluster.ts";
import { durationInput, MAX_DURATION_MS, queryIntegerOr } from "./primitives.ts";
import { createSession } from "./sessions.ts";

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

describe("texts of one line", () => {
  const refused = ["It holds a line break, a control character or broken Unicode."];
  const user = (more: object) => createUser.safeParse({ email: "ann@lab", ...more });
  const session = (tags: string[]) => createSession.safeParse({ tags });

  test.each(["a\0b", "a\u001b[31mb", "a\nb", "a\u0085b", "a\ud800b", "a\u202eb", "a\u2028b", "a\u007fb"])(
    "%j is no name, no tag and no address",
    (text) => {
      expect(messages(user({ name: text }))).toEqual(refused);
      expect(messages(user({ email: `${text}@lab` }))).toContain(refused[0] ?? "");
      expect(messages(session([text]))).toEqual(refused);
    },
  );

  test("any script is, emoji that are joined included", () => {
    expect(user({ name: "김 민지 👩‍🔬", email: "Zoë@lab" }).success).toBe(true);
    expect(session(["프로젝트-1", "été"]).success).toBe(true);
    expect(user({ name: " Ann " }).data?.name).toBe("Ann");
  });
});
