import { expect, test } from "bun:test";
import { readEvent } from "./events.ts";

const owner = { clusterId: "c1", agentId: "a1" };
const attributes = {
  "berth.cluster": "c1",
  "berth.agent": "a1",
  "berth.kernel": "k1",
  "berth.session": "s1",
  "berth.generation": "3",
  exitCode: "0",
};
const event = (changes = {}, own = {}) => ({
  Type: "container",
  Action: "die",
  Actor: { ID: "abc", Attributes: { ...attributes, ...own } },
  ...changes,
});

test("an event of an own container names its kernel", () => {
  expect(readEvent(owner, event())).toEqual({
    kind: "container",
    action: "die",
    kernel: { kernelId: "k1", sessionId: "s1", generation: 3 },
    containerId: "abc",
  });
});

test("others' containers, other actions and nonsense mean nothing", () => {
  for (const value of [
    event({}, { "berth.cluster": "c2" }),
    event({}, { "berth.agent": "a2" }),
    event({}, { "berth.generation": "x" }),
    event({ Action: "exec_start: sh" }),
    event({ Type: "network" }),
    event({ Actor: null }),
    null,
    "text",
  ]) {
    expect(readEvent(owner, value)).toBeUndefined();
  }
});

test("any change of images is one event", () => {
  expect(readEvent(owner, { Type: "image", Action: "pull" })).toEqual({ kind: "image" });
});
