import { afterEach, beforeAll, describe, expect, test } from "bun:test";
import { connect as tcpConnect } from "node:net";
import { type ConnectionOptions, connect } from "node:tls";
import { systemClock } from "../kit/clock.ts";
import { type AgentId, type ClusterId, newId } from "../kit/ids.ts";
import { issueServerCertificate } from "./ca.ts";
import { createAgentCsr, signAgentCsr } from "./csr.ts";
import { DATA_PROTOCOL, dialManager } from "./dial.ts";
import type { AgentIdentity } from "./identity.ts";
import type { AgentListener, AgentListenerOptions } from "./listener.ts";
import { type TestCluster, testCluster, testListener, until } from "./test-kit.ts";

let cluster: TestCluster;
let foreign: TestCluster;
let listener: AgentListener | undefined;
beforeAll(async () => {
  cluster = await testCluster();
  foreign = await testCluster(cluster.clusterId);
});
afterEach(async () => {
  await listener?.close();
  listener = undefined;
});

/** Starts a listener; gives the identities that got through, for links and data streams. */
async function start(options: Partial<AgentListenerOptions> = {}) {
  const seen: AgentIdentity[] = [];
  const started = await testListener(cluster, {
    onData: (identity) => seen.push(identity),
    onLink: (link) => seen.push(link.identity),
    ...options,
  });
  listener = started;
  return { listener: started, seen };
}

/** Connects as a raw peer that sends what it likes, and resolves when the server ends the connection. */
function attempt(port: number, options: ConnectionOptions, bytes = "x"): Promise<void> {
  return new Promise((resolve) => {
    const socket = connect({ host: "127.0.0.1", port, rejectUnauthorized: false, ...options }, () => {
      socket.write(bytes);
    });
    socket.on("data", () => {});
    socket.on("error", () => {});
    socket.on("close", () => resolve());
  });
}

const H2_PREFACE = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

describe("who gets through the port of the agents", () => {
  const peers: Record<string, () => Promise<ConnectionOptions>> = {
    "without a certificate": async () => ({}),
    "with a certificate of a foreign CA of the same name": async () => {
      const { certPem, keyPem } = await foreign.agent();
      return { cert: certPem, key: keyPem };
    },
    "with an expired certificate": async () => {
      const { certPem, keyPem } = await cluster.expiredAgent();
      return { cert: certPem, key: keyPem };
    },
    "with the manager's role": async () => {
      return { cert: cluster.server.certPem, key: cluster.server.keyPem };
    },
    "of another cluster under the same CA": async () => {
      const clusterId = newId<ClusterId>(systemClock);
      const agentId = newId<AgentId>(systemClock);
      const { csrPem, keyPem } = await createAgentCsr();
      const certPem = await signAgentCsr(cluster.ca, csrPem, { clusterId, agentId, clock: systemClock });
      return { cert: certPem, key: keyPem };
    },
  };
  for (const [who, options] of Object.entries(peers)) {
    test.each(["h2", DATA_PROTOCOL])(`a peer ${who} is cut (%s)`, async (protocol) => {
      const { listener, seen } = await start();
      const own = await options();
      await attempt(listener.port, { ...own, ALPNProtocols: [protocol] }, H2_PREFACE);
      expect(seen).toEqual([]);
      await until(() => listener.open() === 0);
    });
  }

  test("a chain that brings its own CA along is cut", async () => {
    const { listener, seen } = await start();
    const { certPem, keyPem } = await foreign.agent();
    const own = { cert: certPem + foreign.caPem, key: keyPem };
    await attempt(listener.port, { ...own, ALPNProtocols: [DATA_PROTOCOL] });
    expect(seen).toEqual([]);
  });

  test("a peer that names no protocol, or speaks an older TLS, is cut", async () => {
    const { listener, seen } = await start();
    const { certPem, keyPem } = await cluster.agent();
    await attempt(listener.port, { cert: certPem, key: keyPem });
    await attempt(listener.port, {
      cert: certPem,
      key: keyPem,
      ALPNProtocols: ["h2"],
      maxVersion: "TLSv1.2",
    });
    expect(seen).toEqual([]);
    await until(() => listener.open() === 0);
  });

  test("an agent of the cluster gets through, known by its certificate", async () => {
    const { listener, seen } = await start();
    const { agentId, certPem, keyPem } = await cluster.agent();
    const socket = await dialData(listener, { certPem, keyPem });
    await until(() => seen.length === 1);
    expect(seen).toEqual([{ role: "agent", clusterId: cluster.clusterId, agentId }]);
    socket.destroy();
    await until(() => listener.connectionsOf(agentId) === 0 && listener.open() === 0);
  });

  test("a revoked agent is cut, by its id or by the serial of its certificate", async () => {
    const serials: string[] = [];
    const { listener, seen } = await start({
      isRevoked: async (_, serial) => {
        serials.push(serial);
        return true;
      },
    });
    const own = await cluster.agent();
    await attempt(listener.port, { cert: own.certPem, key: own.keyPem, ALPNProtocols: [DATA_PROTOCOL] });
    await attempt(listener.port, { cert: own.certPem, key: own.keyPem, ALPNProtocols: ["h2"] }, H2_PREFACE);
    expect(seen).toEqual([]);
    expect(serials).toHaveLength(2);
    expect(serials[0]).toMatch(/^[0-9a-f]{32}$/);
  });
});

