import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from "bun:test";
import { hasEngine, loopDevicesOf } from "./support/engine.ts";
import { eventually, type Lab, openLab } from "./support/lab.ts";

setDefaultTimeout(960_000);

const COUNT = "i=0; while [ $i -lt 60 ]; do i=$((i+1)); echo line $i; sleep 0.1; done; exit 5";
const COUNTED = `${Array.from({ length: 60 }, (_, at) => `line ${at + 1}`).join("\n")}\n`;

describe.skipIf(!hasEngine)("what is killed and comes back", () => {
  let lab: Lab;
  beforeAll(async () => {
    lab = await openLab();
  });
  afterAll(() => lab.close());

  test("the manager: sessions run on, commands work, an end meanwhile arrives with code and output", async () => {
    await lab.create({ name: "stays" });
    await lab.running("stays");
    await lab.create({ type: "batch", name: "counts", command: COUNT });
    await lab.running("counts");
    await lab.create({ type: "batch", name: "quick", command: "sleep 2; echo meanwhile; exit 4" });
    await lab.running("quick");
    await lab.killManager();
    await Bun.sleep(3_000);
    await lab.startManager();
    expect(await lab.ended("quick")).toMatchObject({ status: "TERMINATED", exitCode: 4 });
    expect(await lab.logs("quick")).toBe("meanwhile\n");
    await eventually("commands work again", async () => {
      const done = await lab.exec("stays", ["echo", "alive"]);
      return done.code === 0 && done.stdout === "alive\n";
    });
    expect(await lab.ended("counts")).toMatchObject({ exitCode: 5 });
    expect(await lab.logs("counts")).toBe(COUNTED);
    const history = await lab.history("counts");
    expect(history.filter((entry) => entry.to === "RUNNING")).toHaveLength(1);
    expect((await lab.show("stays")).status).toBe("RUNNING");
    await lab.terminate("stays");
    await lab.ended("stays");
  });

  test("the agent: sessions run on, its node counts as lost and comes back, nothing of the output is missing", async () => {
    await lab.create({ name: "steady" });
    const before = await lab.running("steady");
    await lab.create({ type: "batch", name: "output", command: COUNT });
    await lab.running("output");
    await lab.create({ type: "batch", name: "brief", command: "sleep 2; echo gone; exit 6" });
    await lab.running("brief");
    await lab.killAgent();
    await eventually("the node is lost", async () => (await lab.node()).status === "LOST");
    expect(await lab.show("steady")).toMatchObject({ status: "RUNNING", statusReason: "agent-lost" });
    await lab.startAgent();
    expect(await lab.ended("brief")).toMatchObject({ status: "TERMINATED", exitCode: 6 });
    expect(await lab.logs("brief")).toBe("gone\n");
    expect(await lab.ended("output")).toMatchObject({ exitCode: 5 });
    expect(await lab.logs("output")).toBe(COUNTED);
    const after = await lab.show("steady");
    expect(after).toMatchObject({ status: "RUNNING", statusReason: null });
    expect(after.kernels[0]?.containerId).toBe(before.kernels[0]?.containerId ?? "");
    expect(await lab.exec("steady", ["echo", "alive"])).toMatchObject({ code: 0, stdout: "alive\n" });
    await lab.terminate("steady");
    await lab.ended("steady");
  });

  test("both at once, and a follower resumes where it was", async () => {
    await lab.create({ type: "batch", name: "both", command: COUNT });
    await lab.running("both");
    await Promise.all([lab.killManager(), lab.killAgent()]);
    await lab.startManager();
    await lab.startAgent();
    expect(await lab.logs("both", "format=text&follow=true")).toBe(COUNTED);
    expect(await lab.ended("both")).toMatchObject({ exitCode: 5 });
  });

  test("a graceful stop of both leaves sessions untouched", async () => {
    await lab.create({ name: "calm" });
    const before = await lab.running("calm");
    await lab.stopAgent();
    await lab.stopManager();
    await lab.startManager();
    await lab.startAgent();
    const after = await eventually("it is seen again", async () => {
      const session = await lab.show("calm");
      return session.statusReason === null && session;
    });
    expect(after.status).toBe("RUNNING");
    expect(after.kernels[0]?.containerId).toBe(before.kernels[0]?.containerId ?? "");
    await lab.terminate("calm", true);
  });

  test("a stop that was asked for while the node was away is carried out when it is back", async () => {
    await lab.create({ name: "absent" });
    await lab.running("absent");
    await lab.killAgent();
    await lab.terminate("absent");
    await lab.startAgent();
    expect(await lab.ended("absent")).toMatchObject({ status: "TERMINATED", statusReason: "user-requested" });
  });

  test("a container that is removed by hand is noticed", async () => {
    await lab.create({ name: "robbed" });
    const session = await lab.running("robbed");
    const id = session.kernels[0]?.containerId ?? "";
    expect(Bun.spawnSync(["docker", "rm", "-f", id]).exitCode).toBe(0);
    expect(await lab.ended("robbed")).toMatchObject({ status: "ERROR", statusReason: "container-removed" });
    await eventually("its room is free", async () => (await lab.node()).used.cpu === 0);
  });

  test("a node is removed: refused while sessions live there, then its sessions end and it is shut out", async () => {
    const other = await openLab();
    try {
      await other.create({ name: "tenant" });
      await other.running("tenant");
      const node = await other.node();
      const plain = await other.api("DELETE", `/api/v1/agents/${node.name}`);
      expect(plain.status).toBe(409);
      await other.call("DELETE", `/agents/${node.name}?force=true`);
      expect(await other.show("tenant")).toMatchObject({
        status: "TERMINATED",
        statusReason: "agent-removed",
      });
      const { items } = await other.call<{ items: unknown[] }>("GET", "/agents");
      expect(items).toEqual([]);
      await eventually("the agent is told", async () => other.output().includes("removed from the cluster"));
    } finally {
      await other.close();
    }
  });
});

describe.skipIf(!hasEngine)("many at once", () => {
  test("200 sessions on a node that fits four all end, each once, and leave nothing", async () => {
    const lab = await openLab();
    try {
      const total = 200;
      for (let at = 0; at < total; at += 100) {
        await lab.create({
          type: "batch",
          name: `many-${at}`,
          command: [
            "sh",
            "-c",
            "echo $BERTH_SESSION_NAME; exit $(( $(echo $BERTH_SESSION_NAME | wc -c) % 3 ))",
          ],
          slots: { cpu: 500, mem: "64m", shm: "8m" },
          count: 100,
        });
      }
      await eventually(
        "all have ended",
        async () => {
          const { used } = await lab.node();
          expect(used.cpu).toBeLessThanOrEqual(2000);
          return (await lab.list("state=live&limit=1")).length === 0;
        },
        900_000,
      );
      const all = await lab.list();
      expect(all).toHaveLength(total);
      for (const session of all) {
        expect(session).toMatchObject({ status: "TERMINATED", exitCode: (session.name.length + 1) % 3 });
      }
      expect(await lab.logs("many-0-17")).toBe("many-0-17\n");
      await eventually("the node is free", async () => (await lab.node()).used.cpu === 0);
      const engine = await lab.engine();
      expect(await engine?.listKernels()).toEqual([]);
      expect(loopDevicesOf(lab.agentDir)).toEqual([]);
    } finally {
      await lab.close();
    }
  });
});
