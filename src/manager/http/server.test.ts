import { expect, test } from "bun:test";
import { connect as connectPlain } from "node:net";
import { connect as connectTls } from "node:tls";
import { systemClock } from "../../kit/clock.ts";
import { silentLogger } from "../../kit/log.ts";
import { selfSignedHttps } from "../../wire/ca.ts";
import { startHttpServer } from "./server.ts";

/** Tells of each request how it was taken, and of its body. */
async function serve(secure: boolean) {
  const tls = secure ? await selfSignedHttps({ hosts: ["127.0.0.1"], clock: systemClock }) : undefined;
  const server = await startHttpServer({
    api: {
      request: (request, response) => {
        let body = "";
        request.on("data", (chunk) => {
          body += chunk;
        });
        request.on("end", () => response.end(`answered ${request.method} ${body}`));
      },
      upgrade: (_request, socket) => socket.end("HTTP/1.1 400 Bad Request\r\n\r\nasked to upgrade"),
    },
    clock: systemClock,
    log: silentLogger,
    listen: { host: "127.0.0.1", port: 0 },
    tls,
  });
  const ask = (text: string): Promise<string> => {
    const { port } = server;
    const socket = secure
      ? connectTls({ port, host: "127.0.0.1", rejectUnauthorized: false })
      : connectPlain(port, "127.0.0.1");
    return new Promise((resolve, reject) => {
      let answer = "";
      socket.on("data", (chunk: Buffer) => {
        answer += chunk;
      });
      socket.on("error", reject);
      socket.on("close", () => resolve(answer));
      socket.write(text);
    });
  };
  return { server, ask };
}

const H2C = "connection: upgrade, http2-settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABkAAQAAP__\r\n";

test.each([
  ["plain", false],
  ["TLS", true],
])("an offer of another protocol is ignored, of a WebSocket it is not (%s)", async (_name, secure) => {
  const { server, ask } = await serve(secure);
  const get = "GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
  const offered = await ask(`POST / HTTP/1.1\r\nhost: x\r\n${H2C}content-length: 4\r\n\r\nbody${get}`);
  expect(offered).toContain("answered POST body");
  expect(offered).toContain("answered GET");
  expect(offered).not.toContain("asked to upgrade");
  for (const protocol of ["websocket", "WebSocket"]) {
    const upgrade = `GET / HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: ${protocol}\r\n\r\n`;
    expect(await ask(upgrade)).toContain("asked to upgrade");
  }
  await server.close(100);
});
