import { expect, test } from "bun:test";
import { withLiveRestore } from "./tools.ts";

test("live-restore is added and everything else stays", () => {
  const text = '{ "log-driver": "local", "live-restore": false, "dns": ["10.0.0.1"] }';
  expect(JSON.parse(withLiveRestore(text))).toEqual({
    "log-driver": "local",
    "live-restore": true,
    dns: ["10.0.0.1"],
  });
});

test("a file that is absent or empty becomes one with live-restore alone", () => {
  expect(JSON.parse(withLiveRestore("  \n"))).toEqual({ "live-restore": true });
});

test("a file that cannot be understood is left to its owner", () => {
  for (const text of ["{ not json", "[]", '"text"', "null"]) expect(() => withLiveRestore(text)).toThrow();
});
