import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { formatCpu, parseCpu } from "./cpu.ts";

describe("parseCpu", () => {
  test.each([
    ["2", 2000],
    ["0.5", 500],
    ["0.1", 100],
    ["1.250", 1250],
    ["1.2500000", 1250],
    ["250m", 250],
    [" 4 ", 4000],
  ])("%s is %i milli-cores", (text, milli) => {
    expect(parseCpu(text)).toBe(milli);
  });

  test.each([
    ["0", "the least is 0.1"],
    ["0.05", "the least is 0.1"],
    ["99m", "the least is 0.1"],
    ["-1", "negative"],
    ["0.0001", "finer than"],
    ["250.5m", "finer than"],
    ["", "not a number"],
    ["two", "not a number"],
    ["1e3", "not a number"],
    ["1.", "not a number"],
    ["99999999999999999", "too large"],
  ])("%p is refused: %s", (text, why) => {
    expect(() => parseCpu(text, "slots.cpu")).toThrow(why);
    expect(() => parseCpu(text, "slots.cpu")).toThrow(
      expect.objectContaining({ code: "invalid-cpu", field: "slots.cpu" }),
    );
  });

  test("reads back what formatCpu writes", () => {
    fc.assert(
      fc.property(fc.integer({ min: 100, max: 10 ** 7 }), (milli) => {
        expect(parseCpu(formatCpu(milli))).toBe(milli);
      }),
    );
  });
});
