import { expect, test } from "bun:test";
import { firstAdminWords } from "./main.ts";

test("the first password is told to a terminal alone", () => {
  const admin = { url: "http://x", email: "admin@berth.local", password: "correct-horse" };
  const told = firstAdminWords(admin, "/data", true);
  expect(told).toContain("correct-horse");
  const logged = firstAdminWords(admin, "/data", false);
  expect(logged).not.toContain("correct-horse");
  for (const words of [told, logged]) expect(words).toContain("/data/initial-admin.json");
});
