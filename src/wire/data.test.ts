import { afterEach, beforeAll, beforeEach, describe, expect, test } from "bun:test";
import { randomUUID } from "node:crypto";
import { type Clock, manualClock, systemClock } from "../kit/clock.ts";
import { BerthError } from "../kit/errors.ts";
import { readFrames, writeFrame } from "../kit/frames.ts";
import { type ByteStream, createByteStream } from "./byte-stream.ts";
import { createDataBroker, type DataBroker } from "./data-broker.ts";
import { createDataDialer, type DataDialer } from "./data-dialer.ts";
import { DATA_PROTOCOL, dialManager } from "./dial.ts";
import type { AgentListener } from "./listener.ts";
import { silentLog, type TestCluster, testCluster, testListener, until } from "./test-kit.ts";

let cluster: TestCluster;
let broker: DataBroker;
let listener: AgentListener;
let brokerClock = manualClock();
let dialers: DataDialer[] = [];
beforeAll(async () => {
  cluster = await testCluster();
});
beforeEach(async () => {
  brokerClock = manualClock();
  broker = createDataBroker({ clock: brokerClock, log: silentLog });
  listener = await testListener(cluster, { onData: (identity, stream) => broker.accept(identity, stream) });
});
afterEach(async () => {
  for (const dialer of dialers) dialer.close();
  dialers = [];
  await listener.close();
});

async function newAgent(options: { clock?: Clock; spares?: number } = {}) {
  const { agentId, certPem, keyPem } = await cluster.agent();
  const dialer = createDataDialer({
    host: "127.0.0.1",
    port: listener.port,
    credentials: () => ({ clusterId: cluster.clusterId, caPem: cluster.caPem, certPem, keyPem }),
    clock: systemClock,
    log: silentLog,
    ...options,
  });
  dialers.push(dialer);
  return { agentId, dialer, certPem, keyPem };
}

async function readText(stream: ByteStream): Promise<string> {
  let text = "";
  for await (const chunk of stream) text += Buffer.from(chunk).toString();
  return text;
}

async function connect(agent: Awaited<ReturnType<typeof newAgent>>) {
  const streamId = randomUUID();
  return Promise.all([broker.expect(agent.agentId, streamId), agent.dialer.open(streamId)]);
}

describe("data streams", () => {
  test("the two ends talk, from a cold start and from a spare connection", async () => {
    const agent = await newAgent();
    for (const warm of [false, true]) {
      if (warm) agent.dialer.warm();
      if (warm) await until(() => listener.connectionsOf(agent.agentId) === 2);
      const [manager, node] = await connect(agent);
      await writeFrame(manager, { type: "stdin", bytes: Buffer.from("hello") });
      manager.end();
      const frames = [];
      for await (const frame of readFrames(node)) frames.push(frame);
      expect(frames).toMatchObject([{ type: "stdin" }]);
      await node.closed;
    }
  });

  test("bytes sent right behind the opening are not lost, in either direction", async () => {
    const agent = await newAgent();
    const streamId = randomUUID();
    const manager = broker.expect(agent.agentId, streamId).then(async (stream) => {
      await stream.write(Buffer.from("from the manager"));
      stream.end();
      return readText(stream);
    });
    const node = await agent.dialer.open(streamId);
    await node.write(Buffer.from("from the node"));
    expect(await readText(node)).toBe("from the manager");
    node.end();
    expect(await manager).toBe("from the node");
  });

  test("fifty streams at once of two agents each reach the one who waits", async () => {
    const agents = [await newAgent(), await newAgent()];
    for (const { dialer } of agents) dialer.warm();
    const talks = Array.from({ length: 50 }, async (_, i) => {
      const agent = agents[i % 2];
      if (agent === undefined) throw new Error("no agent");
      const streamId = `${i}-${randomUUID()}`;
      const [manager, node] = await Promise.all([
        broker.expect(agent.agentId, streamId),
        agent.dialer.open(streamId),
      ]);
      await node.write(Buffer.from(streamId));
      node.end();
      return (await readText(manager)) === streamId;
    });
    expect(await Promise.all(talks)).toEqual(new Array(50).fill(true));
  });

  test("a stream that another agent was asked for cannot be taken", async () => {
    const [owner, thief] = [await newAgent(), await newAgent()];
    const streamId = randomUUID();
    const expected = broker.expect(owner.agentId, streamId);
    await expect(thief.dialer.open(streamId)).rejects.toMatchObject({ code: "unknown-stream" });
    await owner.dialer.open(streamId);
    (await expected).destroy();
  });

  test("a stream id opens one stream only", async () => {
    const agent = await newAgent();
    const streamId = randomUUID();
    const expected = broker.expect(agent.agentId, streamId);
    await agent.dialer.open(streamId);
    await expected;
    await expect(agent.dialer.open(streamId)).rejects.toMatchObject({ code: "unknown-stream" });
  });

  test("waiting ends with words: in time, by the agent's failure, by a cut", async () => {
    const agent = await newAgent();
    const late = broker.expect(agent.agentId, "late");
    brokerClock.advance(9_999);
    const failed = broker.expect(agent.agentId, "failed");
    const cut = broker.expect(agent.agentId, "cut");
    broker.fail(agent.agentId, "failed", new BerthError("no-such-kernel", "That container is gone."));
    await expect(failed).rejects.toMatchObject({ code: "no-such-kernel" });
    brokerClock.advance(1);
    await expect(late).rejects.toMatchObject({ code: "stream-timeout" });
    broker.cut(agent.agentId);
    await expect(cut).rejects.toMatchObject({ code: "agent-lost" });
    await expect(agent.dialer.open("late")).rejects.toMatchObject({ code: "unknown-stream" });
  });

  test("cutting the agent ends its streams and no other agent's", async () => {
    const [one, two] = [await newAgent(), await newAgent()];
    const [[managerOne, nodeOne], [managerTwo, nodeTwo]] = await Promise.all([connect(one), connect(two)]);
    listener.cut(one.agentId);
    await Promise.all([managerOne.closed, nodeOne.closed]);
    await managerTwo.write(Buffer.from("still here"));
    managerTwo.end();
    expect(await readText(nodeTwo)).toBe("still here");
  });
});

