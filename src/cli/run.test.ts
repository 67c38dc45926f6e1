import { afterEach, describe, expect, test } from "bun:test";
import type { SessionDetail } from "../contract/sessions.ts";
import { runCli } from "./main.ts";
import {
  cli,
  detail,
  ENDED,
  type FakeManager,
  fakeManager,
  framesResponse,
  type Handler,
  logFrame,
  problemResponse,
  type TestIo,
  testIo,
} from "./testing.ts";

let manager: FakeManager | undefined;
afterEach(() => manager?.stop());

function managerWith(
  end: Partial<SessionDetail>,
  handlers: Readonly<Record<string, Handler>> = {},
): FakeManager {
  manager = fakeManager({
    "sessions.create": () => ({ items: [detail({ status: "PENDING" })] }),
    "sessions.logs": () => framesResponse([{ type: "log-end", offset: 0, final: true }]),
    "sessions.get": () => ({ ...ENDED, ...end }),
    "sessions.terminate": () => detail({ status: "TERMINATING" }),
    ...handlers,
  });
  return manager;
}
const bodyOf = (fake: FakeManager) => fake.callsOf("sessions.create")[0]?.body;

describe("exit codes of run", () => {
  test.each<[string, Partial<SessionDetail>, number, RegExp | undefined]>([
    ["success", {}, 0, undefined],
    ["failure of the command", { exitCode: 3, result: "FAILURE", statusReason: "task-failed" }, 3, undefined],
    [
      "125 of the command itself",
      { exitCode: 125, result: "FAILURE", statusReason: "task-failed" },
      125,
      undefined,
    ],
    ["not executable", { exitCode: 126, statusReason: "task-failed" }, 126, /task-failed/],
    [
      "not found",
      { exitCode: 127, statusReason: "task-failed", statusMessage: "Not found." },
      127,
      /Not found\./,
    ],
    ["signal", { exitCode: 139, statusReason: "task-failed" }, 139, /task-failed/],
    [
      "timeout",
      { exitCode: 124, statusReason: "task-timeout", statusMessage: "Too long." },
      124,
      /Too long\./,
    ],
    [
      "memory",
      { exitCode: 137, statusReason: "out-of-memory", statusMessage: "Memory ran out." },
      137,
      /Memory/,
    ],
    ["terminated", { exitCode: 137, statusReason: "user-requested" }, 137, /user-requested/],
    [
      "terminated before it ran",
      { status: "CANCELLED", exitCode: null, statusReason: "user-requested" },
      137,
      /user/,
    ],
    [
      "waited too long",
      { status: "CANCELLED", exitCode: null, statusReason: "pending-timeout" },
      125,
      /pending/,
    ],
    [
      "pull failed",
      { status: "ERROR", exitCode: null, statusReason: "image-pull-failed" },
      125,
      /image-pull-failed/,
    ],
    ["container gone", { status: "ERROR", exitCode: 137, statusReason: "container-removed" }, 125, /removed/],
  ])("%s", async (_, end, code, words) => {
    const result = await cli(managerWith(end).url, ["run", "--", "x"]);
    expect(result.code).toBe(code);
    if (words === undefined) expect(result.stderr).toBe("");
    else expect(result.stderr).toMatch(words);
  });

  test("a refusal is 125 with every reason", async () => {
    const fake = managerWith(
      {},
      {
        "sessions.create": () =>
          problemResponse("admission-refused", "shm is not below mem. (and 1 more)", {
            errors: [
              { code: "shm-too-large", message: "shm is not below mem." },
              { code: "priority-too-high", message: "Priority above 10 needs a right." },
            ],
          }),
      },
    );
    const { code, stderr, stdout } = await cli(fake.url, ["run", "--", "x"]);
    expect(code).toBe(125);
    expect(stdout).toBe("");
    // Each reason once, also the one that the answer's own sentence repeats.
    expect(stderr.trimEnd().split("\n")).toEqual([
      "berth: There are 2 reasons against it. [admission-refused]",
      "  - shm is not below mem. [shm-too-large]",
      "  - Priority above 10 needs a right. [priority-too-high]",
    ]);
  });

  test.each([
    [["--mem", "1.1"], "--mem"],
    [["--mem", "-1g"], "--mem"],
    [["--cpu", "0"], "--cpu"],
    [["--priority", "high"], "--priority"],
    [["--timeout", "10"], "--timeout"],
    [["--start-at", "tomorrow"], "--start-at"],
    [["--port", "8o"], "--port"],
    [["-e", "NOT_SET_ANYWHERE"], "NOT_SET_ANYWHERE"],
  ])("a value that makes no sense is 125 and names the option: %p", async (words, name) => {
    const fake = managerWith({});
    const { code, stderr } = await cli(fake.url, ["run", ...words, "--", "x"]);
    expect(code).toBe(125);
    expect(stderr).toContain(name);
    expect(fake.callsOf("sessions.create")).toHaveLength(0);
  });

  test.each([
    [["run"], "There is no command"],
    [["run", "--"], "There is no command"],
    [["run", "--cpus", "1", "--", "x"], "--cpu"],
    [["run", "x", "--", "y"], "behind"],
    [["run", "--shell", "a", "--", "b"], "not both"],
    [["rnu"], "run"],
    [["node", "set", "n", "--schedulable", "perhaps"], "on, off"],
    [["show"], "session"],
    [["show", "a", "b"], "argument"],
  ])("a wrong command line is 2, of run 125, with a hint: %p", async (argv, hint) => {
    const { code, stderr } = await cli("http://127.0.0.1:1", argv);
    expect(code).toBe(argv[0] === "run" ? 125 : 2);
    expect(stderr).toContain(hint);
  });

  test("with --json a failure is JSON on stderr", async () => {
    const fake = managerWith(
      {},
      { "sessions.create": () => problemResponse("image-not-found", "No such image.") },
    );
    const { code, stderr } = await cli(fake.url, ["run", "--json", "--", "x"]);
    expect(code).toBe(125);
    expect(JSON.parse(stderr)).toMatchObject({
      code: "image-not-found",
      detail: "No such image.",
      requestId: "req-1",
    });
  });
});

