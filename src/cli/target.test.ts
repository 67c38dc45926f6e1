import { afterEach, beforeEach, describe, expect, test } from "bun:test";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { credentialsPath, writeCredentials } from "./credentials.ts";
import { findTarget, originOf } from "./target.ts";
import { testIo } from "./testing.ts";

describe("originOf", () => {
  test.each([
    ["https://lab.example:7410/", "https://lab.example:7410"],
    ["lab.example:7410", "https://lab.example:7410"],
    ["http://127.0.0.1:80", "http://127.0.0.1"],
    ["HTTPS://Lab.Example", "https://lab.example"],
    ["https://[::1]:7410", "https://[::1]:7410"],
  ])("%p is %p", (text, origin) => {
    expect(originOf(text)).toBe(origin);
  });

  test.each(["", "ftp://lab", "https://lab/path", "https://user:pw@lab", "https://lab?x=1", "https://"])(
    "%p is refused",
    (text) => {
      expect(() => originOf(text)).toThrow();
    },
  );
});

describe("findTarget", () => {
  let home: string;
  beforeEach(() => {
    home = mkdtempSync(join(tmpdir(), "berth-target-"));
  });
  afterEach(() => rmSync(home, { recursive: true }));
  const keep = () =>
    writeCredentials(credentialsPath({ HOME: home }), {
      url: "https://kept.example",
      token: "kept",
      email: "k@x",
      trust: { kind: "system" },
    });
  const find = (env: Record<string, string>, dataDir?: string) =>
    findTarget(testIo({ env: { HOME: home, ...env } }), dataDir);

  test("address and token of the environment come before what was kept", async () => {
    keep();
    const target = await find({ BERTH_URL: "http://127.0.0.1:1", BERTH_TOKEN: "given" });
    expect(target).toEqual({ url: "http://127.0.0.1:1", token: "given", trust: { kind: "system" } });
  });

  test("what was kept serves an address without a token only when it is the same one", async () => {
    keep();
    expect((await find({ BERTH_URL: "https://kept.example" })).token).toBe("kept");
    expect(find({ BERTH_URL: "https://other.example" })).rejects.toThrow("there is no token for it");
  });

  test("a token without its manager's address goes to no manager", async () => {
    keep();
    for (const dir of [{}, { BERTH_DATA_DIR: home }, { BERTH_URL: "" }]) {
      await expect(find({ BERTH_TOKEN: "given", ...dir })).rejects.toThrow("not BERTH_URL");
    }
    writeFileSync(join(home, "admin.sock"), "");
    expect((await find({ BERTH_TOKEN: "given" }, home)).socket).toBe(join(home, "admin.sock"));
  });

  test("a data folder means its socket, with or without the folder of the manager", async () => {
    keep();
    const dir = join(home, "data");
    expect(find({}, dir)).rejects.toThrow("no manager's socket");
    mkdirSync(join(dir, "manager"), { recursive: true });
    writeFileSync(join(dir, "manager", "admin.sock"), "");
    expect((await find({}, dir)).socket).toBe(join(dir, "manager", "admin.sock"));
    writeFileSync(join(dir, "admin.sock"), "");
    expect((await find({ BERTH_DATA_DIR: dir })).socket).toBe(join(dir, "admin.sock"));
  });

  test("without anything it says what to do", () => {
    expect(find({})).rejects.toThrow("berth login");
  });
});