function dialData(to: AgentListener, own: { certPem: string; keyPem: string }) {
  return dialManager({
    host: "127.0.0.1",
    port: to.port,
    protocol: DATA_PROTOCOL,
    trust: { caPem: cluster.caPem, clusterId: cluster.clusterId },
    own,
    clock: systemClock,
  });
}

describe("cutting off", () => {
  test("cut destroys every connection of that agent and of no other", async () => {
    const { listener, seen } = await start();
    const [one, two] = [await cluster.agent(), await cluster.agent()];
    const sockets = await Promise.all([one, one, one, two].map((own) => dialData(listener, own)));
    await until(() => seen.length === 4);
    expect(listener.connectionsOf(one.agentId)).toBe(3);
    listener.cut(one.agentId);
    await until(() => sockets.slice(0, 3).every((socket) => socket.destroyed || socket.readableEnded));
    await until(() => listener.connectionsOf(one.agentId) === 0);
    expect(listener.connectionsOf(two.agentId)).toBe(1);
    for (const socket of sockets) socket.destroy();
  });

  test("a removal while revocation is asked for cuts the connection too", async () => {
    const asked = Promise.withResolvers<void>();
    const answer = Promise.withResolvers<boolean>();
    const { listener, seen } = await start({
      isRevoked: () => {
        asked.resolve();
        return answer.promise;
      },
    });
    const own = await cluster.agent();
    const socket = await dialData(listener, own);
    await asked.promise;
    listener.cut(own.agentId);
    answer.resolve(false);
    await until(() => listener.open() === 0);
    expect(seen).toEqual([]);
    socket.destroy();
  });

  test("an agent with too many connections loses the newest", async () => {
    const { listener, seen } = await start({ limits: { connectionsPerAgent: 2 } });
    const own = await cluster.agent();
    const sockets = [await dialData(listener, own), await dialData(listener, own)];
    await until(() => seen.length === 2);
    sockets.push(await dialData(listener, own));
    await until(() => listener.open() === 2);
    expect(seen).toHaveLength(2);
    for (const socket of sockets) socket.destroy();
  });
});

