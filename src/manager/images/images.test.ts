import { afterEach, beforeEach, describe, expect, setDefaultTimeout, test } from "bun:test";
import { z } from "zod";
import type { Image } from "../../contract/images.ts";
import { isBerthError } from "../../kit/errors.ts";
import { type Bench, openBench, settle, until } from "../sessions/test-bench.ts";

// Whole clusters on machines that may be busy: a limit for what hangs.
setDefaultTimeout(60_000);

let bench: Bench;
beforeEach(async () => {
  bench = await openBench();
});
afterEach(() => bench.close());

const images = z.object({ items: z.array(z.custom<Image>()), next: z.string().nullable() });
const show = async (image: string) =>
  z.custom<Image>().parse(await bench.call("images.get", { params: { image } }));
const asRoot = (id: string, image: string, more: { body?: unknown; query?: unknown } = {}) =>
  bench.call(id, { as: bench.root, params: { image }, ...more });

const INFO = {
  references: ["lab/tool:1"],
  id: "sha256:1",
  digests: [],
  sizeBytes: 1000,
  labels: { "ai.backend.resource.min.mem": "2g", "ai.backend.service-ports": "web:http:[8080]" },
  arch: "amd64",
};

describe("the catalogue", () => {
  test("is there from the start, in order, once, and only what is built in counts as pulled", async () => {
    await bench.restart();
    const all = images.parse(await bench.call("images.list")).items;
    expect(all.length).toBe(7);
    expect(all[0]).toMatchObject({ reference: "host", kind: "host", pulled: false, minimum: { cpu: 100 } });
    await bench.addAgent();
    const [host, ...others] = images.parse(await bench.call("images.list")).items;
    expect(host).toMatchObject({ pulled: true, nodes: [{ agent: "node-a", state: "present" }] });
    expect(others.every((image) => !image.pulled && image.sizeBytes === null)).toBe(true);
  });
});

describe("images that are added", () => {
  test("are known by one spelling, and what a node reports of them counts", async () => {
    const agent = await bench.addAgent();
    await bench.call("images.add", { as: bench.root, body: { reference: "lab/tool:1" } });
    const again = bench.call("images.add", { as: bench.root, body: { reference: "docker.io/lab/tool:1" } });
    expect(await again.catch((err: unknown) => (isBerthError(err) ? err.code : ""))).toBe("name-in-use");
    agent.images = [INFO];
    agent.report();
    await until("it is seen", async () => (await show("lab/tool:1")).pulled);
    expect(await show("docker.io/lab/tool:1")).toMatchObject({
      arch: "amd64",
      sizeBytes: 1000,
      minimum: { mem: 2 * 1024 ** 3 },
      servicePorts: [{ name: "web", protocol: "http", ports: [8080] }],
    });
    const session = await bench.create({ name: "tool", image: "lab/tool:1" });
    expect(session.slots.mem).toBeGreaterThanOrEqual(2 * 1024 ** 3);
    agent.images = [];
    agent.report();
    await until("it is gone", async () => !(await show("lab/tool:1")).pulled);
  });

  test("cannot be removed while a session that has not ended uses them", async () => {
    await bench.call("images.add", { as: bench.root, body: { reference: "lab/tool:1" } });
    await bench.create({ name: "user", image: "lab/tool:1" });
    const remove = () =>
      asRoot("images.remove", "lab/tool:1").catch((e: unknown) => (isBerthError(e) ? e.code : e));
    expect(await remove()).toBe("in-use");
    await bench.call("sessions.terminate", { params: { session: "user" } });
    expect(await remove()).toBeUndefined();
    expect((await bench.show("user")).image).toBe("docker.io/lab/tool:1");
    const gone = await show("lab/tool:1").catch((err: unknown) => (isBerthError(err) ? err.code : ""));
    expect(gone).toBe("image-not-found");
  });
});

describe("pulls", () => {
  test("show their progress on each node, then the image is there; a failure says why", async () => {
    const agent = await bench.addAgent();
    await bench.call("images.add", { as: bench.root, body: { reference: "lab/tool:1" } });
    await asRoot("images.pull", "lab/tool:1", { body: {} });
    await asRoot("images.pull", "lab/tool:1", { body: {} });
    const pulls = agent.link.sent.flatMap((body) => (body.$case === "pullImage" ? [body.value] : []));
    expect(pulls).toMatchObject([{ reference: "docker.io/lab/tool:1" }]);
    const pullId = pulls[0]?.pullId ?? "";
    const progress = {
      pullId,
      reference: "",
      doneBytes: 5,
      totalBytes: 10,
      phase: "downloading",
      finished: false,
    };
    agent.link.say({ $case: "pullProgress", value: { ...progress, failure: undefined, image: undefined } });
    const state = { agent: "node-a", state: "pulling", phase: "downloading", doneBytes: 5, totalBytes: 10 };
    await until("it is told", async () => (await show("lab/tool:1")).nodes[0]?.doneBytes === 5);
    expect((await show("lab/tool:1")).nodes).toMatchObject([state]);
    agent.link.say({
      $case: "pullProgress",
      value: { ...progress, finished: true, failure: undefined, image: INFO },
    });
    await until("it is there", async () => (await show("lab/tool:1")).pulled);

    await asRoot("images.pull", "lab/tool:1", { body: { agents: ["node-a"] } });
    const second = agent.link.sent.findLast((body) => body.$case === "pullImage");
    const failure = { code: "image-pull-failed", message: "no route to the registry" };
    const failed = { ...progress, pullId: second?.$case === "pullImage" ? second.value.pullId : "" };
    agent.link.say({
      $case: "pullProgress",
      value: { ...failed, finished: true, failure, image: undefined },
    });
    await settle();
    await until("it says why", async () =>
      (await show("lab/tool:1")).nodes.some((n) => n.state === "failed" && n.message === failure.message),
    );
  });

  test("are refused where no node is connected", async () => {
    await bench.call("images.add", { as: bench.root, body: { reference: "lab/tool:1" } });
    const pull = asRoot("images.pull", "lab/tool:1", { body: {} });
    expect(await pull.catch((err: unknown) => (isBerthError(err) ? err.code : ""))).toBe("agent-unreachable");
  });
});
