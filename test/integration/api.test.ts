import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { connect } from "node:net";
import { ALL_ROUTES, api as contract } from "../../src/contract/api.ts";
import { systemClock } from "../../src/kit/clock.ts";
import { BerthError } from "../../src/kit/errors.ts";
import { type GroupId, newId, type SessionId } from "../../src/kit/ids.ts";
import { ownerOf } from "../../src/manager/accounts/principal.ts";
import { handle, handleStream, handleWebSocket } from "../../src/manager/http/handle.ts";
import { openApi } from "../../src/manager/http/openapi.ts";
import { readProblem, STUB, startTestApi, type TestApi } from "../../src/manager/http/testing.ts";
import { selfSignedHttps } from "../../src/wire/ca.ts";

let api: TestApi;
let user: string;
let admin: string;
let creates = 0;
let streamed = 0;
let sent = 0;
let streamEnded = Promise.withResolvers<void>();
let held = Promise.withResolvers<AbortSignal>();
let hold: Promise<void> = Promise.resolve();

const MIB = 1024 * 1024;
const GROUP = {
  id: newId<GroupId>(systemClock),
  description: "",
  active: true,
  public: true,
  isDefault: false,
  scheduler: "fifo" as const,
  placement: "dispersed" as const,
  allowedTypes: ["batch" as const],
  pendingTimeoutMs: null,
  deadlines: { SCHEDULED: null, PREPARING: null, PULLING: null, CREATING: null, TERMINATING: null },
  agents: 0,
  capacity: { cpu: 0, mem: 0 },
  used: { cpu: 0, mem: 0 },
  pending: 0,
  createdAt: new Date(0).toISOString(),
};

beforeAll(async () => {
  api = await startTestApi({
    routes: () => [
      handle(contract.images.add, async ({ body }) => {
        creates++;
        await hold;
        return {
          id: newId<SessionId>(systemClock),
          reference: body.reference,
          title: "",
          description: "",
          kind: "oci" as const,
          catalogue: false,
          sizeBytes: null,
          arch: null,
          digest: null,
          minimum: { cpu: 0, mem: 0 },
          servicePorts: [],
          labels: {},
          pulled: false,
          nodes: [],
          createdAt: new Date(0).toISOString(),
        };
      }),
      handle(contract.images.get, async ({ params, signal, setHeader }) => {
        if (params.image !== "held") throw new BerthError("not-found", `no image ${params.image}`);
        setHeader("x-held", "yes");
        held.resolve(signal);
        await hold;
        throw new BerthError("not-found", "too late");
      }),
      handleStream(contract.sessions.logs, async ({ alive }) => ({
        body: (async function* () {
          try {
            for (streamed = 0; !alive.aborted && streamed < 150; streamed++)
              yield Buffer.alloc(MIB, streamed);
          } finally {
            streamEnded.resolve();
          }
        })(),
      })),
      handleWebSocket(contract.sessions.exec, async ({ params, principal }) => {
        ownerOf(principal);
        if (params.session !== "echo") await Promise.reject(new Error("a fault of ours"));
        return async (socket) => {
          for await (const message of socket.messages) await socket.send(message);
        };
      }),
      handleWebSocket(contract.sessions.attach, async ({ alive }) => async (socket) => {
        for (sent = 0; sent < 200 && !alive.aborted; sent++) await socket.send(new Uint8Array(MIB));
        await socket.closed;
      }),
    ],
  });
  user = (await api.newUser("user")).secret;
  admin = (await api.newUser("admin")).secret;
});
afterAll(() => api.close());

const post = (path: string, json: unknown, token = user) => api.call("POST", path, { token, json });

