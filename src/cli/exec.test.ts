import { afterEach, describe, expect, test } from "bun:test";
import { createFrameDecoder, encodeFrame, type Frame } from "../kit/frames.ts";
import { runCli } from "./main.ts";
import {
  cli,
  type FakeManager,
  fakeManager,
  problemResponse,
  type TestIoOptions,
  testIo,
} from "./testing.ts";

let manager: FakeManager | undefined;
afterEach(() => manager?.stop());

type Reply = (frame: Frame) => readonly Frame[] | "drop" | undefined;

/** A manager whose exec answers each frame as a test says; `got` are the frames that came. */
function execManager(reply: Reply, route = "sessions.exec", greeting: readonly Frame[] = []) {
  const got: Frame[] = [];
  manager = fakeManager(
    {},
    {
      sockets: {
        [route]: {
          open: (socket) => {
            for (const frame of greeting) socket.send(encodeFrame(frame));
          },
          message: (socket, bytes) => {
            for (const frame of createFrameDecoder().push(bytes)) {
              got.push(frame);
              const answers = reply(frame);
              if (answers === "drop") socket.terminate();
              else for (const answer of answers ?? []) socket.send(encodeFrame(answer));
            }
          },
        },
      },
    },
  );
  return { url: manager.url, got };
}

const exit = (code: number): Frame => ({ type: "exit", code });
const stdinOf = (frames: readonly Frame[]) =>
  Buffer.concat(frames.flatMap((frame) => (frame.type === "stdin" ? [frame.bytes] : [])));

