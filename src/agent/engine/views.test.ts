import { expect, test } from "bun:test";
import { containerState } from "./views.ts";

const state = {
  Status: "exited",
  Running: false,
  Pid: 0,
  ExitCode: 0,
  OOMKilled: false,
  Error: "",
  StartedAt: "2025-11-30T13:00:00.123456789Z",
  FinishedAt: "2025-11-30T13:00:01Z",
};

test("an ended container tells how and when", () => {
  expect(containerState({ ...state, ExitCode: 3 }, false)).toEqual({
    kind: "exited",
    exitCode: 3,
    oomKilled: false,
    startedAt: Date.UTC(2025, 10, 30, 13, 0, 0, 123),
    endedAt: Date.UTC(2025, 10, 30, 13, 0, 1),
    error: "",
  });
});

test("an out-of-memory kill that was seen counts although the engine's flag missed it", () => {
  expect(containerState({ ...state, ExitCode: 137 }, true)).toMatchObject({ oomKilled: true });
  expect(containerState({ ...state, ExitCode: 137 }, false)).toMatchObject({ oomKilled: false });
});

test("a container whose start was refused has ended", () => {
  const created = {
    ...state,
    Status: "created",
    StartedAt: "0001-01-01T00:00:00Z",
    FinishedAt: "0001-01-01T00:00:00Z",
  };
  expect(containerState(created, false)).toEqual({ kind: "created" });
  expect(containerState({ ...created, ExitCode: 127, Error: "no such file" }, false)).toMatchObject({
    kind: "exited",
    exitCode: 127,
    startedAt: 0,
    error: "no such file",
  });
});
