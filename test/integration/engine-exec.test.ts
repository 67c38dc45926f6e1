import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import type { ExecHandle, ExecRequest } from "../../src/agent/engine/engine.ts";
import {
  batchSpec,
  collect,
  createTestEngine,
  hasEngine,
  interactiveSpec,
  runToEnd,
  startInBackground,
  type TestEngine,
} from "./support/engine.ts";

const LIMIT_MS = 120_000;

describe.skipIf(!hasEngine)("commands in a running kernel", () => {
  let node: TestEngine;
  let containerId: string;
  const spec = interactiveSpec({ environment: { COLOUR: "blue" } });

  beforeAll(async () => {
    node = await createTestEngine();
    containerId = await startInBackground(node.engine, spec);
  }, LIMIT_MS);

  afterAll(() => node.cleanUp(), LIMIT_MS);

  const exec = (script: string, changes: Partial<ExecRequest> = {}): Promise<ExecHandle> =>
    node.engine.exec({
      containerId,
      argv: ["/bin/sh", "-c", script],
      tty: false,
      cols: 80,
      rows: 24,
      environment: {},
      workdir: "",
      stdin: false,
      ...changes,
    });

  async function finish(handle: ExecHandle) {
    const [output, exitCode] = await Promise.all([collect(handle.output), handle.exited]);
    return { ...output, exitCode };
  }

  const alive = async (mark: string) =>
    (await finish(await exec(`pgrep -f '[${mark[0]}]${mark.slice(1)}' | wc -l`))).stdout.trim();

  test(
    "run as the kernel's user, in its home, with both environments",
    async () => {
      const handle = await exec("id -un; pwd; echo $HOME $COLOUR $SHAPE; echo err >&2; exit 7", {
        environment: { SHAPE: "round" },
      });
      expect(await finish(handle)).toEqual({
        stdout: "work\n/home/work\n/home/work blue round\n",
        stderr: "err\n",
        exitCode: 7,
      });
    },
    LIMIT_MS,
  );

  test(
    "input is passed on until it is closed",
    async () => {
      const handle = await exec("cat; echo end", { stdin: true });
      const result = finish(handle);
      const block = Buffer.alloc(1 << 20, "abcdefg\n");
      for (let i = 0; i < 4; i += 1) await handle.write(block);
      handle.closeStdin();
      const { stdout, exitCode } = await result;
      expect(stdout.length).toBe(4 * block.length + 4);
      expect(stdout.endsWith("abcdefg\nend\n")).toBe(true);
      expect(exitCode).toBe(0);
      await expect(handle.write(block)).rejects.toMatchObject({ code: "exec-ended" });
    },
    LIMIT_MS,
  );

  test(
    "a terminal has the asked size and takes a new one",
    async () => {
      const sized = "until [ \"$(stty size)\" = '40 100' ]; do sleep 0.05; done; echo sized";
      const script = `${sized}; trap 'stty size; exit 0' WINCH; echo ready; while :; do sleep 0.05; done`;
      const handle = await exec(script, { tty: true, cols: 100, rows: 40, stdin: true });
      let text = "";
      for await (const { stream, bytes } of handle.output) {
        expect(stream).toBe(1);
        text += Buffer.from(bytes).toString();
        if (text.includes("ready") && !text.includes("50 120")) await handle.resize(120, 50);
      }
      expect(text).toBe("sized\r\nready\r\n50 120\r\n");
      expect(await handle.exited).toBe(0);
    },
    LIMIT_MS,
  );

  test(
    "keys reach the terminal's program",
    async () => {
      const handle = await exec("read line; echo got:$line; exec cat", { tty: true, stdin: true });
      await handle.write(Buffer.from("안녕\n"));
      await handle.write(Buffer.from([4]));
      const { stdout, exitCode } = await finish(handle);
      expect(stdout).toContain("got:안녕\r\n");
      expect(exitCode).toBe(0);
    },
    LIMIT_MS,
  );

  test(
    "a missing command is 127 and one that may not be executed 126",
    async () => {
      const missing = await finish(await exec("", { argv: ["nosuch-command"] }));
      const refused = await finish(await exec("", { argv: ["/etc/passwd"] }));
      expect(missing).toEqual({ stdout: "", stderr: "nosuch-command: command not found\r\n", exitCode: 127 });
      expect(refused).toEqual({ stdout: "", stderr: "/etc/passwd: permission denied\r\n", exitCode: 126 });
    },
    LIMIT_MS,
  );

  test(
    "a folder that cannot be entered is told as such",
    async () => {
      const run = async (workdir: string) => finish(await exec("", { argv: ["true"], workdir }));
      const stderr = (why: string) => ({
        stdout: "",
        stderr: `true: cannot run in ${why}\r\n`,
        exitCode: 126,
      });
      expect(await run("/nosuch")).toEqual(stderr("/nosuch: there is no such folder in the session"));
      expect(await run("/etc/passwd")).toEqual(stderr("/etc/passwd: it is not a folder"));
    },
    LIMIT_MS,
  );

  test(
    "a command that a signal ended has 128 and the signal's number",
    async () => {
      expect((await finish(await exec("kill -9 $$"))).exitCode).toBe(137);
    },
    LIMIT_MS,
  );

  test(
    "ending takes the command and everything that it started",
    async () => {
      const script = "sleep 7771 & (trap '' TERM; sleep 7772) & setsid sleep 7773 & echo up; wait";
      for (const tty of [false, true]) {
        const handle = await exec(script, { tty });
        for await (const _ of handle.output) break;
        const other = await exec("echo up; exec sleep 8881");
        for await (const _ of other.output) break;
        await handle.end();
        expect(await alive("sleep 777")).toBe("0");
        expect(await alive("sleep 8881")).toBe("1");
        await other.end();
        expect(await alive("sleep 8881")).toBe("0");
      }
    },
    LIMIT_MS,
  );

  test(
    "ending a terminal hangs up, as closing a window does",
    async () => {
      const script =
        "trap 'echo hung up > ~/note; exit' HUP; trap '' TERM; echo up; while :; do sleep 0.1; done";
      const handle = await exec(script, { tty: true, stdin: true });
      for await (const _ of handle.output) break;
      await handle.end();
      expect((await finish(await exec("cat ~/note"))).stdout).toBe("hung up\n");
    },
    LIMIT_MS,
  );

  test(
    "a slow reader slows its command alone",
    async () => {
      const slow = await exec("yes | head -c 30000000; echo", {});
      const reader = slow.output[Symbol.asyncIterator]();
      await reader.next();
      expect((await finish(await exec("echo quick"))).stdout).toBe("quick\n");
      let bytes = 0;
      for (let piece = await reader.next(); piece.done !== true; piece = await reader.next()) {
        bytes += piece.value.bytes.length;
      }
      expect(bytes).toBeGreaterThan(29_000_000);
      expect(await slow.exited).toBe(0);
    },
    LIMIT_MS,
  );

  test(
    "stopping an interactive kernel lets its programs end by themselves",
    async () => {
      const interactive = interactiveSpec();
      const id = await startInBackground(node.engine, interactive);
      const script = "trap 'sleep 0.3; echo saved; exit 0' TERM; echo up; while :; do sleep 0.1; done";
      const handle = await exec(script, { containerId: id });
      let text = "";
      let stopping: Promise<void> | undefined;
      for await (const { stream, bytes } of handle.output) {
        // On the other stream the shell tells that its `sleep` was terminated.
        if (stream === 1) text += Buffer.from(bytes).toString();
        stopping ??= node.engine.stopContainer(id, 5_000);
      }
      await stopping;
      expect(text).toBe("up\nsaved\n");
      expect((await node.engine.inspectKernel(interactive))?.state).toMatchObject({
        kind: "exited",
        exitCode: 143,
      });
    },
    LIMIT_MS,
  );

  test(
    "nothing runs in a kernel that has ended",
    async () => {
      const ended = await runToEnd(node.engine, batchSpec("true"));
      await expect(exec("true", { containerId: ended.containerId })).rejects.toMatchObject({
        code: "kernel-not-running",
      });
    },
    LIMIT_MS,
  );
});