describe("bad input gets a clear refusal", () => {
  test.each([
    ["malformed JSON", { body: "{", headers: { "content-type": "application/json" } }, 400, "invalid-json"],
    [
      "malformed UTF-8",
      { body: new Uint8Array([0x22, 0xff, 0x22]), headers: { "content-type": "application/json" } },
      400,
      "invalid-utf8",
    ],
    [
      "no JSON at all",
      { body: "a=b", headers: { "content-type": "text/plain" } },
      415,
      "unsupported-media-type",
    ],
    [
      "a body over the limit",
      { body: new Uint8Array(MIB + 1), headers: { "content-type": "application/json" } },
      413,
      "body-too-large",
    ],
    ["a list instead of an object", { json: [] }, 400, "invalid-request"],
  ])("%s", async (_name, options, status, code) => {
    const response = await api.call("POST", "/api/v1/sessions", { token: user, ...options });
    expect(response.status).toBe(status);
    expect(await readProblem(response)).toMatchObject({ code, requestId: expect.any(String) });
  });

  test.each([
    [{ colour: "red" }, "colour", "colour is not known here."],
    [{ slots: { gpu: 1 } }, "slots.gpu", "slots.gpu is not known here."],
    [{ slots: { mem: "1.1" } }, "slots.mem", "1.1"],
    [{ slots: { mem: "-1g" } }, "slots.mem", "-1g"],
    [{ slots: { cpu: "x" } }, "slots.cpu", "x"],
    [{ slots: { mem: true } }, "slots.mem", "slots.mem"],
    [{ name: "abc" }, "name", "4 to 64"],
    [{ name: "a".repeat(65) }, "name", "4 to 64"],
    [{ priority: 101 }, "priority", "priority must be at most 100."],
    [{ priority: "high" }, "priority", "priority must be a number."],
    [{ preopenPorts: [80] }, "preopenPorts.0", "1024 and 65535"],
    [{ preopenPorts: [70000] }, "preopenPorts.0", "1024 and 65535"],
    [{ count: 0 }, "count", "count must be at least 1."],
    [{ type: "party" }, "type", "type must be one of: interactive, batch"],
    [{ startsAt: "tomorrow" }, "startsAt", "startsAt"],
    [{ environment: ["A=1"] }, "environment", "environment must be an object."],
  ])("%p names %s", async (json, field, words) => {
    const response = await post("/api/v1/sessions", json);
    expect(response.status).toBe(400);
    const refusal = await readProblem(response);
    expect(refusal).toMatchObject({ code: "invalid-request", field });
    expect(refusal.detail).toContain(words);
  });

  test("all faults are told, not only the first", async () => {
    const refusal = await readProblem(
      await post("/api/v1/sessions", { name: "abc", priority: 101, colour: 1 }),
    );
    expect(refusal.errors?.map(({ field }) => field).sort()).toEqual(["colour", "name", "priority"]);
  });

  test("what is missing is named", async () => {
    const refusal = await readProblem(await post("/api/v1/images", {}, admin));
    expect(refusal).toMatchObject({ field: "reference", detail: "reference is needed." });
  });

  test.each([
    ["/api/v1/sessions?limit=0", "limit"],
    ["/api/v1/sessions?limit=many", "limit"],
    ["/api/v1/sessions?limit=0x10", "limit"],
    ["/api/v1/sessions/abcd/logs?tail=1e2", "tail"],
    ["/api/v1/events?after=", "after"],
    ["/api/v1/sessions?nonsense=1", "nonsense"],
    ["/api/v1/sessions?limit=1&limit=2", "limit"],
    ["/api/v1/sessions/%ff", "session"],
  ])("%s", async (path, field) => {
    const response = await api.call("GET", path, { token: user });
    expect(response.status).toBe(400);
    expect((await readProblem(response)).field).toBe(field);
  });

  test.each([
    "x",
    Buffer.from("[1]").toString("base64url"),
    Buffer.from('["other",[1,"x"]]').toString("base64url"),
  ])("the cursor %s", async (cursor) => {
    const response = await api.call("GET", `/api/v1/users?cursor=${cursor}`, { token: admin });
    expect(await readProblem(response)).toMatchObject({ code: "invalid-cursor", status: 400 });
  });
});

