import { connect, createServer, type TLSSocket } from "node:tls";
import { systemClock } from "../kit/clock.ts";
import { BerthError } from "../kit/errors.ts";
import { type AgentId, type ClusterId, newId } from "../kit/ids.ts";
import { createLogger } from "../kit/log.ts";
import {
  AGENT_LIFETIME_MS,
  type Ca,
  createCa,
  issueCertificate,
  issueServerCertificate,
  loadCa,
} from "./ca.ts";
import { type KeyedCertificate, newKeyPair, privateKeyToPem } from "./certificates.ts";
import { createAgentCsr, signAgentCsr } from "./csr.ts";
import { type AgentListener, type AgentListenerOptions, createAgentListener } from "./listener.ts";

/** A cluster's certificates, for tests. */
export type TestCluster = {
  readonly clusterId: ClusterId;
  readonly ca: Ca;
  readonly caPem: string;
  readonly server: KeyedCertificate;
  agent(agentId?: AgentId): Promise<KeyedCertificate & { agentId: AgentId }>;
  /** An agent's certificate that ended an hour ago. */
  expiredAgent(): Promise<KeyedCertificate>;
};

export async function testCluster(clusterId = newId<ClusterId>(systemClock)): Promise<TestCluster> {
  const clock = systemClock;
  const ca = await loadCa(await createCa(clock));
  const server = await issueServerCertificate(ca, { clusterId, hosts: ["127.0.0.1", "localhost"], clock });
  return {
    clusterId,
    ca,
    caPem: ca.certPem,
    server,
    agent: async (agentId = newId<AgentId>(clock)) => {
      const { keyPem, csrPem } = await createAgentCsr();
      return { agentId, keyPem, certPem: await signAgentCsr(ca, csrPem, { clusterId, agentId, clock }) };
    },
    expiredAgent: async () => {
      const keys = await newKeyPair();
      const past = { ...clock, wall: () => clock.wall() - AGENT_LIFETIME_MS - 3_600_000 };
      const certPem = await issueCertificate(ca, {
        identity: { role: "agent", clusterId, agentId: newId<AgentId>(clock) },
        publicKey: keys.publicKey,
        hosts: [],
        lifetimeMs: AGENT_LIFETIME_MS,
        clock: past,
      });
      return { certPem, keyPem: await privateKeyToPem(keys.privateKey) };
    },
  };
}

/** Two ends of one TLS connection over loopback. */
export async function tlsPair(): Promise<{ a: TLSSocket; b: TLSSocket; close(): void }> {
  const cluster = await testCluster();
  const accepted = Promise.withResolvers<TLSSocket>();
  const server = createServer({ cert: cluster.server.certPem, key: cluster.server.keyPem }, accepted.resolve);
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const address = server.address();
  const port = address !== null && typeof address === "object" ? address.port : 0;
  const a = connect({ host: "127.0.0.1", port, ca: cluster.caPem });
  const b = await accepted.promise;
  const close = () => {
    a.destroy();
    b.destroy();
    server.close();
  };
  return { a, b, close };
}

/** Resolves when the condition holds; the test's own time limit ends a wait in vain. */
export async function until(condition: () => boolean): Promise<void> {
  while (!condition()) await new Promise((resolve) => setTimeout(resolve, 2));
}

export const silentLog = createLogger({ level: "silent", name: "test" });

/** A listener of the cluster on a free port of loopback; what a test does not name refuses or drops. */
export function testListener(
  cluster: TestCluster,
  options: Partial<AgentListenerOptions> = {},
): Promise<AgentListener> {
  return createAgentListener({
    clusterId: cluster.clusterId,
    caPem: cluster.caPem,
    serverCert: cluster.server,
    host: "127.0.0.1",
    port: 0,
    clock: systemClock,
    log: silentLog,
    onJoin: () => Promise.reject(new BerthError("no-joins", "Nobody joins here.")),
    onLink: (link) => link.close(),
    onData: (_, stream) => stream.destroy(),
    isRevoked: () => false,
    ...options,
  });
}
