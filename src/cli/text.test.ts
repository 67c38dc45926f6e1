import { describe, expect, test } from "bun:test";
import { clean, commandText, facts, ordinal, slotsText, table, when } from "./text.ts";

describe("table", () => {
  test("aligns by the width that a terminal shows, wide characters included", () => {
    const text = table(
      [{ title: "NAME" }, { title: "N", right: true }],
      [
        ["한국어", "1"],
        ["ab", "100"],
      ],
    );
    expect(text).toBe("NAME      N\n한국어    1\nab      100\n");
  });

  test("lets no value steer the terminal or break a line", () => {
    const text = table([{ title: "A" }], [["x\u001b[31m\r\ny\u0007"]], false);
    expect(text).toBe("A\nx[31m y\n");
  });

  test("colours only when told to, and without changing the widths", () => {
    const rows = [[{ text: "RUNNING", colour: "green" as const }, "b"]];
    const columns = [{ title: "S" }, { title: "T" }];
    expect(table(columns, rows, false)).not.toContain("\u001b");
    const coloured = table(columns, rows, true);
    expect(coloured).toContain("\u001b[32mRUNNING\u001b[0m  b");
  });
});

test("facts leave out what is empty", () => {
  expect(
    facts([
      ["Name", "a"],
      ["Why", null],
      ["Longer", "b"],
      ["Tags", ""],
    ]),
  ).toBe("Name:   a\nLonger: b\n");
});

test("clean keeps line ends, tabs and every letter", () => {
  expect(clean("a\tb\n한\u0000\u009b")).toBe("a\tb\n한");
});

describe("when", () => {
  const now = Date.parse("2026-11-30T12:00:00Z");
  test.each([
    ["2026-11-30T11:59:30Z", "30s ago"],
    ["2026-11-30T11:00:00Z", "1h ago"],
    ["2026-11-27T12:00:00Z", "3d ago"],
    ["2026-11-30T12:10:00Z", "in 10m"],
    [null, "-"],
  ])("%p is %p", (at, text) => {
    expect(when(at, { now, utc: false })).toBe(text);
  });

  test("utc prints the time itself", () => {
    expect(when("2026-11-30T20:00:00+09:00", { now, utc: true })).toBe("2026-11-30T11:00:00.000Z");
  });
});

test.each([
  [1, "1st"],
  [2, "2nd"],
  [3, "3rd"],
  [4, "4th"],
  [11, "11th"],
  [13, "13th"],
  [22, "22nd"],
  [112, "112th"],
])("ordinal %p", (n, text) => {
  expect(ordinal(n)).toBe(text);
});

test("slots in words", () => {
  expect(slotsText({ cpu: 500, mem: 1 << 30, shm: 0, "cuda.device": 2 })).toBe(
    "0.5 CPUs, 1 GiB, 2 cuda.device",
  );
});

test("a command as a shell would take it", () => {
  expect(commandText(["sh", "-c", "echo 'a b'"])).toBe(`sh -c 'echo '\\''a b'\\'''`);
});
