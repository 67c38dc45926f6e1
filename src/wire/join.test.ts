import { afterEach, beforeAll, beforeEach, describe, expect, test } from "bun:test";
import { createServer } from "node:tls";
import { type Clock, systemClock } from "../kit/clock.ts";
import { BerthError } from "../kit/errors.ts";
import { type AgentId, type JoinTokenId, newId } from "../kit/ids.ts";
import { createByteStream } from "./byte-stream.ts";
import { certificateInfo, fingerprint } from "./certificates.ts";
import { createAgentCsr, signAgentCsr } from "./csr.ts";
import { dialManager, JOIN_PROTOCOL } from "./dial.ts";
import { joinCluster } from "./join-client.ts";
import { caAnswer, joinAnswer, readMessage, writeMessage } from "./join-messages.ts";
import type { JoinRequest, JoinResult } from "./join-server.ts";
import { newJoinSecret } from "./join-token.ts";
import type { AgentListener, AgentListenerOptions } from "./listener.ts";
import { type TestCluster, testCluster, testListener, until } from "./test-kit.ts";

let cluster: TestCluster;
let foreign: TestCluster;
let listener: AgentListener | undefined;
let requests: JoinRequest[] = [];
beforeAll(async () => {
  cluster = await testCluster();
  foreign = await testCluster(cluster.clusterId);
});
beforeEach(() => {
  requests = [];
});
afterEach(async () => {
  await listener?.close();
  listener = undefined;
});

const secret = newJoinSecret();
const tokenId = newId<JoinTokenId>(systemClock);

async function admit(request: JoinRequest): Promise<JoinResult> {
  requests.push(request);
  if (request.secret !== secret) throw new BerthError("join-token-unknown", "This join token is not known.");
  const agentId = newId<AgentId>(systemClock);
  const { clusterId, ca } = cluster;
  const certPem = await signAgentCsr(ca, request.csrPem, { clusterId, agentId, clock: systemClock });
  return { agentId, certPem };
}

async function start(options: Partial<AgentListenerOptions> = {}): Promise<AgentListener> {
  const started = await testListener(cluster, { onJoin: admit, ...options });
  listener = started;
  return started;
}

const { csrPem } = await createAgentCsr();

function join(
  port: number,
  changes: { secret?: string; caPem?: string; clock?: Clock; csrPem?: string } = {},
) {
  const caFingerprint = fingerprint(changes.caPem ?? cluster.caPem);
  return joinCluster({
    host: "127.0.0.1",
    port,
    token: { id: tokenId, secret: changes.secret ?? secret, caFingerprint, port },
    csrPem: changes.csrPem ?? csrPem,
    hostname: "node-1",
    version: "0.1.0",
    clock: changes.clock ?? systemClock,
  });
}

const shifted = (ms: number): Clock => ({ ...systemClock, wall: () => systemClock.wall() + ms });

