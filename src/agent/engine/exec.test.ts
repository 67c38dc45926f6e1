import { expect, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { systemClock } from "../../kit/clock.ts";
import { createEngineClient } from "./client.ts";
import { readRefusal, startExec } from "./exec.ts";

test("a start that the engine refused is told as a shell would", () => {
  const refused = (why: string) =>
    readRefusal(`OCI runtime exec failed: exec failed: ${why}: unknown\r\n`, "foo", "/data");
  expect(refused('exec: "foo": executable file not found in $PATH')).toEqual({
    exitCode: 127,
    words: "foo: command not found",
  });
  expect(refused('exec: "foo": permission denied')).toEqual({
    exitCode: 126,
    words: "foo: permission denied",
  });
  expect(refused('exec: "foo/x": stat foo/x: not a directory')?.words).toBe("foo: not a directory");
  expect(refused("something else")?.exitCode).toBe(126);
  expect(readRefusal("hello", "foo", "")).toBeUndefined();
});

test("a folder that cannot be entered is not told as a missing command", () => {
  const refused = (why: string) =>
    readRefusal(
      `OCI runtime exec failed: exec failed: unable to start: chdir to cwd ("/data") set in config.json failed: ${why}\r\n`,
      "foo",
      "/data",
    );
  const told = (why: string) => ({ exitCode: 126, words: `foo: cannot run in /data: ${why}` }) as const;
  expect(refused("no such file or directory: unknown")).toEqual(
    told("there is no such folder in the session"),
  );
  expect(refused("not a directory: unknown: Are you trying")).toEqual(told("it is not a folder"));
  expect(refused("permission denied: unknown")).toEqual(told("it may not be entered"));
  expect(refused("too many levels of symbolic links")).toEqual(told("it cannot be entered"));
});

/**
 * An engine that runs one command, which ends at once. It starts it only after it was asked for a size, and answers
 * that with `early`, the status of a resize before the start.
 */
async function engineOfOne(early: number) {
  const dir = mkdtempSync(join(tmpdir(), "berth-exec-"));
  const asked: string[] = [];
  const bodies: string[] = [];
  const sized = Promise.withResolvers<void>();
  let started = false;
  const server = createServer(async (request, response) => {
    const path = (request.url ?? "").replace(/^\/v1\.\d+/, "");
    if (path !== "/version" && path !== "/exec/e1/json") asked.push(path);
    let body = "";
    for await (const chunk of request) body += String(chunk);
    bodies.push(body);
    const json = (status: number, value: unknown) =>
      response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(value));
    if (path === "/version")
      json(200, { Version: "24", ApiVersion: "1.43", MinAPIVersion: "1.12", Arch: "amd64" });
    else if (path === "/containers/c1/exec") json(201, { Id: "e1" });
    else if (path.startsWith("/exec/e1/resize")) {
      json(started ? 200 : early, {});
      sized.resolve();
    } else json(200, { Running: false, Pid: 0, ExitCode: 0 });
  });
  server.on("upgrade", async (_, socket) => {
    await sized.promise;
    started = true;
    socket.end("HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n");
  });
  const socketPath = join(dir, "docker.sock");
  await new Promise<void>((resolve) => server.listen(socketPath, resolve));
  const close = () => {
    server.closeAllConnections();
    server.close();
    rmSync(dir, { recursive: true, force: true });
  };
  return { client: createEngineClient({ socketPath, clock: systemClock }), asked, bodies, close };
}

const terminal = {
  containerId: "c1",
  argv: ["bash"],
  tty: true,
  cols: 100,
  rows: 40,
  environment: {},
  workdir: "",
  stdin: false,
};
const RESIZE = "/exec/e1/resize?h=40&w=100";

test("a terminal's size is told with the command and asked for before its start", async () => {
  const { client, asked, bodies, close } = await engineOfOne(200);
  try {
    const handle = await startExec(client, systemClock, terminal);
    for await (const _ of handle.output);
    expect(await handle.exited).toBe(0);
    await handle.resize(120, 50);
    expect(bodies.find((body) => body.includes("bash"))).toContain('"ConsoleSize":[40,100]');
    expect(asked.filter((path) => path.includes("resize"))).toEqual([RESIZE, "/exec/e1/resize?h=50&w=120"]);
  } finally {
    close();
  }
});

test("an engine that refuses a size before the start is asked again", async () => {
  const { client, asked, close } = await engineOfOne(500);
  try {
    const handle = await startExec(client, systemClock, terminal);
    await handle.resize(120, 50);
    expect(asked.filter((path) => path.includes("resize"))).toEqual([
      RESIZE,
      RESIZE,
      "/exec/e1/resize?h=50&w=120",
    ]);
  } finally {
    close();
  }
});
