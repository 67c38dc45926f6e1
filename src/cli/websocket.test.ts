import { afterEach, describe, expect, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { selfSigned } from "./certificates.testing.ts";
import { type FakeManager, fakeManager, type SocketHandler } from "./testing.ts";
import type { Trust } from "./tls.ts";
import { openWebSocket, type WebSocketLink } from "./websocket.ts";

const PATH = "/api/v1/sessions/s/exec";
let manager: FakeManager | undefined;
afterEach(() => manager?.stop());

const echo: SocketHandler = {
  message: (socket, bytes) => {
    socket.send(bytes);
  },
};

async function echoed(link: WebSocketLink, bytes: Uint8Array): Promise<Uint8Array> {
  await link.send(bytes);
  for await (const message of link.messages()) {
    link.close();
    return message;
  }
  throw new Error("no message");
}

const payload = new Uint8Array(200_000).map((_, index) => index % 253);

describe("a WebSocket", () => {
  test("carries messages over a plain connection, with our token", async () => {
    manager = fakeManager({}, { sockets: { "sessions.exec": echo } });
    const target = { url: manager.url, trust: { kind: "system" as const } };
    const link = await openWebSocket({ target, path: PATH, headers: { authorization: "Bearer t" } });
    expect(Buffer.from(await echoed(link, payload)).equals(Buffer.from(payload))).toBe(true);
    expect(manager.calls[0]?.headers.get("authorization")).toBe("Bearer t");
  });

  test("carries messages over the local socket", async () => {
    const dir = mkdtempSync(join(tmpdir(), "berth-ws-"));
    try {
      const unix = join(dir, "admin.sock");
      manager = fakeManager({}, { sockets: { "sessions.exec": echo }, unix });
      const target = { url: "http://localhost", socket: unix, trust: { kind: "system" as const } };
      const link = await openWebSocket({ target, path: PATH, headers: {} });
      expect(await echoed(link, new Uint8Array([1, 2]))).toEqual(Buffer.from([1, 2]));
    } finally {
      rmSync(dir, { recursive: true });
    }
  });

  test("trusts the pinned certificate and no other", async () => {
    const pair = await selfSigned();
    const other = await selfSigned();
    manager = fakeManager({}, { sockets: { "sessions.exec": echo }, tls: pair });
    const { url } = manager;
    const open = (trust: Trust) => openWebSocket({ target: { url, trust }, path: PATH, headers: {} });
    const link = await open({ kind: "pinned", pem: pair.cert });
    expect(await echoed(link, new Uint8Array([7]))).toEqual(Buffer.from([7]));
    const changed = await open({ kind: "pinned", pem: other.cert }).catch((e: unknown) => e);
    expect(changed).toMatchObject({ code: "certificate-changed" });
    const unknown = await open({ kind: "system" }).catch((e: unknown) => e);
    expect(unknown).toMatchObject({ code: "certificate-not-trusted" });
    expect(manager.calls).toHaveLength(1);
  });

  test("lets a fast sender wait for a slow reader", async () => {
    const total = 64;
    const chunk = new Uint8Array(1024 * 1024);
    let sent = 0;
    const pour: SocketHandler = {
      message: async (socket) => {
        while (sent < total) {
          // Negative: the message was taken into the buffer and waits.
          if (socket.getBufferedAmount() > 4 * chunk.length) await Bun.sleep(1);
          else {
            socket.send(chunk);
            sent++;
          }
        }
      },
    };
    manager = fakeManager({}, { sockets: { "sessions.exec": pour } });
    const target = { url: manager.url, trust: { kind: "system" as const } };
    const link = await openWebSocket({ target, path: PATH, headers: {} });
    await link.send(new Uint8Array([1]));
    const messages = link.messages()[Symbol.asyncIterator]();
    await messages.next();
    // Nobody reads; the sender comes to a stop far from its end.
    let before = -1;
    while (before !== sent) {
      before = sent;
      await Bun.sleep(100);
    }
    expect(sent).toBeLessThan(total / 2);
    let received = 1;
    while (received < total && !(await messages.next()).done) received++;
    expect(received).toBe(total);
    link.close();
  });
});
