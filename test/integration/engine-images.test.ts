import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { mkdir, rm, writeFile } from "node:fs/promises";
import { mustRun } from "../../src/agent/engine/run.ts";
import { MainProcess } from "../../src/wire/generated/berth.ts";
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
import { busyboxEntries, hasBusybox, importImage } from "./support/images.ts";

const LIMIT_MS = 120_000;

describe.skipIf(!hasEngine || !hasBusybox)("images on a real engine", () => {
  let node: TestEngine;
  let image: string;
  const made: string[] = [];

  beforeAll(async () => {
    node = await createTestEngine();
    await node.engine.prepareNode();
    image = `berth-test/tiny-${node.ownership.agentId.slice(-8)}:1`;
    const accounts = [
      { name: "etc", mode: 0o755 },
      {
        name: "etc/passwd",
        mode: 0o644,
        text: "root:x:0:0:root:/root:/bin/sh\napp:x:1000:100::/app:/bin/sh\n",
      },
      { name: "etc/group", mode: 0o644, text: "root:x:0:\nusers:x:100:\nmedia:x:44:app\n" },
    ];
    await importImage(
      image,
      [...busyboxEntries(), ...accounts],
      [
        'ENTRYPOINT ["/bin/echo", "entry:"]',
        'CMD ["default"]',
        "ENV HOME=/app FLAVOUR=tiny",
        "USER 0",
        "WORKDIR /",
        "LABEL ai.backend.service-ports=web:http:8080",
      ],
    );
    made.push(image);
  }, LIMIT_MS);

  afterAll(async () => {
    await node.cleanUp();
    for (const reference of made) await node.engine.removeImage(reference);
  }, LIMIT_MS);

  const oci = { imageIsHost: false };

  test(
    "the image's entry point is replaced unless it is asked for",
    async () => {
      const plain = await runToEnd(node.engine, batchSpec("echo plain", { ...oci, image }));
      const main = { main: MainProcess.ARGV, useEntrypoint: true };
      const asked = await runToEnd(node.engine, batchSpec("", { ...oci, image, ...main, argv: ["a b"] }));
      const bare = await runToEnd(node.engine, batchSpec("", { ...oci, image, ...main, argv: [] }));
      expect([plain.stdout, asked.stdout, bare.stdout]).toEqual([
        "plain\n",
        "entry: a b\n",
        "entry: default\n",
      ]);
    },
    LIMIT_MS,
  );

  test(
    "the owner is merged into the image's accounts and keeps the groups of the account that gave way",
    async () => {
      const script =
        "id -un; id -gn; id -Gn; id -u app; echo $HOME $FLAVOUR; pwd; touch /home/work/x /tmp/x && echo writes";
      const ended = await runToEnd(node.engine, batchSpec(script, { ...oci, image, gid: 1500 }));
      expect(ended.stdout.trim().split("\n")).toEqual([
        ...["work", "work", "work media users", "50000", "/home/work tiny", "/home/work", "writes"],
      ]);
    },
    LIMIT_MS,
  );

  test(
    "a session is kept alive in an image without anything in it",
    async () => {
      const empty = `berth-test/empty-${node.ownership.agentId.slice(-8)}:1`;
      await importImage(empty, [{ name: "srv", mode: 0o755 }]);
      made.push(empty);
      const spec = interactiveSpec({ ...oci, image: empty });
      const id = await startInBackground(node.engine, spec);
      expect((await node.engine.inspectKernel(spec))?.state.kind).toBe("running");
      const request = {
        containerId: id,
        tty: false,
        cols: 0,
        rows: 0,
        environment: {},
        workdir: "",
        stdin: false,
      };
      const shell = await node.engine.exec({ ...request, argv: ["/bin/sh"] });
      const [output, code] = await Promise.all([collect(shell.output), shell.exited]);
      expect([output.stderr, code]).toEqual(["/bin/sh: command not found\r\n", 127]);
      await node.engine.stopContainer(id, 1_000);
      expect((await node.engine.inspectKernel(spec))?.state).toMatchObject({ kind: "exited", exitCode: 143 });
    },
    LIMIT_MS,
  );

  test(
    "local images are listed with their labels, the built-in one only as host",
    async () => {
      const images = await node.engine.listImages();
      const tiny = images.find(({ references }) => references.includes(image));
      expect(tiny).toMatchObject({
        arch: expect.any(String),
        labels: { "ai.backend.service-ports": "web:http:8080" },
      });
      const names = images.flatMap(({ references }) => references);
      expect(names.filter((name) => name === "host")).toHaveLength(1);
      expect(names.filter((name) => name.startsWith("berth/"))).toEqual([]);
      await expect(node.engine.removeImage("host")).rejects.toThrow("built in");
    },
    LIMIT_MS,
  );

  test(
    "an image in use is not removed, and one that is gone is no error",
    async () => {
      const spec = batchSpec("true", { ...oci, image });
      await runToEnd(node.engine, spec);
      await expect(node.engine.removeImage(image)).rejects.toThrow("in use");
      await node.engine.removeImage("berth-test/never-there:1");
    },
    LIMIT_MS,
  );

  test(
    "a pull that fails says why",
    async () => {
      const pull = node.engine.pullImage("127.0.0.1:1/lab/thing:1", () => {}, new AbortController().signal);
      await expect(pull).rejects.toMatchObject({ code: "image-pull-failed" });
    },
    LIMIT_MS,
  );

  test(
    "what is mounted below the node's folders stays read-only in the host environment",
    async () => {
      const place = `/opt/berth-test-${node.ownership.agentId.slice(-8)}`;
      await mkdir(place);
      await mustRun(["mount", "-t", "tmpfs", "-o", "mode=1777", "tmpfs", place]);
      try {
        await writeFile(`${place}/data`, "shared\n");
        const ended = await runToEnd(
          node.engine,
          batchSpec(`cat ${place}/data; touch ${place}/x || echo refused`),
        );
        expect(ended.stdout).toBe("shared\nrefused\n");
        expect(ended.stderr).toContain("Read-only file system");
      } finally {
        await mustRun(["umount", place]);
        await rm(place, { recursive: true });
      }
    },
    LIMIT_MS,
  );

  test(
    "the node's keys and accounts are not in the host environment",
    async () => {
      const script =
        "ls /etc/ssl; test -e /etc/shadow && echo shadow; wc -l < /etc/passwd; java -version 2>&1 | head -1";
      const ended = await runToEnd(node.engine, batchSpec(script, { memBytes: 512 * 2 ** 20 }));
      expect(ended.stdout).not.toContain("private");
      expect(ended.stdout).not.toContain("shadow");
      expect(ended.stdout).toMatch(/^3$/m);
    },
    LIMIT_MS,
  );
});
