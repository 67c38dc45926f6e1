import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { mkdtemp, rm, symlink } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { readMounts } from "../../src/agent/engine/mounts.ts";
import { mustRun } from "../../src/agent/engine/run.ts";
import { type CuttableSocket, cuttableSocket } from "./support/cut.ts";
import {
  batchSpec,
  collect,
  createTestEngine,
  DOCKER_SOCKET,
  hasEngine,
  interactiveSpec,
  runToEnd,
  startInBackground,
  type TestEngine,
} from "./support/engine.ts";

const LIMIT_MS = 120_000;
const never = new AbortController().signal;

describe.skipIf(!hasEngine)("an engine that goes away and comes back", () => {
  let node: TestEngine;
  let socket: CuttableSocket;
  let dir: string;

  beforeAll(async () => {
    dir = await mkdtemp(join(tmpdir(), "berth-cut-"));
    socket = await cuttableSocket(join(dir, "docker.sock"), DOCKER_SOCKET);
    node = await createTestEngine({ socketPath: socket.path });
    await node.engine.prepareNode();
  }, LIMIT_MS);

  afterAll(async () => {
    await node.cleanUp();
    await socket.cut();
    await rm(dir, { recursive: true });
  }, LIMIT_MS);

  test(
    "cuts output, events and waits in words; the session runs on and its output is read again",
    async () => {
      const spec = batchSpec("echo one; until [ -e ~/go ]; do sleep 0.1; done; echo two; exit 5");
      const { containerId } = await node.engine.createKernel(spec, () => {}, never);
      const events = (async () => {
        for await (const _ of node.engine.events(never));
      })();
      events.catch(() => {});
      const { output } = await node.engine.startKernel(containerId);
      const waiting = node.engine.waitContainer(containerId, never);
      waiting.catch(() => {});
      const reader = output[Symbol.asyncIterator]();
      await reader.next();

      await socket.cut();
      const unreachable = { code: "engine-unreachable" };
      await expect(reader.next()).rejects.toMatchObject(unreachable);
      await expect(events).rejects.toMatchObject(unreachable);
      await expect(waiting).rejects.toMatchObject(unreachable);
      await expect(node.engine.listKernels()).rejects.toMatchObject(unreachable);

      await socket.restore();
      expect((await node.engine.inspectKernel(spec))?.state.kind).toBe("running");
      const replayed = collect(node.engine.replayOutput(containerId, true));
      const touch = { argv: ["/usr/bin/touch", "go"], tty: false, cols: 0, rows: 0, environment: {} };
      await node.engine.exec({ ...touch, containerId, workdir: "/home/work", stdin: false });
      expect((await replayed).stdout).toBe("one\ntwo\n");
      expect(await node.engine.waitContainer(containerId, never)).toBe(5);
    },
    LIMIT_MS,
  );
});

describe.skipIf(!hasEngine)("a node that is not as it was left", () => {
  let node: TestEngine;

  beforeAll(async () => {
    node = await createTestEngine();
  }, LIMIT_MS);

  afterAll(() => node.cleanUp(), LIMIT_MS);

  test(
    "six kernels at once, with nothing prepared, all run",
    async () => {
      const runs = Array.from({ length: 6 }, (_, i) =>
        runToEnd(node.engine, batchSpec(`echo ${i}; exit ${i}`)),
      );
      const ended = await Promise.all(runs);
      expect(ended.map(({ stdout, exitCode }) => `${stdout.trim()} ${exitCode}`)).toEqual(
        Array.from({ length: 6 }, (_, i) => `${i} ${i}`),
      );
    },
    LIMIT_MS,
  );

  test(
    "a scratch disk that a reboot unmounted is mounted again before the start",
    async () => {
      const spec = batchSpec("df -k /home/work | tail -1");
      await node.engine.createKernel(spec, () => {}, never);
      const mount = readMounts().find(({ path }) => path.includes(spec.kernelId));
      await mustRun(["umount", mount?.path ?? ""]);
      expect((await runToEnd(node.engine, spec)).stdout).toStartWith("/dev/loop");
    },
    LIMIT_MS,
  );

  test(
    "a container that was removed by hand ends its output, and the rest can be removed",
    async () => {
      const spec = interactiveSpec();
      const { containerId } = await node.engine.createKernel(spec, () => {}, never);
      const { output } = await node.engine.startKernel(containerId);
      const collected = collect(output);
      await mustRun(["docker", "rm", "-f", containerId]);
      expect(await collected).toEqual({ stdout: "", stderr: "" });
      await expect(node.engine.waitContainer(containerId, never)).rejects.toMatchObject({
        code: "kernel-not-running",
      });
      expect(await node.engine.listLeftovers()).toContainEqual({
        kernelId: spec.kernelId,
        sessionId: spec.sessionId,
        generation: 1,
      });
      await node.engine.removeKernel(spec);
      await node.engine.removeKernel(spec);
      expect(readMounts().filter(({ path }) => path.includes(spec.kernelId))).toEqual([]);
    },
    LIMIT_MS,
  );

  test(
    "a file that somebody on the node holds open does not keep a disk from being removed",
    async () => {
      const spec = batchSpec("echo kept > held");
      await runToEnd(node.engine, spec);
      const mount = readMounts().find(({ path }) => path.includes(spec.kernelId));
      const holder = Bun.spawn(["sleep", "1000"], { cwd: join(mount?.path ?? "", "home") });
      try {
        await node.engine.removeKernel(spec);
        expect(readMounts().filter(({ path }) => path.includes(spec.kernelId))).toEqual([]);
      } finally {
        holder.kill();
        await holder.exited;
      }
    },
    LIMIT_MS,
  );

  test(
    "a data folder behind a link is the same folder",
    async () => {
      const folder = await mkdtemp(join(tmpdir(), "berth-behind-"));
      const link = `${folder}.link`;
      await symlink(folder, link);
      const linked = await createTestEngine({ dataDir: link });
      try {
        const spec = interactiveSpec();
        await startInBackground(linked.engine, spec);
        expect(await linked.engine.scratchUsage(spec)).toBeDefined();
        await linked.engine.removeKernel(spec);
        expect(readMounts().filter(({ path }) => path.includes(spec.kernelId))).toEqual([]);
      } finally {
        await linked.cleanUp();
        await rm(folder, { recursive: true });
      }
    },
    LIMIT_MS,
  );

  test(
    "memory that runs out is told each time, also when a child used it",
    async () => {
      const eat = "python3 -c 'a = bytearray(300 * 2**20)'";
      const scripts = [eat, `${eat}; exit 4`, `exec ${eat}`, eat, eat, eat];
      for (const script of scripts) {
        const ended = await runToEnd(node.engine, batchSpec(script, { memBytes: 48 * 2 ** 20 }));
        expect(ended).toMatchObject({ oomKilled: true, exitCode: script.endsWith("4") ? 4 : 137 });
      }
    },
    LIMIT_MS,
  );
});
