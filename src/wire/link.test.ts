import { afterEach, beforeAll, describe, expect, test } from "bun:test";
import { credentials, status } from "@grpc/grpc-js";
import { systemClock } from "../kit/clock.ts";
import type { AgentId } from "../kit/ids.ts";
import { AgentLinkClient, type AgentMessage, type ManagerMessage } from "./generated/berth.ts";
import { type AgentLink, type OpenLinkOptions, openLink } from "./link-client.ts";
import type { ServerLink } from "./link-server.ts";
import type { AgentListener } from "./listener.ts";
import { type TestCluster, testCluster, testListener, until } from "./test-kit.ts";

let cluster: TestCluster;
let foreign: TestCluster;
let listener: AgentListener;
let links: ServerLink[] = [];
beforeAll(async () => {
  cluster = await testCluster();
  foreign = await testCluster(cluster.clusterId);
});
afterEach(async () => {
  await listener.close();
});

const heartbeat = (wallMs: number): AgentMessage => ({ body: { $case: "heartbeat", value: { wallMs } } });
const pull = (reference: string): ManagerMessage => ({
  body: { $case: "pullImage", value: { pullId: "p", reference } },
});

async function start(onLink: (link: ServerLink) => void = () => {}): Promise<void> {
  links = [];
  listener = await testListener(cluster, {
    onLink: (link) => {
      links.push(link);
      onLink(link);
    },
  });
}

async function open(changes: Partial<OpenLinkOptions> = {}): Promise<AgentLink & { agentId: AgentId }> {
  const { agentId, certPem, keyPem } = await cluster.agent();
  const { clusterId, caPem } = cluster;
  const { port } = listener;
  const base = { host: "127.0.0.1", port, clusterId, caPem, certPem, keyPem, clock: systemClock };
  return { ...(await openLink({ ...base, ...changes })), agentId };
}

async function next<T>(messages: AsyncIterable<T>): Promise<T | undefined> {
  const result = await messages[Symbol.asyncIterator]().next();
  return result.done === true ? undefined : result.value;
}

function only(list: readonly ServerLink[]): ServerLink {
  const [link, ...more] = list;
  if (link === undefined || more.length > 0) throw new Error(`${list.length} links instead of one`);
  return link;
}

