import { expect, test } from "bun:test";
import { createPullSum, withTag } from "./images.ts";

test("a reference without tag or digest means latest, never every tag", () => {
  expect(withTag("python")).toBe("python:latest");
  expect(withTag("python:3")).toBe("python:3");
  expect(withTag("host.lab:5000/team/python")).toBe("host.lab:5000/team/python:latest");
  expect(withTag("host.lab:5000/team/python:3")).toBe("host.lab:5000/team/python:3");
  expect(withTag("python@sha256:00")).toBe("python@sha256:00");
});

test("a pull's progress counts each layer once and never goes back", () => {
  const sum = createPullSum();
  const lines = [
    { status: "Pulling from lab/x", id: "latest" },
    { status: "Downloading", id: "a", progressDetail: { current: 10, total: 100 } },
    { status: "Downloading", id: "b", progressDetail: { current: 5, total: 50 } },
    { status: "Downloading", id: "a", progressDetail: { current: 60, total: 100 } },
    { status: "Download complete", id: "a" },
    { status: "Extracting", id: "a", progressDetail: { current: 1, total: 100 } },
    { status: "Pull complete", id: "b" },
    { status: "Status: Downloaded newer image" },
  ];
  const done = lines.map((line) => sum.add(line));
  expect(done.map(({ doneBytes }) => doneBytes)).toEqual([0, 10, 15, 65, 105, 105, 150, 150]);
  expect(done.at(-1)).toEqual({ phase: "Status: Downloaded newer image", doneBytes: 150, totalBytes: 150 });
});
