import {
  afterAll,
  afterEach,
  beforeAll,
  beforeEach,
  describe,
  expect,
  setDefaultTimeout,
  test,
} from "bun:test";
import { randomBytes } from "node:crypto";
import { join } from "node:path";
import { createEngineClient } from "../../src/agent/engine/client.ts";
import type { LocalImage, PullUpdate } from "../../src/agent/engine/engine.ts";
import { createImages } from "../../src/agent/engine/images.ts";
import { manualClock, systemClock } from "../../src/kit/clock.ts";
import { cuttableSocket } from "./support/cut.ts";
import {
  batchSpec,
  createTestEngine,
  DOCKER_SOCKET,
  hasEngine,
  runToEnd,
  type TestEngine,
} from "./support/engine.ts";
import { busyboxEntries, hasBusybox, importImage } from "./support/images.ts";
import {
  hasRegistry,
  moveToRegistry,
  registryDigest,
  type SlowLine,
  slowLine,
  startRegistry,
  type TestRegistry,
} from "./support/registry.ts";

setDefaultTimeout(120_000);

const MIB = 2 ** 20;
const ALL = Number.POSITIVE_INFINITY;
const LABELS = {
  "ai.backend.resource.min.cpu": "1",
  "ai.backend.resource.min.mem": "64m",
  "ai.backend.service-ports": "web:http:8080,api:tcp:[9000,9001]",
};

