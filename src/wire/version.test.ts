import { expect, test } from "bun:test";
import { checkSkew } from "./version.ts";

test.each([
  ["0.3.0", "0.3.9"],
  ["0.3.9", "0.3.0"],
  ["0.3.0", "0.2.7"],
  ["0.10.0", "0.9.0"],
  ["1.4.2-rc.1", "1.3.0+abc"],
])("manager %s serves agent %s", (manager, agent) => {
  expect(checkSkew(manager, agent)).toEqual({ ok: true });
});

test.each([
  ["0.3.0", "0.4.0", "agent-too-new"],
  ["0.9.0", "0.10.0", "agent-too-new"],
  ["0.9.0", "1.0.0", "agent-too-new"],
  ["0.3.0", "0.1.9", "agent-too-old"],
  ["1.0.0", "0.9.0", "agent-too-old"],
  ["1.0.0", "banana", "version-unreadable"],
  ["1.0.0", "1.0", "version-unreadable"],
])("manager %s refuses agent %s", (manager, agent, code) => {
  const verdict = checkSkew(manager, agent);
  expect(verdict).toMatchObject({ ok: false, code });
  if (!verdict.ok) expect(verdict.sentence).toContain(manager);
  if (!verdict.ok) expect(verdict.sentence).toContain(agent);
});
