import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from "bun:test";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { KernelPhase } from "../../src/wire/generated/berth.ts";
import {
  type AgentBench,
  createAgentBench,
  eventually,
  exec,
  readLog,
  startExec,
} from "./support/agent-bench.ts";
import { batchSpec, hasEngine, interactiveSpec, loopDevicesOf } from "./support/engine.ts";

setDefaultTimeout(90_000);

describe.if(hasEngine)("an agent", () => {
  let bench: AgentBench;
  beforeAll(async () => {
    bench = await createAgentBench();
  });
  afterAll(async () => {
    await bench.cleanUp();
  });

  const run = async (script: string, changes: Parameters<typeof batchSpec>[1] = {}) => {
    const spec = batchSpec(script, changes);
    await bench.manager.ensure(spec);
    const status = await bench.manager.phase(spec, KernelPhase.EXITED);
    return { spec, status };
  };
  const docker = (...args: string[]) => Bun.$`docker ${args}`.quiet().text();
  const containerOf = async (kernelId: string) =>
    (await docker("ps", "-aq", "--no-trunc", "--filter", `label=berth.kernel=${kernelId}`)).trim();

  test("joins by its token, describes the node and tells its health", async () => {
    const node = bench.manager.report()?.node;
    expect(node?.cpuMilli).toBeGreaterThan(0);
    expect(node?.memBytes).toBeGreaterThan(0);
    expect(node).toMatchObject({ engine: "docker", hostEnvironment: true, reservedMemBytes: 512 * 2 ** 20 });
    expect(bench.manager.report()?.engineReachable).toBe(true);
    await eventually("health is told", () => bench.manager.health());
    expect(JSON.parse(readFileSync(join(bench.dataDir, "identity.json"), "utf8")).agentId).toBe(
      bench.manager.agentId,
    );
  });

  test("runs a batch, gives its exit code and output, and removes everything when told to forget", async () => {
    const { spec, status } = await run("echo out; echo err >&2; exit 7");
    expect(status).toMatchObject({
      exitCode: 7,
      oomKilled: false,
      timedOut: false,
      endReason: "",
      logBytes: 8,
    });
    expect(await readLog(bench.manager, spec)).toEqual({
      stdout: "out\n",
      stderr: "err\n",
      gaps: 0,
      final: true,
    });
    expect(await readLog(bench.manager, spec, { offset: 2 })).toMatchObject({ gaps: 0, final: true });
    expect(await containerOf(spec.kernelId)).not.toBe("");
    await bench.manager.forget(spec);
    const gone = await bench.manager.phase(spec, KernelPhase.GONE);
    expect(gone.scratchPresent).toBe(false);
    expect(await containerOf(spec.kernelId)).toBe("");
    expect(readdirSync(join(bench.dataDir, "kernels"))).toEqual([]);
    expect(readdirSync(join(bench.dataDir, "logs"))).toEqual([]);
    expect(loopDevicesOf(bench.dataDir)).toEqual([]);
  });

  test("wanted twice is one container", async () => {
    const spec = batchSpec("echo once");
    await Promise.all([bench.manager.ensure(spec), bench.manager.ensure(spec)]);
    await bench.manager.phase(spec, KernelPhase.EXITED);
    await bench.manager.ensure(spec);
    expect((await readLog(bench.manager, spec)).stdout).toBe("once\n");
    expect((await containerOf(spec.kernelId)).split("\n")).toHaveLength(1);
    await bench.manager.forget(spec);
  });

  test("tells a command that does not exist, and one that ran out of time", async () => {
    const missing = batchSpec("", { main: 2, argv: ["/nonexistent/command"] });
    await bench.manager.ensure(missing);
    const status = await bench.manager.phase(missing, KernelPhase.EXITED);
    expect(status.exitCode).toBe(127);
    const { spec: slow, status: late } = await run("echo begun; sleep 600", { timeoutMs: 1500 });
    expect(late).toMatchObject({ timedOut: true });
    expect((await readLog(bench.manager, slow)).stdout).toBe("begun\n");
    await Promise.all([bench.manager.forget(missing), bench.manager.forget(slow)]);
  });

  test("follows output while it is written and ends when it is final", async () => {
    const spec = batchSpec("echo first; sleep 1; echo last");
    await bench.manager.ensure(spec);
    await eventually("it is known", () => bench.manager.status(spec));
    const log = await readLog(bench.manager, spec, { follow: true });
    expect(log).toEqual({ stdout: "first\nlast\n", stderr: "", gaps: 0, final: true });
    await bench.manager.forget(spec);
  });

  describe("commands in a running session", () => {
    const spec = interactiveSpec();
    beforeAll(async () => {
      await bench.manager.ensure(spec);
      await bench.manager.phase(spec, KernelPhase.RUNNING);
    });
    afterAll(async () => {
      await bench.manager.stop(spec, 0);
      await bench.manager.phase(spec, KernelPhase.EXITED);
      await bench.manager.forget(spec);
    });

    test("input, output, errors and the exit code", async () => {
      const result = await exec(bench.manager, spec, ["sh", "-c", "cat; echo e >&2; exit 5"], "some input\n");
      expect(result).toEqual({ stdout: "some input\n", stderr: "e\n", code: 5, error: undefined });
    });

    test("several megabytes both ways are the same bytes", async () => {
      const text = Array.from({ length: 60_000 }, (_, line) => `line ${line} of what goes in and out\n`).join(
        "",
      );
      const result = await exec(bench.manager, spec, ["cat"], text);
      expect(result.code).toBe(0);
      expect(result.stdout === text).toBe(true);
    });

    test("a slow reader slows the command and nothing is lost", async () => {
      const running = await bench.manager.open({
        $case: "exec",
        value: {
          kernelId: spec.kernelId,
          generation: 1,
          argv: ["sh", "-c", "head -c 20000000 /dev/zero; echo done >&2"],
          tty: false,
          cols: 0,
          rows: 0,
          environment: {},
          workdir: "",
          stdin: false,
        },
      });
      let bytes = 0;
      for await (const chunk of running) {
        if (bytes === 0) await Bun.sleep(500);
        bytes += chunk.length;
      }
      expect(bytes).toBeGreaterThan(20_000_000);
    });

    test("what cannot be run has the codes of a shell", async () => {
      expect((await exec(bench.manager, spec, ["/nonexistent"])).code).toBe(127);
    });

    test("a terminal has its size, takes keys and can be resized", async () => {
      const running = await startExec(bench.manager, spec, ["sh"], { tty: true });
      const ask = () => running.send({ type: "stdin", bytes: Buffer.from("stty size\n") });
      // The size follows the start of the command by a moment.
      const shows = async (size: string) => {
        for (let tries = 0; tries < 50 && !running.seen().includes(size); tries += 1) {
          await ask();
          await Bun.sleep(200);
        }
        expect(running.seen()).toContain(size);
      };
      await shows("24 80");
      await running.send({ type: "resize", cols: 100, rows: 30 });
      await shows("30 100");
      await running.send({ type: "stdin", bytes: Buffer.from("exit 4\n") });
      const result = await running.result;
      expect(result.stdout).toContain("30 100");
      expect(result.code).toBe(4);
    });

    test("who leaves ends the command", async () => {
      const running = await startExec(bench.manager, spec, ["sh", "-c", "echo on; exec sleep 4242"]);
      await eventually("it runs", () => running.seen() === "on\n");
      running.leave();
      for (let tries = 0; ; tries += 1) {
        const { stdout } = await exec(bench.manager, spec, [
          "sh",
          "-c",
          "cat /proc/[0-9]*/cmdline | tr '\\0' ' '",
        ]);
        if (!stdout.includes("sleep 4242 ") || tries > 50) {
          expect(stdout).not.toContain("sleep 4242 ");
          break;
        }
        await Bun.sleep(100);
      }
    });

    test("a link that is cut and comes back leaves sessions and commands alone", async () => {
      const running = await startExec(bench.manager, spec, ["sh", "-c", "read line; echo got $line"]);
      const connects = bench.manager.connects();
      bench.manager.cutLink();
      await eventually("it is back", () => bench.manager.connects() > connects && bench.manager.report());
      await running.send({ type: "stdin", bytes: Buffer.from("word\n") });
      expect(await running.result).toMatchObject({ stdout: "got word\n", code: 0 });
      expect(bench.manager.status(spec)?.phase).toBe(KernelPhase.RUNNING);
    });

    test("usage is measured", async () => {
      const usage = await eventually("it is measured", () =>
        bench.manager
          .usage()
          ?.kernels.find(({ kernelId, memBytes }) => kernelId === spec.kernelId && memBytes > 0),
      );
      expect(usage.memLimitBytes).toBe(spec.memBytes);
      expect(bench.manager.usage()?.node?.memBytes).toBeGreaterThan(0);
    });

    test("output from now on by attaching", async () => {
      const stream = await bench.manager.open({
        $case: "attach",
        value: { kernelId: spec.kernelId, generation: 1 },
      });
      stream.destroy();
      await stream.closed;
    });
  });

  test("a session that does not run is told apart", async () => {
    const nobody = interactiveSpec();
    expect(await exec(bench.manager, nobody, ["true"])).toMatchObject({ error: "kernel-not-running" });
    await expect(readLog(bench.manager, nobody)).rejects.toThrow("log-not-found");
  });

  test("a stop before it began leaves a tombstone, which forgetting lifts", async () => {
    const spec = batchSpec("echo never");
    await bench.manager.stop(spec);
    await bench.manager.phase(spec, KernelPhase.GONE);
    await bench.manager.ensure(spec);
    const status = await bench.manager.phase(spec, KernelPhase.GONE);
    expect(status.stopRequested).toBe(true);
    expect(await containerOf(spec.kernelId)).toBe("");
    await bench.manager.forget(spec);
  });

  test("a stop while it is made leaves nothing behind", async () => {
    const specs = Array.from({ length: 8 }, () => batchSpec("sleep 600"));
    for (const spec of specs) await bench.manager.ensure(spec);
    for (const spec of specs) await bench.manager.stop(spec, 0);
    for (const spec of specs) {
      const over = await eventually("it is over", () => {
        const status = bench.manager.status(spec);
        return status?.phase === KernelPhase.GONE || status?.phase === KernelPhase.EXITED
          ? status
          : undefined;
      });
      expect(over.stopRequested).toBe(true);
      await bench.manager.forget(spec);
    }
    for (const spec of specs) {
      await bench.manager.phase(spec, KernelPhase.GONE);
      expect(await containerOf(spec.kernelId)).toBe("");
    }
    expect(loopDevicesOf(bench.dataDir).length).toBeLessThanOrEqual(1);
  });

  test("a pull that cannot work is told in words", async () => {
    const spec = batchSpec("true", { image: "localhost:1/no/such:image", imageIsHost: false });
    await bench.manager.ensure(spec);
    const status = await bench.manager.phase(spec, KernelPhase.FAILED);
    expect(status.failure?.code).toBe("image-pull-failed");
    expect(status.failure?.message).toContain("localhost:1/no/such");
    await bench.manager.forget(spec);
  });

  test("a container removed by hand is noticed", async () => {
    const spec = batchSpec("echo here; sleep 600");
    await bench.manager.ensure(spec);
    await bench.manager.phase(spec, KernelPhase.RUNNING);
    await eventually("its output came", () => (bench.manager.status(spec)?.logBytes ?? 0) > 0 || undefined);
    await docker("rm", "-f", await containerOf(spec.kernelId));
    const status = await bench.manager.phase(spec, KernelPhase.GONE);
    expect(status.endReason).toBe("container-removed");
    expect((await readLog(bench.manager, spec)).stdout).toBe("here\n");
    await bench.manager.forget(spec);
  });

  test("the same data folder is not used twice", async () => {
    const main = join(import.meta.dir, "../../src/main.ts");
    const second = Bun.spawn([process.execPath, main, "agent", "--data-dir", bench.dataDir], {
      stderr: "pipe",
    });
    expect(await second.exited).toBe(1);
    expect(await new Response(second.stderr).text()).toContain("Another agent uses the data folder");
  });

  describe("killed and started again", () => {
    test("sessions run on; output is whole, to the byte, and exit codes arrive", async () => {
      const counting = batchSpec(
        "for i in $(seq 1 20); do seq $((i*10000-9999)) $((i*10000)); sleep 0.3; done; exit 3",
      );
      const ended = batchSpec("seq 1 5; sleep 1; seq 6 9; exit 4");
      const shell = interactiveSpec();
      for (const spec of [counting, ended, shell]) await bench.manager.ensure(spec);
      for (const spec of [counting, ended, shell]) await bench.manager.phase(spec, KernelPhase.RUNNING);
      for (let round = 0; round < 2; round += 1) {
        await Bun.sleep(700);
        await bench.kill();
        await Bun.sleep(1200);
        await bench.start();
      }
      expect(bench.manager.status(shell)?.phase).toBe(KernelPhase.RUNNING);
      expect((await exec(bench.manager, shell, ["echo", "alive"])).stdout).toBe("alive\n");
      const [first, second] = await Promise.all([
        bench.manager.phase(counting, KernelPhase.EXITED),
        bench.manager.phase(ended, KernelPhase.EXITED),
      ]);
      expect([first.exitCode, second.exitCode]).toEqual([3, 4]);
      const log = await readLog(bench.manager, counting);
      const whole = Array.from({ length: 200_000 }, (_, line) => `${line + 1}\n`).join("");
      expect(log.stdout === whole).toBe(true);
      expect((await readLog(bench.manager, ended)).stdout).toBe("1\n2\n3\n4\n5\n6\n7\n8\n9\n");
      await bench.manager.stop(shell, 0);
      await bench.manager.phase(shell, KernelPhase.EXITED);
      for (const spec of [counting, ended, shell]) await bench.manager.forget(spec);
      for (const spec of [counting, ended, shell]) await bench.manager.phase(spec, KernelPhase.GONE);
    });

    test("a command that it ran for somebody is ended when it is back, and nothing else", async () => {
      const spec = interactiveSpec();
      await bench.manager.ensure(spec);
      await bench.manager.phase(spec, KernelPhase.RUNNING);
      const running = await startExec(bench.manager, spec, ["sh", "-c", "echo on; exec sleep 4343"]);
      await eventually("it runs", () => running.seen() === "on\n");
      await bench.kill();
      await bench.start();
      const processes = async () =>
        (await exec(bench.manager, spec, ["sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '"])).stdout;
      for (let tries = 0; tries < 50 && (await processes()).includes("sleep 4343 "); tries += 1)
        await Bun.sleep(100);
      expect(await processes()).not.toContain("sleep 4343 ");
      expect(bench.manager.status(spec)?.phase).toBe(KernelPhase.RUNNING);
      expect(readdirSync(join(bench.dataDir, "execs"))).toEqual([]);
      await bench.manager.stop(spec, 0);
      await bench.manager.phase(spec, KernelPhase.EXITED);
      await bench.manager.forget(spec);
      await bench.manager.phase(spec, KernelPhase.GONE);
    });

    test("a time limit holds across it", async () => {
      const spec = batchSpec("sleep 600", { timeoutMs: 4000 });
      await bench.manager.ensure(spec);
      await bench.manager.phase(spec, KernelPhase.RUNNING);
      await bench.kill();
      await bench.start();
      const status = await bench.manager.phase(spec, KernelPhase.EXITED);
      expect(status.timedOut).toBe(true);
      await bench.manager.forget(spec);
      await bench.manager.phase(spec, KernelPhase.GONE);
    });

    test("while kernels are being made: what never ran is undone and can be wanted again", async () => {
      const specs = Array.from({ length: 4 }, (_, n) => batchSpec(`echo ${n}`));
      for (const spec of specs) await bench.manager.ensure(spec);
      await bench.kill();
      await bench.start();
      for (const spec of specs) await bench.manager.ensure(spec);
      for (const [n, spec] of specs.entries()) {
        await bench.manager.phase(spec, KernelPhase.EXITED);
        expect((await readLog(bench.manager, spec)).stdout).toBe(`${n}\n`);
        await bench.manager.forget(spec);
        await bench.manager.phase(spec, KernelPhase.GONE);
      }
    });
  });

  test("asked to end, it does in order and leaves sessions running", async () => {
    const spec = interactiveSpec();
    await bench.manager.ensure(spec);
    await bench.manager.phase(spec, KernelPhase.RUNNING);
    expect(await bench.terminate()).toBe(0);
    expect(
      (await docker("inspect", "-f", "{{.State.Running}}", await containerOf(spec.kernelId))).trim(),
    ).toBe("true");
    await bench.start();
    await bench.manager.phase(spec, KernelPhase.RUNNING);
    await bench.manager.stop(spec, 0);
    await bench.manager.phase(spec, KernelPhase.EXITED);
    await bench.manager.forget(spec);
    await bench.manager.phase(spec, KernelPhase.GONE);
    expect(existsSync(join(bench.dataDir, "identity.json"))).toBe(true);
  });
});
