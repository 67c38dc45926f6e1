import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { existsSync } from "node:fs";
import { readdir, rm } from "node:fs/promises";
import { createServer } from "node:net";
import { networkInterfaces } from "node:os";
import { readMounts } from "../../src/agent/engine/mounts.ts";
import { MainProcess } from "../../src/wire/generated/berth.ts";
import {
  batchSpec,
  createTestEngine,
  hasEngine,
  interactiveSpec,
  loopDevicesOf,
  runToEnd,
  startInBackground,
  type TestEngine,
} from "./support/engine.ts";

const LIMIT_MS = 120_000;
const never = new AbortController().signal;

describe.skipIf(!hasEngine)("a kernel on a real engine", () => {
  let node: TestEngine;

  beforeAll(async () => {
    node = await createTestEngine();
    await node.engine.prepareNode();
  }, LIMIT_MS);

  afterAll(() => node.cleanUp(), LIMIT_MS);

  const run = (script: string, changes = {}) => runToEnd(node.engine, batchSpec(script, changes));

  test(
    "a batch's output and exit code arrive as they were",
    async () => {
      const ended = await run("echo out; echo err >&2; printf 'no newline'; exit 3");
      expect(ended).toMatchObject({
        stdout: "out\nno newline",
        stderr: "err\n",
        exitCode: 3,
        oomKilled: false,
      });
    },
    LIMIT_MS,
  );

  test(
    "an argv is executed as it is",
    async () => {
      const argv = ["/usr/bin/printf", "%s|", "a b", "$HOME", "*"];
      const ended = await run("", { main: MainProcess.ARGV, argv });
      expect(ended).toMatchObject({ stdout: "a b|$HOME|*|", exitCode: 0 });
    },
    LIMIT_MS,
  );

  test(
    "a missing command is 127 and one that may not be executed 126",
    async () => {
      const missing = await run("", { main: MainProcess.ARGV, argv: ["nosuch-command"] });
      const refused = await run("", { main: MainProcess.ARGV, argv: ["/etc/passwd"] });
      expect([missing.exitCode, refused.exitCode]).toEqual([127, 126]);
      expect(missing.stderr).toContain("nosuch-command");
    },
    LIMIT_MS,
  );

  test(
    "two megabytes of output arrive byte for byte",
    async () => {
      const ended = await run("seq 1 300000");
      const expected = Array.from({ length: 300_000 }, (_, i) => `${i + 1}\n`).join("");
      expect(ended.stdout.length).toBe(expected.length);
      expect(ended.stdout === expected).toBe(true);
    },
    LIMIT_MS,
  );

  test(
    "running out of memory is told",
    async () => {
      const script = `python3 -c 'a = bytearray(400 * 2**20); print(len(a))'`;
      const ended = await run(script, { memBytes: 64 * 2 ** 20 });
      expect(ended).toMatchObject({ stdout: "", exitCode: 137, oomKilled: true });
    },
    LIMIT_MS,
  );

  test(
    "identity, limits and rights inside are the session's",
    async () => {
      const script = [
        "id -u; id -g; id -un; id -G; echo $HOME; pwd; hostname; echo $COLOUR; echo $NVIDIA_VISIBLE_DEVICES",
        "grep -E '^(CapEff|CapBnd|NoNewPrivs|Seccomp):' /proc/self/status | tr -d '\\t'",
        "touch /usr/x 2>&1 | grep -o 'Read-only file system'; df /dev/shm | tail -1 | awk '{print $2}'",
        "cat /proc/1/comm; ls -A /home/work; ls -A /tmp; stat -c %a /tmp; test -e /var/run/docker.sock || echo no socket",
      ].join("\n");
      // A person may move HOME; what the platform grants, such as the visible devices, is not theirs to widen.
      const environment = { COLOUR: "blue", HOME: "/elsewhere", NVIDIA_VISIBLE_DEVICES: "all" };
      const ended = await run(script, { environment, supplementaryGids: [4321], hostname: "sub7" });
      expect(ended.stdout.trim().split("\n")).toEqual([
        ...["1000", "1000", "work", "1000 4321", "/elsewhere", "/home/work", "sub7", "blue", "void"],
        ...["CapEff:0000000000000000", "CapBnd:0000000000000000", "NoNewPrivs:1", "Seccomp:2"],
        ...["Read-only file system", "16384", "docker-init", "1777", "no socket"],
      ]);
    },
    LIMIT_MS,
  );

  test(
    "root inside has neither raw sockets nor device files",
    async () => {
      const script =
        "id -u; touch /root/x && chown 7 /root/x && echo owns; mknod /tmp/d c 1 3 || echo no device";
      const raw = "python3 -c 'import socket; socket.socket(2, 3, 1)' 2>&1 | grep -o 'not permitted'";
      const ended = await run(`${script}; ${raw}`, { uid: 0, gid: 0 });
      expect(ended.stdout).toBe("0\nowns\nno device\nnot permitted\n");
    },
    LIMIT_MS,
  );

  test(
    "scratch is of exact size, and /tmp is in it",
    async () => {
      const fill = (path: string) => `head -c 25M /dev/zero > ${path} && echo ${path}`;
      const ended = await run(`${fill("/home/work/a")}; ${fill("/tmp/b")}; cat ~/a /tmp/b | wc -c`);
      const [first, bytes] = ended.stdout.trim().split("\n");
      expect(first).toBe("/home/work/a");
      expect(ended.stderr).toContain("No space left on device");
      expect(Number(bytes)).toBeGreaterThan(28 * 2 ** 20);
      expect(Number(bytes)).toBeLessThan(32 * 2 ** 20);
    },
    LIMIT_MS,
  );

  test(
    "sessions reach neither each other, nor the node, nor metadata services",
    async () => {
      const server = createServer((socket) => socket.end("node"));
      await new Promise<void>((resolve) => server.listen(0, "0.0.0.0", resolve));
      const address = server.address();
      const port = typeof address === "object" ? (address?.port ?? 0) : 0;
      try {
        const listen = "python3 -m http.server 8000 --bind 0.0.0.0";
        const other = await startInBackground(node.engine, batchSpec(listen));
        const otherAddress = await containerAddress(other);
        await reachable(otherAddress, 8000);
        const targets = [
          ...hostAddresses().map((one) => `${one}:${port}`),
          `${otherAddress}:8000`,
          "169.254.169.254:80",
        ];
        const probe = targets
          .map((target) => target.split(":"))
          .map(
            ([host, p]) =>
              `timeout 3 bash -c 'exec 3<>/dev/tcp/${host}/${p}' 2>/dev/null && echo reached ${host}`,
          )
          .join("; ");
        // What it listens on itself it must reach, else the probe would prove nothing.
        const own = "python3 -m http.server 8001 & until exec 3<>/dev/tcp/127.0.0.1/8001; do sleep 0.1; done";
        const script = `bash -c '${own}; echo reached itself' 2>/dev/null; ${probe}; echo done`;
        expect((await run(script)).stdout).toBe("reached itself\ndone\n");
        expect(node.engine.problems().map((p) => p.code)).not.toContain("no-firewall");
      } finally {
        server.close();
      }
    },
    LIMIT_MS,
  );

  test(
    "creating twice gives the same container, and another generation another one",
    async () => {
      const spec = batchSpec("echo once");
      const steps: string[] = [];
      const first = await node.engine.createKernel(spec, (step) => steps.push(step), never);
      const second = await node.engine.createKernel(spec, () => {}, never);
      const next = await node.engine.createKernel({ ...spec, generation: 2 }, () => {}, never);
      expect(second.containerId).toBe(first.containerId);
      expect(next.containerId).not.toBe(first.containerId);
      expect(steps).toEqual(["scratch", "network", "container", "files"]);
      expect((await runToEnd(node.engine, spec)).stdout).toBe("once\n");
    },
    LIMIT_MS,
  );

  test(
    "an aborted creation leaves nothing",
    async () => {
      const spec = batchSpec("true");
      for (const at of ["scratch", "network", "container", "files"]) {
        const abort = new AbortController();
        const onStep = (step: string) => {
          if (step === at) abort.abort(new Error("not wanted any more"));
        };
        await expect(node.engine.createKernel(spec, onStep, abort.signal)).rejects.toThrow(
          "not wanted any more",
        );
        expect(await node.engine.inspectKernel(spec)).toBeUndefined();
        expect(await node.engine.listLeftovers()).toEqual([]);
      }
    },
    LIMIT_MS,
  );

  test(
    "an image that is not there is refused by name, and nothing is left",
    async () => {
      const spec = batchSpec("true", { image: "berth-test/missing:1", imageIsHost: false });
      await expect(node.engine.createKernel(spec, () => {}, never)).rejects.toMatchObject({
        code: "image-missing",
      });
      expect(await node.engine.listLeftovers()).toEqual([]);
    },
    LIMIT_MS,
  );

  test(
    "stopping asks first and then insists",
    async () => {
      const polite = batchSpec("trap 'echo bye; exit 9' TERM; echo up; while :; do sleep 0.1; done");
      const stubborn = batchSpec("trap '' TERM; echo up; while :; do sleep 0.1; done");
      for (const [spec, code, output] of [
        [polite, 9, "up\nbye\n"],
        [stubborn, 137, "up\n"],
      ] as const) {
        const { containerId } = await node.engine.createKernel(spec, () => {}, never);
        const { output: stream } = await node.engine.startKernel(containerId);
        let text = "";
        let stopping: Promise<void> | undefined;
        for await (const { bytes } of stream) {
          text += Buffer.from(bytes).toString();
          stopping ??= node.engine.stopContainer(containerId, 1_000);
        }
        await stopping;
        expect(text).toBe(output);
        expect((await node.engine.inspectKernel(spec))?.state).toMatchObject({
          kind: "exited",
          exitCode: code,
        });
        await node.engine.stopContainer(containerId, 1_000);
      }
    },
    LIMIT_MS,
  );

  test(
    "the output can be read again from the engine's log, and followed",
    async () => {
      const spec = batchSpec("echo one; echo two >&2; sleep 2; echo three");
      const id = await startInBackground(node.engine, spec);
      let text = "";
      for await (const { stream, bytes } of node.engine.replayOutput(id, true)) {
        text += `${stream}:${Buffer.from(bytes).toString()}`;
      }
      expect(text.split("\n").sort()).toEqual(["", "1:one", "1:three", "2:two"]);
      let again = "";
      for await (const { bytes } of node.engine.replayOutput(id, false))
        again += Buffer.from(bytes).toString();
      expect(again.split("\n").sort()).toEqual(["", "one", "three", "two"]);
    },
    LIMIT_MS,
  );

  test(
    "a restarted agent finds its kernels, and nobody else's",
    async () => {
      const spec = interactiveSpec();
      const containerId = await startInBackground(node.engine, spec);
      const after = node.again();
      const found = (await after.listKernels()).find((view) => view.containerId === containerId);
      expect(found).toMatchObject({
        kernelId: spec.kernelId,
        sessionId: spec.sessionId,
        generation: 1,
        epoch: 1,
        state: { kind: "running" },
      });
      const stranger = await createTestEngine();
      expect(await stranger.engine.listKernels()).toEqual([]);
      await stranger.cleanUp();
      const usage = await after.usage(containerId, found?.state.kind === "running" ? found.state.pid : 0);
      expect(usage.memLimitBytes).toBe(spec.memBytes);
      expect(usage.memBytes).toBeGreaterThan(0);
      expect(usage.pids).toBe(2);
      const scratch = await after.scratchUsage(spec);
      expect(scratch?.totalBytes).toBeGreaterThan(spec.scratchBytes * 0.8);
      expect(scratch?.totalBytes).toBeLessThanOrEqual(spec.scratchBytes);
      expect(await after.layerBytes(containerId)).toBeLessThan(2 ** 20);
      await after.stopContainer(containerId, 500);
      await after.removeKernel(spec);
    },
    LIMIT_MS,
  );

  test(
    "events tell of starts and ends",
    async () => {
      const stop = new AbortController();
      const spec = batchSpec("exit 0");
      const seen: string[] = [];
      const listening = (async () => {
        for await (const event of node.engine.events(stop.signal)) {
          if (event.kind !== "container" || event.kernel.kernelId !== spec.kernelId) continue;
          seen.push(event.action);
          if (event.action === "destroy") stop.abort();
        }
      })();
      await runToEnd(node.engine, spec);
      await node.engine.removeKernel(spec);
      await listening;
      expect(seen).toEqual(["start", "die", "destroy"]);
    },
    LIMIT_MS,
  );

  test(
    "removing leaves no container, mount, loop device or file",
    async () => {
      const ids = (await node.engine.listKernels()).length;
      expect(ids).toBeGreaterThan(0);
      const running = interactiveSpec();
      await startInBackground(node.engine, running);
      for (const ref of await node.engine.listKernels()) await node.engine.removeKernel(ref);
      await node.engine.removeKernel(running);
      expect(await node.engine.listKernels()).toEqual([]);
      expect(readMounts().filter(({ path }) => path.startsWith(node.dataDir))).toEqual([]);
      expect(loopDevicesOf(node.dataDir)).toEqual([]);
      expect(await readdir(`${node.dataDir}/scratch`)).toEqual([]);
    },
    LIMIT_MS,
  );
});