describe("joining", () => {
  test("a node with a good token gets its identity, the manager all that it asked", async () => {
    const { port, open } = await start();
    const joined = await join(port);
    const { agentId, clusterId, certPem, caPem } = joined;
    expect(clusterId).toBe(cluster.clusterId);
    expect(certificateInfo(certPem).identity).toEqual({ role: "agent", clusterId, agentId });
    expect(fingerprint(caPem)).toBe(fingerprint(cluster.caPem));
    expect(joined.skewWarning).toBeUndefined();
    expect(requests).toEqual([
      expect.objectContaining({
        tokenId,
        secret,
        csrPem,
        hostname: "node-1",
        version: "0.1.0",
        address: "127.0.0.1",
      }),
    ]);
    await until(() => open() === 0);
  });

  test("a refusal arrives with its code and sentence", async () => {
    const { port } = await start();
    const refused = join(port, { secret: newJoinSecret() });
    await expect(refused).rejects.toMatchObject({
      code: "join-token-unknown",
      message: "This join token is not known.",
    });
  });

  test("a fault of the manager shows no inner detail", async () => {
    const { port } = await start({ onJoin: () => Promise.reject(new Error("SQLITE_BUSY /secret/path")) });
    const error = await join(port).catch((e: unknown) => e);
    expect(error).toMatchObject({ code: "internal" });
    expect(String(error)).not.toContain("secret");
  });

  test("the secret is never shown to a manager whose CA is not the token's", async () => {
    const { port } = await start();
    const refused = join(port, { caPem: foreign.caPem });
    await expect(refused).rejects.toMatchObject({ code: "manager-not-trusted" });
    expect(requests).toEqual([]);
  });

  test("nor to one that passes the true CA on, alone or with its own behind it, without its key", async () => {
    for (const passedOn of [cluster.caPem, cluster.caPem + foreign.caPem]) {
      let connections = 0;
      let received = "";
      const { certPem, keyPem } = foreign.server;
      const poser = createServer({ cert: certPem, key: keyPem, ALPNProtocols: [JOIN_PROTOCOL] }, (socket) => {
        connections++;
        const stream = createByteStream(socket);
        const say = async () => {
          for await (const chunk of stream) {
            received += Buffer.from(chunk).toString();
            await writeMessage(stream, { caPem: passedOn, managerTime: Date.now() });
          }
        };
        say().catch(() => {});
      });
      await new Promise<void>((resolve) => poser.listen(0, "127.0.0.1", resolve));
      const address = poser.address();
      const port = address !== null && typeof address === "object" ? address.port : 0;
      await expect(join(port)).rejects.toMatchObject({ code: "manager-not-trusted" });
      expect(connections).toBeGreaterThan(0);
      expect(received).not.toContain(secret);
      poser.close();
    }
  });

  test("clocks that differ by more than a minute are told, with the side that is wrong", async () => {
    const { port } = await start();
    const behind = await join(port, { clock: shifted(-90_000) });
    expect(behind.skewWarning).toMatch(/clock is (89|90|91) s behind the manager's/);
    const ahead = await join(port, { clock: shifted(3_600_000) });
    expect(ahead.skewWarning).toMatch(/clock is 3600 s ahead of the manager's/);
    expect((await join(port, { clock: shifted(30_000) })).skewWarning).toBeUndefined();
  });

  test("clocks too far apart for certificates are refused before the secret is shown", async () => {
    const { port } = await start();
    const refused = join(port, { clock: shifted(-2 * 86_400_000) });
    await expect(refused).rejects.toMatchObject({ code: "clock-skew" });
    expect(requests).toEqual([]);
  });

  test("connections that ask nothing do not keep out a node that does", async () => {
    const { port, open } = await start({ limits: { joins: 2 } });
    const dial = () =>
      dialManager({ host: "127.0.0.1", port, protocol: JOIN_PROTOCOL, trust: cluster, clock: systemClock });
    const silent = [await dial(), await dial()];
    await until(() => open() === 2);
    expect((await join(port)).clusterId).toBe(cluster.clusterId);
    for (const socket of silent) socket.destroy();
  });

  test("joins at once are bounded, and a place is free again after one", async () => {
    const entered = Promise.withResolvers<void>();
    const gate = Promise.withResolvers<void>();
    const { port, open } = await start({
      limits: { joins: 1 },
      onJoin: async (request) => {
        entered.resolve();
        await gate.promise;
        return admit(request);
      },
    });
    const ask = async () => {
      const dialled = {
        host: "127.0.0.1",
        port,
        protocol: JOIN_PROTOCOL,
        trust: undefined,
        clock: systemClock,
      } as const;
      return createByteStream(await dialManager(dialled));
    };
    const first = await ask();
    const [hostname, version, wallMs] = ["node-1", "0.1.0", 0];
    await writeMessage(first, { ask: "join", tokenId, secret, csrPem, hostname, version, wallMs });
    await entered.promise;
    await expect(join(port)).rejects.toBeInstanceOf(BerthError);
    gate.resolve();
    expect(await readMessage(first, joinAnswer)).toMatchObject({ ok: true });
    await until(() => open() === 0);
    const second = await ask();
    await writeMessage(second, { ask: "ca" });
    expect(fingerprint((await readMessage(second, caAnswer)).caPem)).toBe(fingerprint(cluster.caPem));
    second.destroy();
  });

  test("a join that says too much is cut", async () => {
    const { port, open } = await start();
    await expect(join(port, { csrPem: "x".repeat(200_000) })).rejects.toMatchObject({
      code: "bad-join-message",
    });
    expect(requests).toEqual([]);
    await until(() => open() === 0);
  });
});