describe("what run asks for", () => {
  test("all options arrive", async () => {
    const fake = managerWith({});
    const argv = [
      "--image",
      "python:3",
      "--cpu",
      "0.5",
      "--mem",
      "1g",
      "--shm",
      "64m",
      "-e",
      "A=b=c",
      "-e",
      "HERE",
    ];
    const more = [
      "--name",
      "my-job",
      "--group",
      "gpu",
      "--priority",
      "5",
      "--timeout",
      "10m",
      "--tag",
      "t",
      "--port",
      "8080",
    ];
    const env = { HERE: "here" };
    await cli(
      fake.url,
      ["run", ...argv, ...more, "--start-at", "2027-01-31T08:00Z", "--", "sh", "-c", "a b", "--", "-x"],
      { env },
    );
    expect(bodyOf(fake)).toEqual({
      type: "batch",
      image: "python:3",
      slots: { cpu: 500, mem: 1 << 30, shm: 64 << 20 },
      environment: { A: "b=c", HERE: "here" },
      name: "my-job",
      group: "gpu",
      priority: 5,
      timeout: 600_000,
      tags: ["t"],
      preopenPorts: [8080],
      startsAt: "2027-01-31T08:00:00.000Z",
      command: ["sh", "-c", "a b", "--", "-x"],
    });
  });

  test("without -- the words behind the options are the command, its own options included", async () => {
    const fake = managerWith({});
    await cli(fake.url, ["run", "--cpu", "2", "python", "train.py", "--cpu", "9", "--json"]);
    expect(bodyOf(fake)).toMatchObject({
      slots: { cpu: 2000 },
      command: ["python", "train.py", "--cpu", "9", "--json"],
    });
  });

  test("--shell gives one string", async () => {
    const fake = managerWith({});
    await cli(fake.url, ["run", "--shell", "echo $HOME"]);
    expect(bodyOf(fake)).toMatchObject({ command: "echo $HOME" });
  });

  test("--detach prints the name and nothing else", async () => {
    const fake = managerWith({});
    const { code, stdout } = await cli(fake.url, ["run", "--detach", "--", "x"]);
    expect([code, stdout]).toEqual([0, "calm-otter-1\n"]);
    expect(fake.callsOf("sessions.logs")).toHaveLength(0);
  });
});

