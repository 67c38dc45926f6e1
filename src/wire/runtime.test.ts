import { expect, test } from "bun:test";
import { type ConnectionOptions, connect, createServer } from "node:tls";
import type { KeyedCertificate } from "./certificates.ts";
import { testCluster } from "./test-kit.ts";

// The listener stands on this: the runtime's own verdict on a peer whose handshake it does not reject.
test("the runtime tells a good certificate from a foreign, an expired and a missing one", async () => {
  const cluster = await testCluster();
  const foreign = await testCluster(cluster.clusterId);
  const verdicts: unknown[] = [];
  const server = createServer(
    {
      cert: cluster.server.certPem,
      key: cluster.server.keyPem,
      ca: cluster.caPem,
      requestCert: true,
      rejectUnauthorized: false,
    },
    (socket) => {
      verdicts.push([socket.authorized, socket.getPeerCertificate(true).raw !== undefined]);
      socket.end("seen");
    },
  );
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const address = server.address();
  const port = address !== null && typeof address === "object" ? address.port : 0;
  const visit = (own: ConnectionOptions) =>
    new Promise((resolve, reject) => {
      const socket = connect({ host: "127.0.0.1", port, ca: cluster.caPem, ...own });
      socket.on("data", () => {});
      socket.on("error", reject);
      socket.on("close", resolve);
    });
  const as = ({ certPem, keyPem }: KeyedCertificate) => ({ cert: certPem, key: keyPem });
  await visit(as(await cluster.agent()));
  await visit(as(await foreign.agent()));
  await visit(as(await cluster.expiredAgent()));
  await visit({});
  server.close();
  expect(verdicts).toEqual([
    [true, true],
    [false, true],
    [false, true],
    [false, false],
  ]);
});
