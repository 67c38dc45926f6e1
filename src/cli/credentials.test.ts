import { afterEach, beforeEach, expect, test } from "bun:test";
import { mkdtempSync, readdirSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import {
  type Credentials,
  credentialsPath,
  readCredentials,
  removeCredentials,
  writeCredentials,
} from "./credentials.ts";

let home: string;
beforeEach(() => {
  home = mkdtempSync(join(tmpdir(), "berth-home-"));
});
afterEach(() => rmSync(home, { recursive: true }));

const credentials: Credentials = {
  url: "https://lab.example:7410",
  token: "berth_secret",
  email: "kim@lab.example",
  trust: { kind: "pinned", pem: "-----BEGIN" },
};

test("only the owner can read the file, and nothing else is left beside it", () => {
  const path = credentialsPath({ HOME: home });
  expect(path).toBe(join(home, ".config/berth/credentials.json"));
  writeCredentials(path, credentials);
  writeCredentials(path, { ...credentials, token: "berth_next" });
  expect(statSync(path).mode & 0o777).toBe(0o600);
  expect(statSync(dirname(path)).mode & 0o077).toBe(0);
  expect(readdirSync(dirname(path))).toEqual(["credentials.json"]);
  expect(readCredentials(path)?.token).toBe("berth_next");
});

test("XDG_CONFIG_HOME is heeded", () => {
  expect(credentialsPath({ HOME: home, XDG_CONFIG_HOME: "/x" })).toBe("/x/berth/credentials.json");
});

test("no file is no credentials, a damaged one is told", () => {
  const path = credentialsPath({ HOME: home });
  expect(readCredentials(path)).toBeUndefined();
  writeCredentials(path, credentials);
  writeFileSync(path, '{"url": 1}');
  expect(() => readCredentials(path)).toThrow("is damaged");
  removeCredentials(path);
  expect(readCredentials(path)).toBeUndefined();
});
