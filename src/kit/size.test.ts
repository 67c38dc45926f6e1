import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { BerthError } from "./errors.ts";
import { formatSize, formatSizeShort, parseSize } from "./size.ts";

describe("parseSize", () => {
  test.each([
    ["1g", 1_073_741_824],
    ["1 GiB", 1_073_741_824],
    ["512m", 536_870_912],
    ["0.5m", 524_288],
    ["1 KiB", 1024],
    ["2 KiBytes", 2048],
    ["1.1k", 1126],
    ["124.32 KiB", 127_303],
    ["1_000", 1000],
    ["11_021_204", 11_021_204],
    ["12345 B", 12_345],
    ["1 byte", 1],
    ["536870912.000000", 536_870_912],
    ["1.000000K", 1024],
    ["  2T ", 2_199_023_255_552],
    ["0", 0],
  ])("%s is %i bytes", (text, bytes) => {
    expect(parseSize(text)).toBe(bytes);
  });

  test.each([
    "1.1",
    "1.5",
    "-1g",
    "-1",
    "XX",
    "",
    " ",
    "1__0",
    "_1",
    "1.",
    ".5g",
    "1e9",
    "1 g b",
    "0x10",
    "inf",
  ])("%p is refused", (text) => {
    expect(() => parseSize(text)).toThrow(BerthError);
  });

  test("a refusal names the field and what was typed", () => {
    const refuse = () => parseSize("1.1", "slots.mem");
    expect(refuse).toThrow(expect.objectContaining({ code: "invalid-size", field: "slots.mem" }));
    expect(refuse).toThrow(/^slots\.mem: "1\.1" /);
  });

  test("a size that cannot be counted exactly is refused", () => {
    expect(parseSize("7p")).toBe(7 * 2 ** 50);
    expect(() => parseSize("9p")).toThrow("beyond 8 PiB");
  });
});

describe("formatSize", () => {
  test.each([
    [0, "0 bytes"],
    [1, "1 byte"],
    [2, "2 bytes"],
    [1023, "1023 bytes"],
    [1024, "1 KiB"],
    [105_935, "103.45 KiB"],
    [1_048_576_123, "1000 MiB"],
    [1_610_612_736, "1.5 GiB"],
    [2 ** 30 - 1, "1 GiB"],
  ])("%i is %s", (bytes, text) => {
    expect(formatSize(bytes)).toBe(text);
  });

  test("is read back to within its two decimals", () => {
    fc.assert(
      fc.property(fc.integer({ min: 0, max: 2 ** 50 }), (bytes) => {
        expect(Math.abs(parseSize(formatSize(bytes)) - bytes)).toBeLessThanOrEqual(1 + bytes * 0.01);
      }),
    );
  });
});

describe("formatSizeShort", () => {
  test.each([
    [0, "0"],
    [930, "930"],
    [1024, "1k"],
    [524_288, "512k"],
    [536_870_912, "512m"],
    [1_610_612_736, "1536m"],
  ])("%i is %s", (bytes, text) => {
    expect(formatSizeShort(bytes)).toBe(text);
  });

  test("is read back exactly", () => {
    fc.assert(
      fc.property(fc.integer({ min: 0, max: 2 ** 52 }), (bytes) => {
        expect(parseSize(formatSizeShort(bytes))).toBe(bytes);
      }),
    );
  });
});
