import { describe, expect, test } from "bun:test";
import { agentLostWords, deadlineReason, describeEnd, type EndFacts } from "./end.ts";

const MIB = 2 ** 20;
const ended = (over: Partial<EndFacts>) =>
  describeEnd({
    type: "batch",
    ran: true,
    exitCode: null,
    oom: false,
    timedOut: false,
    stopReason: null,
    stopRequested: false,
    failure: null,
    endReason: null,
    image: "img:1",
    node: "gpu1",
    memBytes: 512 * MIB,
    timeoutMs: null,
    scratchBytes: null,
    ...over,
  });
const short = (over: Partial<EndFacts>) => {
  const { status, result, exitCode, statusReason } = ended(over);
  return [status, result, exitCode, statusReason];
};

describe("a batch that ended by itself", () => {
  test("with 0 it succeeded, with anything else it failed with that code", () => {
    expect(short({ exitCode: 0 })).toEqual(["TERMINATED", "SUCCESS", 0, "task-finished"]);
    expect(short({ exitCode: 3 })).toEqual(["TERMINATED", "FAILURE", 3, "task-failed"]);
  });
  test.each([
    [126, "cannot be executed"],
    [127, "was not found"],
    [139, "SIGSEGV"],
    [143, "SIGTERM"],
    [129 + 33, "signal 34"],
    [255, "failed with exit code 255"],
  ])("exit code %d says: %s", (exitCode, words) => {
    expect(ended({ exitCode }).sentence).toContain(words);
    expect(ended({ exitCode }).exitCode).toBe(exitCode);
  });
  test("an end that came before the stop counts as its own", () => {
    const finished = { exitCode: 0, stopReason: "user-requested", stopRequested: false };
    expect(short(finished)).toEqual(["TERMINATED", "SUCCESS", 0, "task-finished"]);
  });
});

describe("the node in words", () => {
  const failed = (code: string, node: string | null) =>
    ended({ ran: false, node, failure: { code, message: "" } }).sentence;
  const late = { ran: false, stopReason: "scheduled-timeout", stopRequested: true };
  test("is named where it is the subject", () => {
    expect(ended(late).sentence).toContain("The node gpu1 did not take it up in time.");
    expect(ended({ ...late, node: null }).sentence).toContain("The node did not take it up in time.");
    expect(failed("disk-full", "gpu1")).toBe("The node gpu1 has no disk space left.");
    expect(failed("image-missing", "gpu1")).toBe(
      "The node gpu1 does not have the image img:1 and was not to pull it.",
    );
    expect(ended({ endReason: "node-restarted" }).sentence).toBe(
      "The node gpu1 was restarted, which ended it.",
    );
  });
});

describe("memory", () => {
  test("an out-of-memory kill is told with what was given", () => {
    expect(short({ exitCode: 137, oom: true })).toEqual(["TERMINATED", "FAILURE", 137, "out-of-memory"]);
    expect(ended({ exitCode: 137, oom: true }).sentence).toBe(
      "Memory ran out: the session was given 512 MiB and needed more. Ask for more memory.",
    );
  });
  test("a command that copes with the loss of a process keeps its own result", () => {
    expect(short({ exitCode: 0, oom: true })).toEqual(["TERMINATED", "SUCCESS", 0, "task-finished"]);
    expect(ended({ exitCode: 0, oom: true }).sentence).toContain("memory ran out");
    expect(short({ exitCode: 1, oom: true })).toEqual(["TERMINATED", "FAILURE", 1, "out-of-memory"]);
  });
});

