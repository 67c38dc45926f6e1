import { expect, test } from "bun:test";
import { createLogger, type LogLevel } from "./log.ts";

function capture(level: LogLevel = "info") {
  const lines: string[] = [];
  const log = createLogger({ level, name: "test", stream: { write: (line) => lines.push(line) } });
  return { log, lines, read: () => lines.map((line): unknown => JSON.parse(line)) };
}

test("a line carries level, name, fields and sentence", () => {
  const { log, read } = capture();
  log.child({ part: "queue" }).info({ waitMs: 5 }, "tried again");
  expect(read()).toEqual([
    expect.objectContaining({ level: "info", name: "test", part: "queue", waitMs: 5, msg: "tried again" }),
  ]);
});

test("lines below the level are not written", () => {
  const { log, lines } = capture("warn");
  log.info("nobody reads this");
  expect(lines).toEqual([]);
});

test("secrets do not reach the log, at three depths and in children", () => {
  const { log, lines } = capture();
  log.info({ password: "s3cret", a: { token: "s3cret", b: { secret: "s3cret" } } }, "one");
  log.info(
    { headers: { authorization: "s3cret", cookie: "s3cret" }, spec: { env: { KEY: "s3cret" } } },
    "two",
  );
  log.child({ token: "s3cret" }).warn("three");
  expect(lines).toHaveLength(3);
  expect(lines.join("")).not.toContain("s3cret");
  expect(lines.join("")).toContain("[hidden]");
});

test("an error keeps its message and its cause", () => {
  const { log, read } = capture();
  log.error({ err: new Error("outer", { cause: new Error("inner") }) }, "failed");
  expect(JSON.stringify(read())).toMatch(/outer.*inner/);
});
