import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from "bun:test";
import { z } from "zod";
import { hasEngine, loopDevicesOf } from "./support/engine.ts";
import { eventually, type Lab, openLab } from "./support/lab.ts";

setDefaultTimeout(120_000);

const problem = z.object({
  code: z.string(),
  detail: z.string(),
  errors: z.array(z.object({ code: z.string(), field: z.string().optional() })).optional(),
});

describe.skipIf(!hasEngine)("sessions on a real node", () => {
  let lab: Lab;
  beforeAll(async () => {
    lab = await openLab();
  });
  afterAll(() => lab.close());

  const refused = async (body: Record<string, unknown>) => {
    const response = await lab.api("POST", "/api/v1/sessions", body);
    return { status: response.status, ...problem.parse(await response.json()) };
  };

  test("a batch runs to its exit code; its output is kept; its history is whole", async () => {
    const done = await lab.batch("basic", ["sh", "-c", "echo out; echo err >&2; exit 3"]);
    expect(done).toMatchObject({ status: "TERMINATED", exitCode: 3, result: "FAILURE" });
    const text = await lab.logs("basic");
    expect(text.split("\n").sort()).toEqual(["", "err", "out"]);
    const history = await lab.history("basic");
    expect(history[0]).toMatchObject({ from: null, to: "PENDING", actor: "admin@berth.local" });
    expect(history.at(-1)).toMatchObject({ from: "RUNNING", to: "TERMINATED", reason: "task-failed" });
    expect(history.map((entry) => entry.to)).toContain("RUNNING");
    expect((await lab.batch("fine", ["true"])).result).toBe("SUCCESS");
  });

  test("exit codes are those of a shell: not found, not executable, by signal, in time", async () => {
    expect((await lab.batch("nothing", ["/no/such/program"])).exitCode).toBe(127);
    expect((await lab.batch("notexec", ["/etc/ssl"])).exitCode).toBe(126);
    expect((await lab.batch("killed", ["sh", "-c", "kill -TERM $$"])).exitCode).toBe(143);
    const late = await lab.batch("late", ["sleep", "600"], { timeout: "1s" });
    expect(late).toMatchObject({ exitCode: 124, statusReason: "task-timeout", result: "FAILURE" });
  });

  test("an argv is passed as it is, a text goes through the shell", async () => {
    await lab.batch("argv", ["printf", "%s|", "a b", "$HOME", "*"]);
    expect(await lab.logs("argv")).toBe("a b|$HOME|*|");
    await lab.batch("shell", "echo $((6 * 7)) | tr 4 5");
    expect(await lab.logs("shell")).toBe("52\n");
  });

  test("memory that ran out is told in words", async () => {
    const hog = "x=a; while true; do x=$x$x; done";
    const done = await lab.batch("hungry", ["sh", "-c", hog], { slots: { cpu: 500, mem: "64m", shm: "8m" } });
    expect(done).toMatchObject({ exitCode: 137, statusReason: "out-of-memory" });
    expect(done.statusMessage).toContain("64 MiB");
  });

  test("a session sees its variables, the platform's and the thread counts", async () => {
    const environment = { GREETING: "hällo wörld", MKL_NUM_THREADS: "7" };
    const made = await lab.create({
      type: "batch",
      name: "env-test",
      command: ["env"],
      environment,
      slots: { cpu: 1500, mem: "64m", shm: "8m" },
      preopenPorts: [8501],
    });
    await lab.ended("env-test");
    const lines = (await lab.logs("env-test")).split("\n");
    const env = Object.fromEntries(
      lines.map((line) => [line.split("=")[0], line.slice(line.indexOf("=") + 1)]),
    );
    expect(env).toMatchObject({
      GREETING: "hällo wörld",
      OMP_NUM_THREADS: "1",
      MKL_NUM_THREADS: "7",
      BACKENDAI_SESSION_ID: made[0]?.id ?? "",
      BERTH_SESSION_NAME: "env-test",
      BACKENDAI_CLUSTER_HOST: "main1",
      BERTH_PREOPEN_PORTS: "8501",
      NVIDIA_VISIBLE_DEVICES: "void",
      HOME: "/home/work",
    });
  });

  test("an interactive session runs until it is ended; commands run inside with their exit codes", async () => {
    await lab.create({ name: "inter" });
    const session = await lab.running("inter");
    expect(session.kernels[0]?.containerId).toBeString();
    expect(await lab.exec("inter", ["sh", "-c", "echo hi; echo no >&2; exit 9"])).toEqual({
      code: 9,
      stdout: "hi\n",
      stderr: "no\n",
    });
    expect(await lab.exec("inter", ["cat"], "through\nstdin\n")).toMatchObject({
      code: 0,
      stdout: "through\nstdin\n",
    });
    expect(await lab.exec("inter", ["no-such-command"])).toMatchObject({ code: 127 });
    await lab.terminate("inter");
    await lab.terminate("inter");
    expect(await lab.ended("inter")).toMatchObject({ status: "TERMINATED", statusReason: "user-requested" });
    const wrong = await lab.exec("inter", ["true"]).catch((err: Error) => err.message);
    expect(wrong).toBeString();
  });

  test("megabytes go through a command both ways, whole", async () => {
    await lab.create({ name: "pipe", slots: { cpu: 1000, mem: "128m", shm: "8m" } });
    await lab.running("pipe");
    const input = `${Array.from({ length: 300_000 }, (_, at) => at).join("\n")}\n`;
    const done = await lab.exec("pipe", ["cat"], input);
    expect(done.code).toBe(0);
    expect(done.stdout.length).toBe(input.length);
    expect(Bun.hash(done.stdout)).toBe(Bun.hash(input));
    const many = await Promise.all(
      Array.from({ length: 8 }, (_, at) => lab.exec("pipe", ["sh", "-c", `echo ${at}; exit ${at}`])),
    );
    expect(many).toEqual(many.map((_, at) => ({ code: at, stdout: `${at}\n`, stderr: "" })));
    await lab.terminate("pipe");
    await lab.ended("pipe");
  });

  test("output is followed while it comes, and its last lines can be asked for", async () => {
    await lab.create({
      type: "batch",
      name: "lines",
      command: "for i in 1 2 3 4 5; do echo $i; sleep 0.3; done",
    });
    expect(await lab.logs("lines", "format=text&follow=true")).toBe("1\n2\n3\n4\n5\n");
    await lab.ended("lines");
    expect(await lab.logs("lines", "format=text&tail=2")).toBe("4\n5\n");
    expect(await lab.logs("lines", "format=text&offset=6")).toBe("4\n5\n");
  });

  test("output of megabytes arrives whole, byte for byte", async () => {
    await lab.create({
      type: "batch",
      name: "large",
      command: "seq 1 400000",
      slots: { cpu: 1000, mem: "64m", shm: "8m" },
    });
    const followed = await lab.logs("large", "format=text&follow=true");
    const expected = `${Array.from({ length: 400_000 }, (_, at) => at + 1).join("\n")}\n`;
    expect(followed.length).toBe(expected.length);
    expect(Bun.hash(followed)).toBe(Bun.hash(expected));
    await lab.ended("large");
    expect(Bun.hash(await lab.logs("large"))).toBe(Bun.hash(expected));
  });

  test("a stop in each phase ends the session and leaves nothing", async () => {
    for (const [at, delay] of [0, 60, 150, 300, 600].entries()) {
      const name = `phase-${at}`;
      await lab.create({ name });
      await Bun.sleep(delay);
      await lab.terminate(name);
      const done = await lab.ended(name);
      expect(["TERMINATED", "CANCELLED"]).toContain(done.status);
    }
    await eventually("the node is free", async () => (await lab.node()).used.cpu === 0);
  });

  test("force ends a session that ignores the signal, at once", async () => {
    await lab.create({
      type: "batch",
      name: "deaf",
      command: "trap '' TERM; sleep 600 & wait; wait; sleep 600",
    });
    await lab.running("deaf");
    await lab.terminate("deaf", true);
    expect(await lab.show("deaf")).toMatchObject({ status: "TERMINATED", statusReason: "force-terminated" });
    await eventually("its room is free", async () => (await lab.node()).used.cpu === 0);
  });

  test("what can never fit is refused, what has to wait knows why and where", async () => {
    const never = await refused({ type: "batch", command: ["true"], slots: { cpu: 64_000 } });
    expect(never).toMatchObject({ status: 422, code: "admission-refused" });
    expect(never.errors?.map((error) => error.code)).toContain("never-fits");
    await lab.create({ name: "whole", slots: { cpu: 2000, mem: "64m", shm: "8m" } });
    await lab.running("whole");
    await lab.create({ name: "next" });
    const waiting = await eventually("it waits", async () => {
      const session = await lab.show("next");
      return session.queuePosition === 1 && session;
    });
    expect(waiting).toMatchObject({ status: "PENDING", statusReason: "no-room" });
    await lab.terminate("next");
    expect(await lab.show("next")).toMatchObject({ status: "CANCELLED" });
    await lab.terminate("whole", true);
    await eventually("its room is free", async () => (await lab.node()).used.cpu === 0);
  });

  test("an image that is nowhere ends the session in words", async () => {
    await lab.call("POST", "/images", { reference: "berth-test/no-such-image:1" });
    const done = await lab.batch("noimage", ["true"], { image: "berth-test/no-such-image:1" });
    expect(done.status).toBe("ERROR");
    expect(done.exitCode).toBeNull();
    expect(done.statusMessage?.length ?? 0).toBeGreaterThan(20);
  });

  test("nothing is left on the node of sessions that ended", async () => {
    await eventually("the node is free", async () => (await lab.node()).used.cpu === 0);
    const engine = await lab.engine();
    await eventually("no container is left", async () => ((await engine?.listKernels()) ?? []).length === 0);
    expect(loopDevicesOf(lab.agentDir)).toEqual([]);
    const mounts = await Bun.file("/proc/self/mounts").text();
    expect(mounts.split("\n").filter((line) => line.includes(lab.agentDir))).toEqual([]);
  });
});