describe.skipIf(!hasEngine)("without loop devices", () => {
  test(
    "scratch is a folder that is measured",
    async () => {
      const node = await createTestEngine({ scratchMode: "directory" });
      try {
        await node.engine.prepareNode();
        const spec = batchSpec("head -c 3M /dev/zero > a; head -c 1M /dev/zero > /tmp/b; echo made");
        expect((await runToEnd(node.engine, spec)).stdout).toBe("made\n");
        const usage = await node.engine.scratchUsage(spec);
        expect(usage?.totalBytes).toBe(spec.scratchBytes);
        expect(usage?.usedBytes).toBeGreaterThanOrEqual(4 * 2 ** 20);
        expect(node.engine.problems().map((p) => p.code)).toContain("scratch-directory-mode");
      } finally {
        await node.cleanUp();
      }
      expect(existsSync(node.dataDir)).toBe(false);
    },
    LIMIT_MS,
  );

  test("an engine that is not there is told in words", async () => {
    const node = await createTestEngine({ socketPath: "/nonexistent/docker.sock" });
    await expect(node.engine.listKernels()).rejects.toMatchObject({ code: "engine-unreachable" });
    await rm(node.dataDir, { recursive: true });
  });
});

async function containerAddress(containerId: string): Promise<string> {
  const format = "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}";
  const asked = Bun.spawn(["docker", "inspect", "-f", format, containerId], { stdout: "pipe" });
  return (await new Response(asked.stdout).text()).trim();
}

/** Waits until the node itself can connect: the listener inside must be up before a probe means anything. */
async function reachable(host: string, port: number): Promise<void> {
  for (let attempt = 0; attempt < 200; attempt += 1) {
    const open = await new Promise<boolean>((resolve) => {
      Bun.connect({
        hostname: host,
        port,
        socket: {
          data() {},
          open: (s) => {
            s.end();
            resolve(true);
          },
        },
      }).catch(() => resolve(false));
    });
    if (open) return;
    await Bun.sleep(50);
  }
  throw new Error(`nothing listens on ${host}:${port}`);
}

function hostAddresses(): string[] {
  return Object.values(networkInterfaces())
    .flatMap((all) => all ?? [])
    .filter(({ family, internal }) => family === "IPv4" && !internal)
    .map(({ address }) => address);
}
