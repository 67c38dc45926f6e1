import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { formatDuration, parseDuration } from "./duration.ts";

describe("parseDuration", () => {
  test.each([
    ["90s", 90_000],
    ["10m", 600_000],
    ["1h30m", 5_400_000],
    ["1h 30m", 5_400_000],
    ["1d", 86_400_000],
    ["500ms", 500],
    ["1m500ms", 60_500],
    ["1.5h", 5_400_000],
    ["0s", 0],
    [" 2H ", 7_200_000],
  ])("%s is %i ms", (text, ms) => {
    expect(parseDuration(text)).toBe(ms);
  });

  test.each(["", "-1s", "1h1h", "30m1h", "1x", "s", "1 hour", "1w", "1e3s", "1.s", "10m5"])(
    "%p is refused",
    (text) => {
      expect(() => parseDuration(text)).toThrow(expect.objectContaining({ code: "invalid-duration" }));
    },
  );

  test("a number alone is refused with the reason and the field", () => {
    expect(() => parseDuration("10", "timeout")).toThrow(/^timeout: "10" is not a duration: it has no unit/);
    expect(() => parseDuration("10", "timeout")).toThrow(expect.objectContaining({ field: "timeout" }));
  });
});

describe("formatDuration", () => {
  test.each([
    [0, "0s"],
    [500, "500ms"],
    [90_000, "1m30s"],
    [5_400_000, "1h30m"],
    [86_400_000, "1d"],
    [-1000, "-1s"],
  ])("%i ms is %s", (ms, text) => {
    expect(formatDuration(ms)).toBe(text);
  });

  test("is read back exactly", () => {
    fc.assert(
      fc.property(fc.integer({ min: 0, max: 10 ** 12 }), (ms) => {
        expect(parseDuration(formatDuration(ms))).toBe(ms);
      }),
    );
  });
});