describe("the link", () => {
  test("carries messages both ways in their order, and ends in good order", async () => {
    await start();
    const agent = await open();
    const manager = only(links);
    for (let i = 0; i < 200; i++)
      await Promise.all([agent.send(heartbeat(i)), manager.send(pull(String(i)))]);
    for (let i = 0; i < 200; i++) {
      expect(await next(manager.messages)).toEqual(heartbeat(i));
      expect(await next(agent.messages)).toEqual(pull(String(i)));
    }
    agent.close();
    expect(await manager.closed).toMatchObject({ by: "peer" });
    expect(await agent.closed).toMatchObject({ by: "us" });
    expect(await next(manager.messages)).toBeUndefined();
    await expect(manager.send(pull("x"))).rejects.toThrow("over");
    await until(() => listener.open() === 0);
  });

  test("the manager may end it: what it sent before still arrives", async () => {
    await start();
    const agent = await open();
    const manager = only(links);
    await manager.send({
      body: { $case: "refused", value: { code: "clone", message: "No.", retry: false } },
    });
    manager.close();
    expect((await next(agent.messages))?.body?.$case).toBe("refused");
    expect(await next(agent.messages)).toBeUndefined();
    expect(await agent.closed).toMatchObject({ by: "peer" });
    await until(() => listener.open() === 0);
  });

  test("two agents at once are each known by their own certificate, whatever they say", async () => {
    const heard = new Map<string, string>();
    await start(async (link) => {
      for await (const { body } of link.messages) {
        if (body?.$case === "leaseStored") heard.set(link.identity.agentId, body.value.lease);
      }
    });
    const agents = await Promise.all([open(), open(), open()]);
    for (const agent of agents) {
      await agent.send({ body: { $case: "leaseStored", value: { lease: `of ${agent.agentId}` } } });
    }
    await until(() => heard.size === 3);
    for (const { agentId } of agents) expect(heard.get(agentId)).toBe(`of ${agentId}`);
    for (const agent of agents) agent.close();
  });

  test("a manager that does not read stops the agent that sends, and the other way round", async () => {
    await start();
    const agent = await open();
    const manager = only(links);
    const big = "x".repeat(64 * 1024);
    for (const [send, messages] of [
      [() => agent.send({ body: { $case: "leaseStored", value: { lease: big } } }), manager.messages],
      [() => manager.send(pull(big)), agent.messages],
    ] as const) {
      const sent = await fill(send);
      expect(sent).toBeLessThan(1000);
      const reader: AsyncIterator<unknown> = messages[Symbol.asyncIterator]();
      for (let i = 0; i < sent; i++) expect((await reader.next()).done).toBeFalsy();
    }
    agent.close();
  });

  test("a cut by the manager ends the agent's link, and one agent's alone", async () => {
    await start();
    const one = await open();
    const two = await open();
    listener.cut(one.agentId);
    expect(await one.closed).toMatchObject({ by: "network" });
    await until(() => listener.open() === 1);
    await two.send(heartbeat(1));
    two.close();
  });

  test("a connection carries one stream: a second is refused and the first goes on", async () => {
    await start();
    const { certPem, keyPem } = await cluster.agent();
    const channel = credentials.createSsl(
      Buffer.from(cluster.caPem),
      Buffer.from(keyPem),
      Buffer.from(certPem),
    );
    const target = { "grpc.ssl_target_name_override": "localhost" };
    const client = new AgentLinkClient(`127.0.0.1:${listener.port}`, channel, target);
    const [first, second] = [client.link(), client.link()];
    first.on("error", () => {});
    const refused = new Promise((resolve) => second.on("error", resolve));
    expect(await refused).toMatchObject({ code: status.RESOURCE_EXHAUSTED });
    first.write(heartbeat(7));
    expect(await next(only(links).messages)).toEqual(heartbeat(7));
    client.close();
    first.cancel();
  });

  test("many links opened and cut leave no connection behind", async () => {
    await start();
    for (let round = 0; round < 20; round++) {
      const agents = await Promise.all([open(), open(), open()]);
      for (const agent of agents) listener.cut(agent.agentId);
      for (const agent of agents) await agent.closed;
    }
    await until(() => listener.open() === 0);
    for (const link of links) await link.closed;
  });
});

/** Sends until it has to wait for good; gives how many messages were taken. */
async function fill(send: () => Promise<void>): Promise<number> {
  for (let sent = 1; sent < 2000; sent++) {
    const stuck = new Promise<string>((resolve) => setTimeout(resolve, 300, "stuck"));
    if ((await Promise.race([send(), stuck])) === "stuck") return sent;
  }
  throw new Error("nothing ever pushed back");
}

describe("opening a link is refused", () => {
  const untrusted = { code: "manager-not-trusted" };

  test("to a manager of a foreign CA, of another cluster, or an agent that poses as one", async () => {
    await start();
    await expect(open({ caPem: foreign.caPem })).rejects.toMatchObject(untrusted);
    await expect(open({ clusterId: (await testCluster()).clusterId })).rejects.toMatchObject(untrusted);
    const poser = await testListener(cluster, { serverCert: await cluster.agent() });
    await expect(open({ port: poser.port })).rejects.toMatchObject(untrusted);
    await poser.close();
    expect(links).toEqual([]);
  });

  test("by the manager, of an agent with a foreign or expired certificate", async () => {
    await start();
    for (const own of [await foreign.agent(), await cluster.expiredAgent()]) {
      const { certPem, keyPem } = own;
      await expect(open({ certPem, keyPem })).rejects.toMatchObject({ code: "manager-unreachable" });
    }
    expect(links).toEqual([]);
  });

  test("by the manager, of a removed agent, in words that name the certificate and not the port", async () => {
    listener = await testListener(cluster, { isRevoked: () => true });
    const refused = await open().catch((error: unknown) => String(error));
    expect(refused).toContain("does not accept this node's certificate");
    expect(refused).not.toContain("cannot be reached");
  });

  test("where nobody listens", async () => {
    await start();
    await listener.close();
    await expect(open()).rejects.toMatchObject({ code: "manager-unreachable" });
  });
});