describe("a stop", () => {
  test("gives 137 whatever the process made of it", () => {
    for (const exitCode of [0, 143, 137, null]) {
      const stop = { exitCode, stopReason: "user-requested", stopRequested: true };
      expect(short(stop)).toEqual(["TERMINATED", "FAILURE", 137, "user-requested"]);
    }
  });
  test("before the start cancels, and there is no exit code", () => {
    const stop = { ran: false, stopReason: "user-requested", stopRequested: true };
    expect(short(stop)).toEqual(["CANCELLED", "FAILURE", null, "user-requested"]);
    expect(short({ ...stop, type: "interactive" })).toEqual([
      "CANCELLED",
      "UNDEFINED",
      null,
      "user-requested",
    ]);
  });
  test("by force on a node that does not answer", () => {
    const stop = { stopReason: "force-terminated", stopRequested: false };
    expect(short(stop)).toEqual(["TERMINATED", "FAILURE", 137, "force-terminated"]);
  });
  test("for a phase that took too long is an error, naming the image or node", () => {
    const stop = { ran: false, stopReason: deadlineReason("PULLING"), stopRequested: true };
    expect(short(stop)).toEqual(["ERROR", "FAILURE", null, "pulling-timeout"]);
    expect(ended(stop).sentence).toBe("Pulling the image img:1 on gpu1 took too long and was given up.");
  });
  test("for a wait that took too long cancels", () => {
    expect(short({ ran: false, stopReason: "pending-timeout" })[0]).toBe("CANCELLED");
  });
  test("for a reason we have no words for names it", () => {
    const stop = { stopReason: "credits-used-up", stopRequested: true };
    expect(ended(stop).sentence).toBe("It was terminated: credits-used-up.");
  });
});

describe("a timeout", () => {
  test("gives 124 and names the limit", () => {
    const timeout = { exitCode: 137, timedOut: true, timeoutMs: 600_000 };
    expect(short(timeout)).toEqual(["TERMINATED", "FAILURE", 124, "task-timeout"]);
    expect(ended(timeout).sentence).toBe("It ran into its time limit of 10m.");
  });
});

describe("a start that failed", () => {
  const failed = (code: string, message = "") => ({ ran: false, failure: { code, message } });
  test("is an error with the cause in words", () => {
    expect(short(failed("image-pull-failed", "connection refused."))).toEqual([
      "ERROR",
      "FAILURE",
      null,
      "image-pull-failed",
    ]);
    expect(ended(failed("image-pull-failed", "connection refused.")).sentence).toBe(
      "The image img:1 could not be pulled on gpu1: connection refused.",
    );
    // As the agent words it: what happened is told once.
    const words = "The image docker.io/library/img:1 could not be pulled: denied. It is private.";
    expect(ended(failed("image-pull-failed", words)).sentence).toBe(
      "The image img:1 could not be pulled on gpu1: denied. It is private.",
    );
    expect(ended(failed("something-new", "no idea")).sentence).toBe(
      "It could not be started on gpu1: no idea.",
    );
  });
  test("for want of the command is the command's failure", () => {
    expect(short(failed("command-not-found"))).toEqual(["TERMINATED", "FAILURE", 127, "task-failed"]);
    expect(short(failed("command-not-executable"))).toEqual(["TERMINATED", "FAILURE", 126, "task-failed"]);
  });
});

describe("a container that vanished", () => {
  test.each(["container-removed", "engine-restarted", "node-restarted"])("%s is an error", (endReason) => {
    for (const exitCode of [null, 0, 137, 255]) {
      expect(short({ endReason, exitCode })).toEqual(["ERROR", "FAILURE", null, endReason]);
    }
    expect(ended({ endReason }).sentence).toContain("gpu1");
  });
  test("a full disk ends it with its limit", () => {
    const full = { endReason: "disk-full", exitCode: 137, scratchBytes: 2 ** 30 };
    expect(short(full)).toEqual(["TERMINATED", "FAILURE", 137, "disk-full"]);
    expect(ended(full).sentence).toContain("1 GiB");
  });
  test("an end without any cause is an error and says so", () => {
    expect(short({})).toEqual(["ERROR", "FAILURE", null, "unknown"]);
  });
});

describe("an interactive session", () => {
  test("has no result, and its main process ending is not a task", () => {
    expect(short({ type: "interactive", exitCode: 0 })).toEqual([
      "TERMINATED",
      "UNDEFINED",
      0,
      "self-terminated",
    ]);
    expect(short({ type: "interactive", exitCode: 0, oom: true })[3]).toBe("out-of-memory");
  });
});

test("a lost node leaves the session as it is and says so", () => {
  expect(agentLostWords("gpu1")).toEqual({
    statusReason: "agent-lost",
    sentence: "Its node gpu1 does not answer. The session may still run there and is not moved.",
  });
});