describe("output of run", () => {
  test("is the command's, byte for byte, each stream on its own", async () => {
    const binary = new Uint8Array(70_000).map((_, index) => (index * 7) % 256);
    const fake = managerWith(
      {},
      {
        "sessions.logs": () =>
          framesResponse([
            { type: "log", offset: 0, stream: "stdout", bytes: binary },
            logFrame(70_000, "warning\n", "stderr"),
            { type: "log-end", offset: 70_008, final: true },
          ]),
      },
    );
    const { io, stderr } = await cli(fake.url, ["run", "--", "x"]);
    expect(Buffer.from(io.stdoutBytes()).equals(Buffer.from(binary))).toBe(true);
    expect(stderr).toBe("warning\n");
  });

  test("of several sessions is told apart by line, and the first failure is the code", async () => {
    const ids = ["01930000-0000-7000-8000-000000000001", "01930000-0000-7000-8000-000000000002"] as const;
    const fake = managerWith(
      {},
      {
        "sessions.create": () => ({
          items: ids.map((id, index) => detail({ id, name: `job-${index + 1}` })),
        }),
        "sessions.logs": () =>
          framesResponse([logFrame(0, "a\nb"), { type: "log-end", offset: 3, final: true }]),
        "sessions.get": ({ params }) => ({
          ...ENDED,
          exitCode: params.session === ids[1] ? 4 : 0,
          statusReason: "task-failed",
        }),
      },
    );
    const { code, stdout } = await cli(fake.url, ["run", "--count", "2", "--", "x"]);
    expect(code).toBe(4);
    expect(stdout.split("\n").sort()).toEqual(["", "job-1: a", "job-1: b", "job-2: a", "job-2: b"]);
  });

  test("the waiting reason is for terminals only", async () => {
    const release = Promise.withResolvers<void>();
    const waiting = detail({ status: "PENDING", queuePosition: 3, statusMessage: "Needs 4 CPUs." });
    let looks = 0;
    const handlers = {
      "sessions.logs": async () => {
        await release.promise;
        return framesResponse([{ type: "log-end", offset: 0, final: true }]);
      },
      "sessions.get": () => {
        if (++looks === 1) setTimeout(() => release.resolve(), 20);
        return looks === 1 ? waiting : ENDED;
      },
    } as const;
    const onTerminal = await cli(managerWith({}, handlers).url, ["run", "--", "x"], { stderrTty: true });
    expect(onTerminal.stderr).toContain("calm-otter-1 is PENDING, 3rd in group default: Needs 4 CPUs.");
    expect(onTerminal.stderr.endsWith("\r\u001b[2K")).toBe(true);
  });

  test("a reader that goes away ends the session", async () => {
    const fake = managerWith(
      {},
      { "sessions.logs": () => framesResponse([logFrame(0, "0123456789"), logFrame(10, "x")]) },
    );
    const { code, stderr } = await cli(fake.url, ["run", "--", "yes"], { closeStdoutAfter: 5 });
    expect(code).toBe(141);
    expect(stderr).toBe("");
    expect(fake.callsOf("sessions.terminate")).toHaveLength(1);
  });

  test("output that cannot be written is told, and the session goes on", async () => {
    const fake = managerWith(
      {},
      { "sessions.logs": () => framesResponse([logFrame(0, "0123456789"), logFrame(10, "x")]) },
    );
    const { code, stderr } = await cli(fake.url, ["run", "--", "yes"], { fullStdoutAfter: 5 });
    expect(code).toBe(125);
    expect(stderr).toContain("The output cannot be written: no space left on device.");
    expect(stderr).toContain('"berth logs calm-otter-1". [output-failed]');
    expect(fake.callsOf("sessions.terminate")).toHaveLength(0);
  });
});

describe("Ctrl-C", () => {
  /** A session that goes on until it is terminated, and then ends if `obeys`. */
  function endless(obeys: boolean) {
    const started = Promise.withResolvers<void>();
    const terminated = Promise.withResolvers<void>();
    const over = Promise.withResolvers<void>();
    const fake = managerWith(
      { exitCode: 137, statusReason: "user-requested" },
      {
        "sessions.logs": async () => {
          started.resolve();
          await over.promise;
          return framesResponse([{ type: "log-end", offset: 0, final: true }]);
        },
        "sessions.terminate": () => {
          terminated.resolve();
          if (obeys) over.resolve();
          return detail({ status: "TERMINATING" });
        },
      },
    );
    const io: TestIo = testIo({ env: { BERTH_URL: fake.url, BERTH_TOKEN: "t" } });
    return { fake, io, started, terminated, code: runCli(["run", "--", "sleep", "inf"], {}, io) };
  }

  test.each<["SIGINT" | "SIGTERM", number]>([
    ["SIGINT", 130],
    ["SIGTERM", 143],
  ])("%s terminates the session and waits for its end", async (signal, expected) => {
    const { io, started, code, fake } = endless(true);
    await started.promise;
    io.signal(signal);
    expect(await code).toBe(expected);
    expect(fake.callsOf("sessions.terminate")).toHaveLength(1);
    expect(io.stderr()).toContain("press Ctrl-C again to leave it");
    expect(io.listening()).toBe(0);
  });

  test("a second one leaves it and says how to look at it", async () => {
    const { io, started, terminated, code } = endless(false);
    await started.promise;
    io.signal("SIGINT");
    await terminated.promise;
    io.signal("SIGINT");
    expect(await code).toBe(130);
    expect(io.stderr()).toContain("berth show calm-otter-1");
  });
});
