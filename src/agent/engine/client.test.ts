import { afterEach, describe, expect, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { createServer, type Server } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { manualClock } from "../../kit/clock.ts";
import { CALL_MS, createEngineClient, engineError, hasStatus, negotiate } from "./client.ts";

describe("negotiate", () => {
  test("takes the newest version that both know", () => {
    expect(negotiate("1.12", "1.41")).toBe("v1.41");
    expect(negotiate("1.24", "1.99")).toBe("v1.47");
    expect(negotiate("1.48", "1.52")).toBe("v1.48");
  });

  test("refuses an engine that is too old", () => {
    expect(() => negotiate("1.12", "1.40")).toThrow("Docker 20.10");
    expect(() => negotiate("", "")).toThrow("Docker 20.10");
  });
});

describe("engineError", () => {
  test("tells a full disk and an unreachable engine apart from a refusal", () => {
    const refused = (status: number, message: string) =>
      engineError(Object.assign(new Error("x"), { statusCode: status, json: { message } }), "test");
    expect(refused(500, "write: no space left on device").code).toBe("disk-full");
    expect(refused(404, "No such container: x").code).toBe("engine-refused");
    expect(hasStatus(refused(404, "No such container: x"), 404)).toBe(true);
    expect(engineError(Object.assign(new Error("x"), { code: "ECONNREFUSED" }), "test").code).toBe(
      "engine-unreachable",
    );
  });
});

describe("a call", () => {
  let server: Server | undefined;
  let dir = "";

  afterEach(() => {
    server?.closeAllConnections();
    server?.close();
    if (dir !== "") rmSync(dir, { recursive: true, force: true });
  });

  const VERSION = JSON.stringify({
    Version: "20.10.24",
    ApiVersion: "1.41",
    MinAPIVersion: "1.12",
    Arch: "amd64",
  });

  /** An engine that tells its version and answers nothing else. */
  async function silentEngine(): Promise<{ socketPath: string; asked: Promise<string> }> {
    dir = mkdtempSync(join(tmpdir(), "berth-client-"));
    const socketPath = join(dir, "docker.sock");
    const asked = Promise.withResolvers<string>();
    server = createServer((request, response) => {
      if (request.url?.endsWith("/version"))
        response.setHeader("Content-Type", "application/json").end(VERSION);
      else asked.resolve(request.url ?? "");
    });
    await new Promise<void>((resolve) => server?.listen(socketPath, resolve));
    return { socketPath, asked: asked.promise };
  }

  test("is given up when the engine does not answer", async () => {
    const clock = manualClock();
    const { socketPath, asked } = await silentEngine();
    const client = createEngineClient({ socketPath, clock });
    const call = client.call("list containers", (docker, abortSignal) =>
      docker.listContainers({ abortSignal }),
    );
    call.catch(() => {});
    expect(await asked).toStartWith("/v1.41/containers/json");
    clock.advance(CALL_MS);
    await expect(call).rejects.toMatchObject({ code: "engine-unreachable" });
  });

  test("fails at once when nobody listens", async () => {
    const client = createEngineClient({ socketPath: "/nonexistent/docker.sock", clock: manualClock() });
    await expect(client.version()).rejects.toMatchObject({ code: "engine-unreachable" });
  });
});
