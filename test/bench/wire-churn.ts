// Churns the port of the agents over loopback and prints the memory of the process, which holds both ends.
// Run: bun test/bench/wire-churn.ts [rounds]; each round is 100 links, 100 data streams and 100 broken handshakes.
import { randomUUID } from "node:crypto";
import { connect } from "node:net";
import { systemClock } from "../../src/kit/clock.ts";
import { createDataBroker } from "../../src/wire/data-broker.ts";
import { createDataDialer } from "../../src/wire/data-dialer.ts";
import { openLink } from "../../src/wire/link-client.ts";
import { silentLog, testCluster, testListener, until } from "../../src/wire/test-kit.ts";

const rounds = Number(process.argv[2] ?? 10);
const cluster = await testCluster();
const { agentId, certPem, keyPem } = await cluster.agent();
const broker = createDataBroker({ clock: systemClock, log: silentLog });
const listener = await testListener(cluster, {
  onLink: async (link) => {
    for await (const _ of link.messages);
  },
  onData: broker.accept,
});
const base = { host: "127.0.0.1", port: listener.port };
const own = { clusterId: cluster.clusterId, caPem: cluster.caPem, certPem, keyPem };
const dialer = createDataDialer({ ...base, credentials: () => own, clock: systemClock, log: silentLog });

async function oneLink(cut: boolean): Promise<void> {
  const link = await openLink({ ...base, ...own, clock: systemClock });
  await link.send({ body: { $case: "heartbeat", value: { wallMs: 1 } } });
  if (cut) listener.cut(agentId);
  else link.close();
  await link.closed;
}

async function oneStream(): Promise<void> {
  const streamId = randomUUID();
  const [manager, node] = await Promise.all([broker.expect(agentId, streamId), dialer.open(streamId)]);
  await Promise.all([manager.write(new Uint8Array(65536)), node.write(new Uint8Array(65536))]);
  for await (const _ of node) break;
  manager.destroy();
  await node.closed;
}

function oneBroken(i: number): Promise<void> {
  return new Promise((resolve) => {
    const socket = connect(listener.port, "127.0.0.1", () => {
      socket.write(i % 2 === 0 ? "GET / HTTP/1.1\r\n\r\n" : Buffer.from([22, 3, 1, 0, 5, 1]));
      if (i % 2 === 1) setTimeout(() => socket.destroy(), 1);
    });
    socket.on("data", () => {});
    socket.on("error", () => {});
    socket.on("close", () => resolve());
  });
}

for (let round = 1; round <= rounds; round++) {
  for (let i = 0; i < 100; i++) await oneLink(i % 2 === 0);
  for (let i = 0; i < 100; i++) await oneStream();
  for (let i = 0; i < 100; i++) await oneBroken(i);
  await until(() => listener.open() === 0);
  Bun.gc(true);
  const mebibytes = Math.round(process.memoryUsage().rss / 1024 / 1024);
  console.log(`round ${round}: ${round * 300} connections, RSS ${mebibytes} MiB`);
}
dialer.close();
await listener.close();