describe("spare connections", () => {
  test("are kept at their number, renewed each minute, and let go when the link is down", async () => {
    const clock = manualClock(systemClock.wall());
    const agent = await newAgent({ clock, spares: 3 });
    const count = () => listener.connectionsOf(agent.agentId);
    agent.dialer.warm();
    await until(() => count() === 3);
    await connect(agent);
    await until(() => count() === 4);
    clock.advance(60_000);
    await until(() => count() === 1);
    await until(() => count() === 4);
    agent.dialer.cool();
    await until(() => count() === 1);
    agent.dialer.close();
    await until(() => count() === 0);
  });

  test("one that died does not keep a stream from being opened", async () => {
    const agent = await newAgent();
    agent.dialer.warm();
    await until(() => listener.connectionsOf(agent.agentId) === 2);
    const streamId = randomUUID();
    const expected = broker.expect(agent.agentId, streamId);
    listener.cut(agent.agentId);
    await agent.dialer.open(streamId);
    (await expected).destroy();
  });

  test("one that says nothing is dropped in the end, and too many of them at once", async () => {
    const agent = await newAgent();
    const { certPem, keyPem } = agent;
    const dial = () =>
      dialManager({
        host: "127.0.0.1",
        port: listener.port,
        protocol: DATA_PROTOCOL,
        trust: { caPem: cluster.caPem },
        own: { certPem, keyPem },
        clock: systemClock,
      });
    const streams = await Promise.all(Array.from({ length: 40 }, async () => createByteStream(await dial())));
    let dropped = 0;
    for (const stream of streams) stream.closed.then(() => dropped++);
    await until(() => dropped === 8);
    expect(listener.connectionsOf(agent.agentId)).toBe(32);
    brokerClock.advance(180_000);
    await until(() => listener.connectionsOf(agent.agentId) === 0);
    for (const stream of streams) stream.destroy();
  });

  test("garbage instead of a header ends that connection alone", async () => {
    const agent = await newAgent();
    const { certPem, keyPem } = agent;
    const socket = await dialManager({
      host: "127.0.0.1",
      port: listener.port,
      protocol: DATA_PROTOCOL,
      trust: { caPem: cluster.caPem },
      own: { certPem, keyPem },
      clock: systemClock,
    });
    const stream = createByteStream(socket);
    await stream.write(Buffer.from([1, 255, 255, 255, 255, 0]));
    await stream.closed;
    const [manager] = await connect(agent);
    manager.destroy();
  });
});
