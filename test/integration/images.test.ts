import { afterAll, beforeAll, beforeEach, describe, expect, setDefaultTimeout, test } from "bun:test";
import { randomBytes } from "node:crypto";
import { mkdirSync } from "node:fs";
import { createEngineClient } from "../../src/agent/engine/client.ts";
import { createImages } from "../../src/agent/engine/images.ts";
import type { Image } from "../../src/contract/images.ts";
import { systemClock } from "../../src/kit/clock.ts";
import { type BerthUp, startUp } from "./support/berth-up.ts";
import { DOCKER_SOCKET, hasEngine } from "./support/engine.ts";
import { busyboxEntries, hasBusybox, importImage } from "./support/images.ts";
import { eventually } from "./support/lab.ts";
import {
  hasRegistry,
  moveToRegistry,
  registryDigest,
  type SlowLine,
  slowLine,
  startRegistry,
  type TestRegistry,
} from "./support/registry.ts";
import { openTerminal } from "./support/terminal.ts";

setDefaultTimeout(120_000);

const MIB = 2 ** 20;
const ALL = Number.POSITIVE_INFINITY;
const SMALL = ["--cpu", "0.2", "--mem", "32m", "--shm", "8m"];

describe.skipIf(!hasEngine || !hasBusybox || !hasRegistry)(
  "images of a registry, from the list to a session",
  () => {
    const engine = createImages({
      client: createEngineClient({ socketPath: DOCKER_SOCKET, clock: systemClock }),
      clock: systemClock,
    });
    let registry: TestRegistry;
    let line: SlowLine;
    let up: BerthUp;
    let image: string;
    let digest: string;

    beforeAll(async () => {
      registry = await startRegistry();
      line = await slowLine(registry.host);
      const pushed = `${registry.host}/lab/tool:1`;
      const filler = { name: "filler", mode: 0o644, bytes: randomBytes(8 * MIB) };
      await importImage(
        pushed,
        [...busyboxEntries(), filler],
        [
          "LABEL ai.backend.resource.min.cpu=0.5",
          "LABEL ai.backend.resource.min.mem=48m",
          "LABEL ai.backend.service-ports=web:http:8080",
        ],
      );
      await moveToRegistry(pushed);
      digest = await registryDigest(registry.host, "lab/tool", "1");
      image = `${line.host}/lab/tool:1`;
      up = await startUp();
      mkdirSync(up.home, { recursive: true });
      const login = ["login", up.url, "--email", up.admin.email, "--password-stdin"];
      await ok(login, up.admin.password);
      up.useToken((await ok(["token", "create", "tests"])).trim());
    });
    beforeEach(() => line.limit(ALL, ALL));
    afterAll(async () => {
      await up?.stop();
      for (const { references, digests } of await engine.list()) {
        const ours = [...references, ...digests].filter((name) => name.startsWith(`${line.host}/`));
        for (const reference of ours) await engine.remove(reference);
      }
      await line?.close();
      await registry?.close();
    });

    async function ok(argv: readonly string[], stdin?: string): Promise<string> {
      const { code, stdout, stderr } = await up.berth(argv, stdin === undefined ? {} : { stdin });
      if (code !== 0) throw new Error(`berth ${argv.join(" ")}: ${stderr}\n${up.log()}`);
      return stdout;
    }
    const shown = async (reference: string): Promise<Image> =>
      JSON.parse(await ok(["image", "show", reference, "--json"]));
    const onNode = async (reference: string) =>
      (await engine.list()).some(({ references, digests }) =>
        [...references, ...digests].includes(reference),
      );

    test("it is added, pulled with progress, described by its labels, run, and removed from the nodes", async () => {
      expect(await ok(["image", "add", image, "--title", "Tool"])).toBe(`${image}\n`);
      expect(await shown(image)).toMatchObject({ pulled: false, digest: null, servicePorts: [] });

      line.limit(ALL, 3 * MIB);
      const argv = [process.execPath, up.main, "image", "pull", image];
      const terminal = openTerminal(argv, { env: up.clientEnv({ TERM: "xterm" }), cols: 120 });
      await terminal.until("% of ");
      expect(await terminal.exited).toBe(0);
      terminal.close();
      line.limit(ALL, ALL);

      const [listed] = JSON.parse(await ok(["image", "ls", "--pulled", "--search", "tool", "--json"]));
      expect(listed).toEqual(await shown(image));
      expect(listed).toMatchObject({
        reference: image,
        pulled: true,
        digest,
        minimum: { cpu: 500, mem: 48 * MIB },
        servicePorts: [{ name: "web", protocol: "http", ports: [8080] }],
        nodes: [{ state: "present" }],
      });

      expect(await ok(["run", ...SMALL, "--image", image, "--", "echo", "hello"])).toBe("hello\n");
      expect(await ok(["image", "rm", image, "--nodes"])).toBe(`${image}\n`);
      await eventually("the image is gone from the node", async () => !(await onNode(image)));
      expect((await up.berth(["image", "show", image])).stderr).toContain("There is no image");
    });

    test("a session pulls what its node does not have, also by digest with a tag beside it", async () => {
      const pinned = `${line.host}/lab/tool@${digest}`;
      expect(await ok(["image", "add", `${image}@${digest}`])).toBe(`${pinned}\n`);
      expect(await ok(["run", ...SMALL, "--image", pinned, "--", "echo", "pinned"])).toBe("pinned\n");
      await eventually("the node has told of it", async () => (await shown(pinned)).pulled);
      await ok(["image", "rm", pinned, "--nodes"]);
      await eventually("the image is gone from the node", async () => !(await onNode(pinned)));
    });

    test("a pull is cancelled half way, and can be begun anew", async () => {
      await ok(["image", "add", image]);
      line.limit(2 * MIB, ALL);
      await ok(["image", "pull", image, "--no-wait"]);
      await eventually("the pull is under way", async () => {
        const [node] = (await shown(image)).nodes;
        return node?.state === "pulling" && node.doneBytes > 0 && line.holding();
      });
      await ok(["image", "pull", image, "--cancel"]);
      expect((await shown(image)).nodes).toEqual([]);
      line.limit(ALL, 2 * MIB);
      await eventually("the engine has left", async () => line.open() === 0);
      expect(await onNode(image)).toBe(false);
      line.limit(ALL, ALL);
      expect(await ok(["image", "pull", image])).toBe(`${image}\n`);
      expect((await shown(image)).pulled).toBe(true);
    });

    test("what cannot be pulled is told in words, by the pull and by a session", async () => {
      const missing = `${line.host}/lab/tool:none`;
      await ok(["image", "add", missing]);
      const pull = await up.berth(["image", "pull", missing]);
      expect(pull.code).toBe(1);
      expect(pull.stderr).toContain(`The registry has no image ${missing}. Check its name and tag.`);
      expect((await shown(missing)).nodes).toMatchObject([{ state: "failed" }]);
      const session = await up.berth(["run", ...SMALL, "--image", missing, "--", "true"]);
      expect(session.code).toBe(125);
      expect(session.stderr).toContain(`The registry has no image ${missing}.`);
    });
  },
);
