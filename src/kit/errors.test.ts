import { expect, test } from "bun:test";
import { BerthError, isBerthError, messageOf } from "./errors.ts";

test("a BerthError carries what a person and a script need", () => {
  const cause = new Error("why");
  const err = new BerthError("too-much", "at most 4", { field: "cpu", details: { limit: 4 }, cause });
  expect(err).toMatchObject({
    code: "too-much",
    message: "at most 4",
    field: "cpu",
    details: { limit: 4 },
    cause,
  });
  expect(isBerthError(err)).toBe(true);
  expect(isBerthError(cause)).toBe(false);
});

test("anything thrown has a sentence", () => {
  expect(messageOf(new Error("words"))).toBe("words");
  expect(messageOf("words")).toBe("words");
  expect(messageOf(undefined)).toBe("undefined");
});