describe("answers", () => {
  test("an unknown path is 404 and a wrong method 405 with Allow", async () => {
    const missing = await api.call("GET", "/api/v1/nothing", { token: user });
    expect(await readProblem(missing)).toMatchObject({ status: 404, code: "not-found" });
    const wrong = await api.call("PUT", "/api/v1/sessions", { token: user });
    expect(wrong.headers.get("allow")).toBe("GET, HEAD, POST");
    expect(await readProblem(wrong)).toMatchObject({ status: 405, code: "method-not-allowed" });
  });

  test("an encoded image reference is one parameter, decoded once", async () => {
    for (const reference of ["registry.lab/python:3.13", "a%2Fb", "ü/ö:1"]) {
      const path = `/api/v1/images/${encodeURIComponent(reference)}`;
      const { detail } = await readProblem(await api.call("GET", path, { token: user }));
      expect(detail).toBe(`no image ${reference}`);
    }
    const slash = await api.call("GET", "/api/v1/images/registry.lab/python", { token: user });
    expect((await readProblem(slash)).detail).toStartWith("There is nothing at ");
  });

  test("HEAD answers as GET, without the body", async () => {
    const response = await api.call("HEAD", "/healthz");
    expect([response.status, await response.text()]).toEqual([200, ""]);
  });

  test("a good request id is kept, a bad one replaced", async () => {
    const good = await api.call("GET", "/healthz", { headers: { "x-request-id": "build-42.retry-1" } });
    expect(good.headers.get("x-request-id")).toBe("build-42.retry-1");
    const bad = await api.call("GET", "/healthz", { headers: { "x-request-id": "no spaces allowed" } });
    expect(bad.headers.get("x-request-id")).toMatch(/^[0-9a-f-]{36}$/);
  });

  test("headers keep an answer from being framed, sniffed or stored", async () => {
    const { headers } = await api.call("GET", "/api/v1/version");
    expect(headers.get("content-security-policy")).toContain("frame-ancestors 'none'");
    expect(headers.get("x-content-type-options")).toBe("nosniff");
    expect(headers.get("cache-control")).toBe("no-store");
    expect(headers.get("referrer-policy")).toBe("no-referrer");
  });

  test("a fault of ours is 500 with the request id and tells nothing of the inside", async () => {
    const broken = await startTestApi({
      routes: () => [
        handle(contract.sessions.get, async () => {
          throw new Error("secret inside at /root/source.ts");
        }),
        handle(contract.sessions.history, async () => ({ items: [{ seq: "x" }] }) as never),
      ],
    });
    const { secret } = await broken.newUser("user");
    for (const path of ["/api/v1/sessions/abcd", "/api/v1/sessions/abcd/history"]) {
      const response = await broken.call("GET", path, { token: secret });
      const text = await response.clone().text();
      expect(await readProblem(response)).toMatchObject({ status: 500, code: "internal" });
      expect(text).not.toMatch(/secret inside|\.ts|at /);
    }
    await broken.close();
  });

  test("the front page and the API reader load without inline scripts", async () => {
    for (const path of ["/", "/api/docs"]) {
      const page = await api.call("GET", path);
      expect(page.headers.get("content-type")).toContain("text/html");
      expect(page.headers.get("content-security-policy")).toContain("script-src 'self'");
      const html = await page.text();
      expect(html).not.toMatch(/<script(?![^>]*\ssrc=)/);
      for (const [, target] of html.matchAll(/(?:src|href)="(\/[^"]*)"/g)) {
        expect([target, (await api.call("GET", target ?? "")).status]).toEqual([target, 200]);
      }
    }
  });

  test("metrics tell of requests by route", async () => {
    await api.call("GET", "/healthz");
    const text = await (await api.call("GET", "/metrics", { token: admin })).text();
    expect(text).toMatch(/berth_http_requests_total\{route="system\.health",method="GET",status="200"\} \d+/);
    expect(text).toContain("process_resident_memory_bytes");
  });
});

describe("OpenAPI", () => {
  const description = openApi(ALL_ROUTES);

  test("is served, has every route, and refers only to what it holds", async () => {
    const served = await (await api.call("GET", "/api/v1/openapi.json")).json();
    expect(served).toEqual(JSON.parse(JSON.stringify(description)));
    const operations = Object.entries(description.paths as Record<string, Record<string, unknown>>).flatMap(
      ([path, item]) => Object.keys(item).map((method) => `${method.toUpperCase()} ${path}`),
    );
    expect(operations.sort()).toEqual(ALL_ROUTES.map(({ method, path }) => `${method} ${path}`).sort());
    const references = [...JSON.stringify(description).matchAll(/"\$ref":"([^"]+)"/g)].map(([, ref]) => ref);
    expect([...new Set(references)]).toEqual(["#/components/schemas/Problem"]);
  });

  test("names each path parameter and every operation once", () => {
    const ids = new Set<string>();
    for (const route of ALL_ROUTES) {
      const names = [...route.path.matchAll(/\{(\w+)\}/g)].map(([, name]) => name);
      const paths = description.paths as Record<
        string,
        Record<string, { parameters?: { in: string; name: string }[] }>
      >;
      const operation = paths[route.path]?.[route.method.toLowerCase()];
      const told = operation?.parameters?.filter((p) => p.in === "path").map((p) => p.name) ?? [];
      expect([route.id, told]).toEqual([route.id, names as string[]]);
      ids.add(route.id);
    }
    expect(ids.size).toBe(ALL_ROUTES.length);
  });
});