describe("exec", () => {
  test("gives the command's output and code", async () => {
    const { url, got } = execManager((frame) =>
      frame.type === "open"
        ? [
            { type: "stdout", bytes: Buffer.from("out\n") },
            { type: "stderr", bytes: Buffer.from("err\n") },
            exit(42),
          ]
        : undefined,
    );
    const { code, stdout, stderr } = await cli(url, [
      "exec",
      "-e",
      "A=1",
      "-w",
      "/tmp",
      "sess",
      "--",
      "ls",
      "-l",
    ]);
    expect([code, stdout, stderr]).toEqual([42, "out\n", "err\n"]);
    expect(got).toEqual([
      {
        type: "open",
        params: { argv: ["ls", "-l"], tty: false, stdin: false, environment: { A: "1" }, workdir: "/tmp" },
      },
    ]);
    expect(manager?.calls[0]?.params.session).toBe("sess");
  });

  test("a command that could not run has its code and the reason", async () => {
    const { url } = execManager(() => [{ type: "exit", code: 127, reason: "x was not found." }]);
    const { code, stderr } = await cli(url, ["exec", "sess", "--", "x"]);
    expect([code, stderr]).toEqual([127, "berth: x was not found.\n"]);
  });

  test("stdin goes no faster than it is granted, whole and with its end", async () => {
    const input = Buffer.alloc(100_000, "abcdefg");
    let credit = 0;
    let overdrawn = false;
    const received: Frame[] = [];
    const { url } = execManager((frame) => {
      received.push(frame);
      if (frame.type === "stdin") {
        credit -= frame.bytes.length;
        overdrawn ||= credit < 0;
      }
      if (frame.type === "stdin-eof") return [exit(0)];
      if (credit > 0) return undefined;
      credit = 9_000;
      return [{ type: "window", credit }];
    });
    const { code } = await cli(url, ["exec", "-i", "sess", "--", "cat"], { stdin: input.toString() });
    expect(code).toBe(0);
    expect(overdrawn).toBe(false);
    expect(stdinOf(received).equals(input)).toBe(true);
  });

  test.each<[string, Reply, RegExp]>([
    [
      "an error",
      () => [{ type: "error", code: "session-not-running", message: "It has ended." }],
      /has ended.*running/,
    ],
    ["a cut connection", () => "drop", /connection-lost/],
  ])("%s is 125", async (_, reply, words) => {
    const { url } = execManager(reply);
    const { code, stderr } = await cli(url, ["exec", "sess", "--", "x"]);
    expect(code).toBe(125);
    expect(stderr).toMatch(words);
  });

  test("a refusal before the connection is 125 with its reason", async () => {
    manager = fakeManager({
      "sessions.exec": () => problemResponse("session-not-running", "sess is PENDING."),
    });
    const { code, stderr } = await cli(manager.url, ["exec", "sess", "--", "x"]);
    expect(code).toBe(125);
    expect(stderr).toBe("berth: sess is PENDING. [session-not-running]\n");
  });

  test("signals go to the command, and three that it does not heed leave it", async () => {
    const opened = Promise.withResolvers<void>();
    const signalled = Promise.withResolvers<void>();
    const { url, got } = execManager((frame) => {
      if (frame.type === "open") opened.resolve();
      if (frame.type === "signal") signalled.resolve();
      return undefined;
    });
    const io = testIo({ env: { BERTH_URL: url, BERTH_TOKEN: "t" } });
    const code = runCli(["exec", "sess", "--", "x"], {}, io);
    await opened.promise;
    io.signal("SIGTERM");
    await signalled.promise;
    expect(got.at(-1)).toEqual({ type: "signal", signal: "SIGTERM" });
    io.signal("SIGINT");
    io.signal("SIGINT");
    expect(await code).toBe(130);
    expect(io.listening()).toBe(0);
  });

  test("a terminal is raw while the command runs, tells its size, and is put back", async () => {
    const { url, got } = execManager((frame) => {
      if (frame.type === "resize") return [exit(0)];
      return undefined;
    });
    const io = testIo({
      env: { BERTH_URL: url, BERTH_TOKEN: "t", TERM: "xterm" },
      stdinTty: true,
      stdoutTty: true,
    });
    const code = runCli(["exec", "-t", "sess", "--", "bash"], {}, io);
    while (got.length === 0) await Bun.sleep(1);
    io.signal("SIGWINCH");
    expect(await code).toBe(0);
    expect(io.raw()).toEqual([true, false]);
    expect(got[0]).toMatchObject({
      params: { tty: true, cols: 100, rows: 30, environment: { TERM: "xterm" } },
    });
    expect(got[1]).toEqual({ type: "resize", cols: 100, rows: 30 });
  });

  test("the terminal is put back when the connection is lost", async () => {
    const { url } = execManager(() => "drop");
    const options: TestIoOptions = { stdinTty: true, stdoutTty: true };
    const { code, io } = await cli(url, ["exec", "-it", "sess", "--", "bash"], options);
    expect(code).toBe(125);
    expect(io.raw()).toEqual([true, false]);
  });

  test.each([
    [["exec", "sess"], "There is no command"],
    [["exec", "sess", "--"], "There is no command"],
    [["exec", "sess", "x", "--", "y"], "behind"],
    [["exec", "sess", "-it", "bash"], "before the session's name"],
  ])("a wrong command line is 125: %p", async (argv, hint) => {
    const { code, stderr } = await cli("http://127.0.0.1:1", argv);
    expect(code).toBe(125);
    expect(stderr).toContain(hint);
  });
});

test("attach shows the output from now on until the session ends", async () => {
  const greeting: Frame[] = [
    { type: "log", offset: 7, stream: "stdout", bytes: Buffer.from("tick\n") },
    { type: "stderr", bytes: Buffer.from("warn\n") },
    exit(0),
  ];
  const { url } = execManager(() => undefined, "sessions.attach", greeting);
  const { code, stdout, stderr } = await cli(url, ["attach", "sess"]);
  expect([code, stdout, stderr]).toEqual([0, "tick\n", "warn\n"]);
});

test("a wrong line never has a code that the command might have", async () => {
  for (const line of [["run", "--nosuch", "--", "true"], ["exec", "--nosuch", "a", "--", "true"], ["exec"]]) {
    expect((await cli("http://127.0.0.1:9", line)).code).toBe(125);
  }
  expect((await cli("http://127.0.0.1:9", ["logs", "--nosuch"])).code).toBe(2);
});

test("a command that is no text is not sent", async () => {
  const line = ["exec", "a", "--", "cat", "caf\ufffd"];
  const { code, stderr } = await cli("http://127.0.0.1:9", line, { argvIsText: false });
  expect(code).toBe(125);
  expect(stderr).toContain("bytes that are not UTF-8");
});