describe.skipIf(!hasEngine || !hasBusybox || !hasRegistry)("images from a real registry", () => {
  let node: TestEngine;
  let registry: TestRegistry;
  let line: SlowLine;
  let direct: string;
  /** The same image over a line that can be made slow. */
  let slow: string;
  let digest: string;

  beforeAll(async () => {
    node = await createTestEngine();
    registry = await startRegistry();
    direct = `${registry.host}/lab/tiny`;
    // Random bytes, because registries compress: eight megabytes are eight megabytes on the line.
    const filler = { name: "filler", mode: 0o644, bytes: randomBytes(8 * MIB) };
    const changes = Object.entries(LABELS).map(([name, value]) => `LABEL ${name}=${value}`);
    await importImage(`${direct}:1`, [...busyboxEntries(), filler], changes);
    await moveToRegistry(`${direct}:1`);
    digest = await registryDigest(registry.host, "lab/tiny", "1");
  });
  afterAll(async () => {
    await registry?.close();
    await node?.cleanUp();
  });
  beforeEach(async () => {
    line = await slowLine(registry.host);
    slow = `${line.host}/lab/tiny:1`;
  });
  afterEach(async () => {
    await line.close();
    for (const reference of [slow, `${direct}:1`, `${direct}@${digest}`])
      await node.engine.removeImage(reference);
  });

  const never = () => new AbortController().signal;
  const pull = (reference: string) => node.engine.pullImage(reference, () => {}, never());
  const local = async (reference: string) =>
    (await node.engine.listImages()).find(({ references, digests }) =>
      [...references, ...digests].includes(reference),
    );

  /** Begins a pull and comes back when it stands still in the middle of the layer. */
  async function stuck(begin: (onProgress: (update: PullUpdate) => void) => Promise<LocalImage>) {
    line.limit(2 * MIB, ALL);
    const downloads = Promise.withResolvers<void>();
    const pulling = begin(({ doneBytes }) => {
      if (doneBytes > 0) downloads.resolve();
    });
    await Promise.race([downloads.promise, pulling]);
    while (!line.holding()) await Bun.sleep(10);
    // Within an object, so that waiting for this does not wait for the pull.
    return { pulling };
  }

  test("a pull tells how far it is, and then name, digest and labels", async () => {
    line.limit(ALL, 4 * MIB);
    const updates: PullUpdate[] = [];
    const image = await node.engine.pullImage(slow, (update) => updates.push(update), never());
    expect(image).toMatchObject({
      references: [slow],
      digests: [`${line.host}/lab/tiny@${digest}`],
      labels: LABELS,
    });
    expect(await local(slow)).toEqual(image);
    const done = updates.map(({ doneBytes }) => doneBytes);
    expect(done).toEqual(done.toSorted((a, b) => a - b));
    expect(new Set(done).size).toBeGreaterThan(4);
    const { doneBytes = 0, totalBytes } = updates.at(-1) ?? {};
    expect(doneBytes).toBeGreaterThan(8 * MIB);
    expect(doneBytes).toBe(totalBytes ?? 0);
  });

  test("a session runs in a pulled image, which can be removed afterwards", async () => {
    await pull(`${direct}:1`);
    const spec = batchSpec("echo from the registry", { image: `${direct}:1`, imageIsHost: false });
    expect((await runToEnd(node.engine, spec)).stdout).toBe("from the registry\n");
    await expect(node.engine.removeImage(`${direct}:1`)).rejects.toThrow("in use");
    await node.engine.removeKernel(spec);
    await node.engine.removeImage(`${direct}:1`);
    expect(await local(`${direct}:1`)).toBeUndefined();
  });

  test("an image is pulled and removed by its digest, whatever tag stands beside it", async () => {
    const byDigest = `${direct}@${digest}`;
    for (const reference of [byDigest, `${direct}:1@${digest}`]) {
      expect(await pull(reference)).toMatchObject({ references: [], digests: [byDigest], labels: LABELS });
      await node.engine.removeImage(reference);
      expect(await local(byDigest)).toBeUndefined();
    }
  });

  test("a pull that is cancelled half way ends at once, and the engine's with it", async () => {
    const abort = new AbortController();
    const { pulling } = await stuck((onProgress) => node.engine.pullImage(slow, onProgress, abort.signal));
    abort.abort(new Error("not wanted any more"));
    await expect(pulling).rejects.toThrow("not wanted any more");
    // The engine sees that it is to stop with the next bytes.
    line.limit(ALL, 2 * MIB);
    while (line.open() > 0) await Bun.sleep(10);
    expect(line.passed()).toBeLessThan(8 * MIB);
    expect(await local(slow)).toBeUndefined();
    line.limit(ALL, ALL);
    expect((await pull(slow)).references).toEqual([slow]);
  });

  test("an engine that goes away in the middle is told as that", async () => {
    const socket = await cuttableSocket(join(node.dataDir, "engine.sock"), DOCKER_SOCKET);
    const client = createEngineClient({ socketPath: socket.path, clock: systemClock });
    const images = createImages({ client, clock: systemClock });
    const { pulling } = await stuck((onProgress) => images.pull(slow, onProgress, never()));
    await socket.cut();
    await expect(pulling).rejects.toMatchObject({ code: "engine-unreachable" });
  });

  test("a registry that falls silent is given up", async () => {
    const clock = manualClock();
    const client = createEngineClient({ socketPath: DOCKER_SOCKET, clock: systemClock });
    const images = createImages({ client, clock });
    const { pulling } = await stuck((onProgress) => images.pull(slow, onProgress, never()));
    clock.advance(299_000);
    expect(Bun.peek.status(pulling)).toBe("pending");
    clock.advance(1_000);
    await expect(pulling).rejects.toThrow("said nothing for 5 min");
  });

  test("what the registry does not have is told in words", async () => {
    const missing = [
      `${direct}:none`,
      `${registry.host}/lab/nothing:1`,
      `${direct}@sha256:${"0".repeat(64)}`,
    ];
    for (const reference of missing) {
      const sentence = `The registry has no image ${reference}. Check its name and tag.`;
      await expect(pull(reference)).rejects.toMatchObject({ code: "image-pull-failed", message: sentence });
    }
  });

  test("a private registry says so", async () => {
    const closed = await startRegistry({ name: "somebody", password: "secret" });
    try {
      await expect(pull(`${closed.host}/lab/tiny:1`)).rejects.toThrow("It is private");
    } finally {
      await closed.close();
    }
  });

  test("a registry that is gone is told, and serves again when it is back", async () => {
    await registry.stop();
    try {
      const failed = pull(`${direct}:1`);
      await expect(failed).rejects.toMatchObject({ code: "image-pull-failed" });
      await expect(failed).rejects.toThrow("The node cannot reach the registry.");
    } finally {
      await registry.start();
    }
    expect((await pull(`${direct}:1`)).labels).toEqual(LABELS);
  });
});