describe("idempotency keys", () => {
  const add = (key: string, json: unknown = { reference: "python:3.13" }, token = admin) =>
    api.call("POST", "/api/v1/images", { token, json, headers: { "idempotency-key": key } });

  test("the same request is carried out once and its answer repeated", async () => {
    const before = creates;
    const first = await add("k1");
    const again = await add("k1");
    expect([first.status, again.status, creates - before]).toEqual([201, 201, 1]);
    expect(again.headers.get("idempotency-replayed")).toBe("true");
    expect(await again.json()).toEqual(await first.json());
  });

  test("another content, and another key, and a day later", async () => {
    const before = creates;
    await add("k2");
    expect(await readProblem(await add("k2", { reference: "other" }))).toMatchObject({
      status: 409,
      code: "idempotency-mismatch",
    });
    await add("k3");
    api.clock.advance(24 * 3_600_000);
    await add("k2", { reference: "other" });
    expect(creates - before).toBe(3);
  });

  test("while the first is under way the second is refused", async () => {
    const gate = Promise.withResolvers<void>();
    hold = gate.promise;
    const before = creates;
    const first = add("k4");
    while (creates === before) await Bun.sleep(1);
    expect(await readProblem(await add("k4"))).toMatchObject({ status: 409, code: "idempotency-in-flight" });
    gate.resolve();
    expect((await first).status).toBe(201);
    hold = Promise.resolve();
  });

  test("a refused request may be tried again", async () => {
    expect((await add("k5", { nonsense: 1 })).status).toBe(400);
    expect((await add("k5")).status).toBe(201);
  });

  test("a kept answer holds no password", async () => {
    const create = () =>
      api.call("POST", "/api/v1/users", {
        token: admin,
        json: { email: "once@lab.test" },
        headers: { "idempotency-key": "k6" },
      });
    const first = await (await create()).json();
    const again = await (await create()).json();
    expect(first).toMatchObject({ password: expect.stringMatching(/^\S{20,}$/) });
    expect(again).toMatchObject({ user: { email: "once@lab.test" }, password: null });
  });
});

describe("a create that is one transaction with its kept answer", () => {
  test("is carried out once, also for two at once, and leaves nothing when it fails", async () => {
    let fails = true;
    const whole = await startTestApi({
      routes: ({ store }) => [
        handle(
          contract.cluster.createGroup,
          async ({ body }) => {
            await store.write((tx) =>
              tx.insertInto("meta").values({ key: body.name, value: "made" }).execute(),
            );
            if (fails) throw new Error("cut in the middle");
            return { ...GROUP, name: body.name };
          },
          { whole: true },
        ),
      ],
    });
    const { secret } = await whole.newUser("admin");
    const create = (name: string, key: string) =>
      whole.call("POST", "/api/v1/groups", {
        token: secret,
        json: { name },
        headers: { "idempotency-key": key },
      });
    const made = () =>
      whole.store.read((db) => db.selectFrom("meta").select("key").where("value", "=", "made").execute());
    expect((await create("lab", "k")).status).toBe(500);
    expect(await made()).toEqual([]);
    fails = false;
    const both = await Promise.all([create("lab", "k"), create("lab", "k")]);
    expect(both.map(({ status }) => status)).toEqual([201, 201]);
    expect(await made()).toEqual([{ key: "lab" }]);
    expect((await readProblem(await create("other", "k"))).code).toBe("idempotency-mismatch");
    await whole.close();
  });
});

describe("streams", () => {
  test("are made only as fast as the client reads, and end when it leaves", async () => {
    streamEnded = Promise.withResolvers();
    const { port } = new URL(api.url);
    const socket = connect(Number(port), "127.0.0.1");
    socket.pause();
    socket.write(
      `GET /api/v1/sessions/abcd/logs HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${user}\r\n\r\n`,
    );
    let seen = -1;
    while (seen !== streamed || streamed === 0) {
      seen = streamed;
      await Bun.sleep(100);
    }
    expect(streamed).toBeLessThan(100);
    socket.destroy();
    await streamEnded.promise;
    expect(streamed).toBeLessThan(100);
  });

  test("are whole for a client that reads", async () => {
    streamEnded = Promise.withResolvers();
    const response = await api.call("GET", "/api/v1/sessions/abcd/logs", { token: user });
    expect((await response.arrayBuffer()).byteLength).toBe(150 * MIB);
  });
});

