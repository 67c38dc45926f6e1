import { afterEach, describe, expect, test } from "bun:test";
import net from "node:net";
import { api } from "../contract/api.ts";
import { createClient, pathOf } from "./client.ts";
import { ApiError } from "./failures.ts";
import { connectionFault } from "./faults.ts";
import {
  detail,
  type FakeManager,
  fakeManager,
  type Handler,
  PROMPT_CLOCK,
  problemResponse,
  SESSION,
} from "./testing.ts";

let manager: FakeManager | undefined;
afterEach(() => manager?.stop());

const clock = PROMPT_CLOCK;

function clientOf(handlers: Readonly<Record<string, Handler>>) {
  manager = fakeManager(handlers);
  return createClient({ target: { url: manager.url, token: "berth_x", trust: { kind: "system" } }, clock });
}

describe("paths", () => {
  test("names are encoded, also those with slashes", () => {
    const path = pathOf(api.images.get.path, { params: { image: "quay.io/a/b:1" } });
    expect(path).toBe("/api/v1/images/quay.io%2Fa%2Fb%3A1");
  });

  test("a name that would be a step in the path is none", () => {
    expect(() => pathOf(api.sessions.get.path, { params: { session: ".." } })).toThrow(
      '".." is not a session',
    );
  });

  test("what is undefined is left out of the query", () => {
    expect(pathOf("/x", { query: { a: 1, b: undefined, c: "d e" } })).toBe("/x?a=1&c=d+e");
  });
});

describe("calls", () => {
  test("the token goes with the call and unknown fields of a newer manager pass", async () => {
    const client = clientOf({ "sessions.get": () => ({ ...detail(), flavour: "new" }) });
    const session = await client.call(api.sessions.get, { params: { session: "calm-otter-1" } });
    expect(session.name).toBe(SESSION.name);
    expect(manager?.calls[0]?.headers.get("authorization")).toBe("Bearer berth_x");
  });

  test("a refusal keeps code, field, details and request id", async () => {
    const client = clientOf({
      "sessions.create": () =>
        problemResponse("admission-refused", "No.", { field: "slots.mem", details: { limit: 5 } }),
    });
    const error = await client.call(api.sessions.create, { body: {} }).catch((e: unknown) => e);
    expect(error).toBeInstanceOf(ApiError);
    expect(error).toMatchObject({ code: "admission-refused", field: "slots.mem", details: { limit: 5 } });
    expect(manager?.calls).toHaveLength(1);
  });

  test("a create whose answer is lost is asked again with the same key", async () => {
    let tries = 0;
    const client = clientOf({
      "sessions.create": () => (++tries < 3 ? new Response("", { status: 503 }) : { items: [detail()] }),
    });
    await client.call(api.sessions.create, { body: {} });
    const keys = manager?.calls.map(({ headers }) => headers.get("idempotency-key")) ?? [];
    expect(keys).toHaveLength(3);
    expect(new Set(keys).size).toBe(1);
    expect(keys[0]).toMatch(/^[0-9a-f-]{36}$/);
  });

  test("a change that may have happened is not asked for again", async () => {
    const client = clientOf({ "sessions.update": () => new Response("", { status: 503 }) });
    const call = client.call(api.sessions.update, { params: { session: "abcd" }, body: { name: "abcde" } });
    expect(await call.catch((e: unknown) => e)).toMatchObject({ code: "unreachable" });
    expect(manager?.calls).toHaveLength(1);
  });

  test("reads are tried five times, then the failure is told", async () => {
    const client = clientOf({ "auth.me": () => new Response("", { status: 502 }) });
    expect(await client.call(api.accounts.me).catch((e: unknown) => e)).toMatchObject({
      code: "unreachable",
    });
    expect(manager?.calls).toHaveLength(5);
  });

  test("an answer of another form is told with its place", async () => {
    const client = clientOf({ "sessions.get": () => ({ ...detail(), slots: 3 }) });
    const call = client.call(api.sessions.get, { params: { session: "abcd" } });
    expect(await call.catch((e: unknown) => e)).toMatchObject({ code: "unexpected-answer" });
  });

  test("an answer that is not Berth's is told", async () => {
    const client = clientOf({ "auth.me": () => new Response("<html>", { status: 404 }) });
    expect(await client.call(api.accounts.me).catch((e: unknown) => e)).toMatchObject({
      code: "unexpected-answer",
    });
  });

  test("a manager that is not there is told, with its address", async () => {
    const server = net.createServer();
    const port = await new Promise<number>((resolve) => {
      server.listen(0, "127.0.0.1", () => {
        const address = server.address();
        resolve(typeof address === "object" && address !== null ? address.port : 0);
      });
    });
    await new Promise((resolve) => server.close(resolve));
    const target = { url: `http://127.0.0.1:${port}`, trust: { kind: "system" as const } };
    const client = createClient({ target, clock });
    const error = await client.call(api.accounts.me).catch((e: unknown) => e);
    expect(error).toMatchObject({
      code: "unreachable",
      message: expect.stringContaining(`127.0.0.1:${port}`),
    });
  });
});

test.each([
  ["http://lab.example:7410", undefined, "write https://lab.example:7410."],
  ["https://lab.example:7410", undefined, "cut."],
  ["http://localhost", "/x/admin.sock", "cut."],
])("a cut connection to %s suggests HTTPS only where that may be it", (url, socket, end) => {
  const target = { url, trust: { kind: "system" as const }, ...(socket === undefined ? {} : { socket }) };
  const cut = Object.assign(new Error("cut"), { code: "ECONNRESET" });
  expect(connectionFault(target, cut).message).toEndWith(end);
});

test("a list follows its cursors and stops at the most that is wanted", async () => {
  const names = Array.from({ length: 450 }, (_, index) => `sess-${index}`);
  const client = clientOf({
    "sessions.list": ({ query }) => {
      const from = Number(query.cursor ?? 0);
      const items = names.slice(from, from + Number(query.limit)).map((name) => ({ ...SESSION, name }));
      const next = from + items.length < names.length ? String(from + items.length) : null;
      return { items, next };
    },
  });
  const all = await client.list(api.sessions.list, { query: { state: "all" } });
  expect(all.map(({ name }) => name)).toEqual(names);
  expect(manager?.calls.every(({ query }) => query.state === "all")).toBe(true);
  expect(await client.list(api.sessions.list, {}, 250)).toHaveLength(250);
});