describe("broken and slow peers", () => {
  const silent = (port: number) => {
    const socket = tcpConnect(port, "127.0.0.1");
    socket.on("error", () => {});
    return socket;
  };

  test("a peer that never finishes its handshake is cut", async () => {
    const { listener } = await start({ limits: { handshakeMs: 50 } });
    const peers = [silent(listener.port), silent(listener.port)];
    peers[1]?.write(Buffer.from([22, 3, 1, 2, 0]));
    await until(() => listener.open() === 2);
    await until(() => listener.open() === 0);
    for (const peer of peers) peer.destroy();
  });

  test("handshakes under way are bounded, and the port serves on when they are over", async () => {
    const { listener, seen } = await start({ limits: { handshakesPerAddress: 3 } });
    const peers = Array.from({ length: 10 }, () => silent(listener.port));
    await until(() => peers.filter((peer) => peer.closed || peer.readableEnded).length >= 7);
    expect(listener.open()).toBeLessThanOrEqual(3);
    for (const peer of peers) peer.destroy();
    await until(() => listener.open() === 0);
    const socket = await dialData(listener, await cluster.agent());
    await until(() => seen.length === 1);
    socket.destroy();
  });

  test("peers that say nothing do not keep out one that does, from their address or in all", async () => {
    for (const limits of [{ handshakesPerAddress: 3 }, { handshakes: 3 }]) {
      const { listener, seen } = await start({ limits });
      const peers = Array.from({ length: 3 }, () => silent(listener.port));
      await until(() => listener.open() === 3);
      const socket = await dialData(listener, await cluster.agent());
      await until(() => seen.length === 1);
      // The oldest alone made room.
      await until(() => listener.open() === 3);
      for (const peer of [socket, ...peers]) peer.destroy();
      await listener.close();
    }
  });

  test("garbage, cut handshakes and garbage inside TLS leave the port serving", async () => {
    const { listener, seen } = await start();
    for (const junk of ["GET / HTTP/1.1\r\n\r\n", "\x16\x03\x01\xff\xff", "\0".repeat(5000)]) {
      const socket = silent(listener.port);
      const over = new Promise((resolve) => socket.on("close", resolve));
      socket.end(junk);
      socket.on("data", () => {});
      await over;
    }
    const { certPem, keyPem } = await cluster.agent();
    const own = { cert: certPem, key: keyPem };
    await attempt(
      listener.port,
      { ...own, ALPNProtocols: ["h2"] },
      "this is not HTTP/2 at all, not a bit of it",
    );
    await attempt(listener.port, { ALPNProtocols: ["berth-join/1"] }, "\xff".repeat(100));
    await until(() => listener.open() === 0);
    const socket = await dialData(listener, { certPem, keyPem });
    await until(() => seen.length === 1);
    socket.destroy();
  });

  test("a port in use is told in words", async () => {
    const { listener } = await start();
    await expect(testListener(cluster, { port: listener.port })).rejects.toMatchObject({
      code: "port-in-use",
    });
  });
});

describe("whom an agent takes for its manager", () => {
  const dial = (port: number, trust: { caPem: string; clusterId?: typeof cluster.clusterId }) =>
    dialManager({ host: "127.0.0.1", port, protocol: DATA_PROTOCOL, trust, clock: systemClock });
  const untrusted = expect.objectContaining({ code: "manager-not-trusted" });

  test("neither a foreign CA, nor an agent, nor the manager of another cluster", async () => {
    const { listener } = await start();
    await expect(dial(listener.port, { caPem: foreign.caPem })).rejects.toEqual(untrusted);
    const elsewhere = { caPem: cluster.caPem, clusterId: (await testCluster()).clusterId };
    await expect(dial(listener.port, elsewhere)).rejects.toEqual(untrusted);
    const poser = await testListener(cluster, { serverCert: await cluster.agent() });
    await expect(dial(poser.port, { caPem: cluster.caPem })).rejects.toEqual(untrusted);
    await poser.close();
  });

  test("a text with two CAs trusts the first alone", async () => {
    const { listener } = await start();
    const both = { caPem: foreign.caPem + cluster.caPem };
    await expect(dial(listener.port, both)).rejects.toEqual(untrusted);
  });

  test("nobody there is told in words", async () => {
    const { listener } = await start();
    await listener.close();
    const gone = dial(listener.port, { caPem: cluster.caPem });
    await expect(gone).rejects.toMatchObject({ code: "manager-unreachable" });
  });

  test("the manager's certificate may have been made for another address", async () => {
    const hosts = ["elsewhere.example"];
    const { clusterId, caPem, ca } = cluster;
    const serverCert = await issueServerCertificate(ca, { clusterId, hosts, clock: systemClock });
    const { listener, seen } = await start({ serverCert });
    const { certPem, keyPem } = await cluster.agent(newId<AgentId>(systemClock));
    const socket = await dialManager({
      host: "localhost",
      port: listener.port,
      protocol: DATA_PROTOCOL,
      trust: { caPem, clusterId },
      own: { certPem, keyPem },
      clock: systemClock,
    });
    await until(() => seen.length === 1);
    socket.destroy();
  });
});