describe("WebSockets", () => {
  const open = (session: string, headers: Record<string, string>) =>
    new WebSocket(`${api.url.replace("http", "ws")}/api/v1/sessions/${session}/exec`, { headers } as never);

  test("echo binary messages in order", async () => {
    const socket = open("echo", { authorization: `Bearer ${user}` });
    socket.binaryType = "arraybuffer";
    const got: number[] = [];
    const done = Promise.withResolvers<void>();
    socket.onopen = () => {
      for (let i = 0; i < 50; i++) socket.send(new Uint8Array(60_000).fill(i));
    };
    socket.onmessage = ({ data }) => {
      got.push(new Uint8Array(data)[0] ?? -1);
      if (got.length === 50) done.resolve();
    };
    await done.promise;
    expect(got).toEqual(Array.from({ length: 50 }, (_, i) => i));
    socket.close();
  });

  test("send only as fast as the client reads, and close when the account ends", async () => {
    const { secret, principal } = await api.newUser("user");
    const socket = connect(Number(new URL(api.url).port), "127.0.0.1");
    socket.pause();
    const headers = ["host: x", "connection: Upgrade", "upgrade: websocket", "sec-websocket-version: 13"];
    headers.push("sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==", `authorization: Bearer ${secret}`);
    socket.write(`GET /api/v1/sessions/abcd/attach HTTP/1.1\r\n${headers.join("\r\n")}\r\n\r\n`);
    let seen = -1;
    while (seen !== sent || sent === 0) {
      seen = sent;
      await Bun.sleep(100);
    }
    expect(sent).toBeLessThan(100);
    await api.accounts.users.update(principal.email, { active: false }, { kind: "local" });
    let tail = Buffer.alloc(0);
    for await (const chunk of socket) tail = Buffer.concat([tail, chunk]).subarray(-64);
    expect(sent).toBeLessThan(100);
    expect(tail.includes("account-inactive")).toBe(true);
  });

  test.each([
    ["echo", {}, 401],
    ["echo", { authorization: "Bearer berth_wrong" }, 401],
    ["other", "mine", 500],
  ])("session %s with %p is refused before the upgrade", async (session, headers, status) => {
    const given: Record<string, string> =
      headers === "mine" ? { authorization: `Bearer ${user}` } : Object(headers);
    const { port } = new URL(api.url);
    const request = [
      `GET /api/v1/sessions/${session}/exec HTTP/1.1`,
      "host: x",
      "connection: Upgrade",
      "upgrade: websocket",
      "sec-websocket-version: 13",
      "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==",
      ...Object.entries(given).map(([name, value]) => `${name}: ${value}`),
    ];
    const socket = connect(Number(port), "127.0.0.1");
    socket.write(`${request.join("\r\n")}\r\n\r\n`);
    let text = "";
    for await (const chunk of socket) text += chunk;
    expect(text).toStartWith(`HTTP/1.1 ${status}`);
    expect(text).toContain("application/problem+json");
  });
});

/** Sends bytes as they are and reads until the server closes. */
async function exchangeRaw(text: string, { port } = new URL(api.url)): Promise<string> {
  const socket = connect(Number(port), "127.0.0.1");
  socket.write(text);
  let answer = "";
  for await (const chunk of socket) answer += chunk;
  return answer;
}

describe("connections", () => {
  test("a client that leaves is seen while its request is under way", async () => {
    const gate = Promise.withResolvers<void>();
    hold = gate.promise;
    held = Promise.withResolvers();
    const socket = connect(Number(new URL(api.url).port), "127.0.0.1");
    socket.write(`GET /api/v1/images/held HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${user}\r\n\r\n`);
    const signal = await held.promise;
    expect(signal.aborted).toBe(false);
    const aborted = new Promise((resolve) => signal.addEventListener("abort", resolve));
    socket.destroy();
    await aborted;
    gate.resolve();
    hold = Promise.resolve();
    expect((await api.call("GET", "/healthz")).status).toBe(200);
  });

  test.each([
    ["a request of HTTP/1.0 without Host", "GET /healthz HTTP/1.0\r\n\r\n", 200],
    ["a Host that is none", "GET /healthz HTTP/1.1\r\nhost: a b\r\nconnection: close\r\n\r\n", 400],
    ["a backslash in the path", "GET /a\\b HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n", 400],
    ["dots in the path", "GET /x/../healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n", 404],
    ...["DELETE", "TRACE", "HEAD"].map((method): [string, string, number] => [
      `${method} with an upgrade`,
      `${method} /healthz HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n`,
      400,
    ]),
  ])("%s", async (_name, text, status) => {
    const answer = await exchangeRaw(text);
    expect(answer).toMatch(new RegExp(`^HTTP/1.1 ${status} `));
    expect(answer.toLowerCase()).toContain("x-content-type-options: nosniff");
    const type = status === 200 ? "application/json" : "application/problem+json";
    expect(answer.toLowerCase()).toContain(`content-type: ${type}`);
  });

  test("slow headers and malformed requests are cut, the rest goes on", async () => {
    const strict = await startTestApi({ server: { limits: { headersMs: 50 } } });
    const raw = async (text: string) => {
      const socket = connect(Number(new URL(strict.url).port), "127.0.0.1");
      socket.on("error", () => {});
      socket.write(text);
      let answer = "";
      socket.on("data", (chunk) => {
        answer += chunk;
      });
      await new Promise((resolve) => socket.once("close", resolve));
      return answer;
    };
    expect(await raw("GET / HTTP/1.1\r\nhost: x\r\n")).not.toContain("200");
    expect(await raw("NONSENSE\r\n\r\n")).toStartWith("HTTP/1.1 400");
    const both =
      "POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n";
    expect(await raw(both)).toStartWith("HTTP/1.1 400");
    expect((await strict.call("GET", "/healthz")).status).toBe(200);
    await strict.close();
  });

  test("beyond those that one client may have are refused, until it closes one", async () => {
    const small = await startTestApi({ server: { limits: { perClient: 2 }, exempt: () => false } });
    const open = async () => {
      const socket = connect(Number(new URL(small.url).port), "127.0.0.1");
      socket.on("error", () => {});
      const closed = new Promise<string>((resolve) => socket.once("close", () => resolve("refused")));
      const answered = new Promise<string>((resolve) => socket.once("data", () => resolve("answered")));
      socket.write("GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n");
      return { socket, closed, outcome: await Promise.race([closed, answered]) };
    };
    const [first, second, third] = [await open(), await open(), await open()];
    expect([first.outcome, second.outcome, third.outcome]).toEqual(["answered", "answered", "refused"]);
    first.socket.destroy();
    while (small.server.connections() > 1) await Bun.sleep(1);
    expect((await open()).outcome).toBe("answered");
    await small.close();
  });

  test("HTTPS with a certificate of our own serves requests, streams and WebSockets", async () => {
    const tls = await selfSignedHttps({ hosts: ["127.0.0.1", "localhost"], clock: systemClock });
    const secure = await startTestApi({
      server: { tls },
      routes: () => [
        handleWebSocket(contract.sessions.exec, async () => async (socket) => {
          for await (const message of socket.messages) await socket.send(message);
        }),
      ],
    });
    const { secret, principal, password } = await secure.newUser("user");
    expect((await secure.call("GET", "/api/v1/me", { token: secret })).status).toBe(200);
    const login = await secure.call("POST", "/api/v1/auth/login", {
      json: { email: principal.email, password },
    });
    expect(login.headers.get("set-cookie")).toMatch(
      /^__Host-berth_session=\S+; Path=\/; HttpOnly; SameSite=Strict; Secure;/,
    );
    const socket = new WebSocket(`${secure.url.replace("https", "wss")}/api/v1/sessions/echo/exec`, {
      headers: { authorization: `Bearer ${secret}` },
      tls: { rejectUnauthorized: false },
    } as never);
    const echoed = Promise.withResolvers<string>();
    socket.onopen = () => socket.send(Buffer.from("hello"));
    socket.onmessage = ({ data }) => echoed.resolve(Buffer.from(data).toString());
    socket.onerror = () => echoed.reject(new Error("the WebSocket failed"));
    expect(await echoed.promise).toBe("hello");
    socket.close();
    await secure.close();
  });

  test("a stub is reached, so the tests of refusals above could have passed through", async () => {
    expect((await readProblem(await post("/api/v1/sessions", {}))).code).toBe(STUB);
  });
});
