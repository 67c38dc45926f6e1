import { describe, expect, test } from "bun:test";
import { IncomingMessage, ServerResponse } from "node:http";
import { Socket } from "node:net";
import { ALL_ROUTES } from "../../contract/api.ts";
import type { Method } from "../../contract/route.ts";
import { PUBLIC } from "../../contract/route.ts";
import { manualClock } from "../../kit/clock.ts";
import { isBerthError } from "../../kit/errors.ts";
import { createApp } from "./app.ts";
import { readExchange } from "./exchange.ts";
import type { Mounted } from "./handle.ts";

const at = (method: Method, path: string): Mounted => ({
  kind: "public",
  route: {
    id: `${method} ${path}`,
    method,
    path,
    tag: "",
    summary: "",
    access: PUBLIC,
    answer: { kind: "empty", status: 204 },
  },
  run: async () => undefined,
});

/** Where a request leads: the route's id and parameters, or the code of the refusal with what it allows. */
function finder(routes: readonly Mounted[]) {
  const app = createApp({
    routes,
    pages: new Map([["/page", { headers: {}, body: "page" }]]),
    serve: async (_bindings, { route }, params) => Response.json([route.id, params]),
    refuse: (_bindings, thrown) =>
      Response.json(isBerthError(thrown) ? [thrown.code, thrown.details?.allow ?? []] : String(thrown), {
        status: isBerthError(thrown) && thrown.code === "not-found" ? 404 : 405,
      }),
    clock: manualClock(),
    onServed: () => {},
  });
  return async (method: string, path: string): Promise<unknown> => {
    const incoming = Object.assign(new IncomingMessage(new Socket()), { method, url: path });
    const exchange = readExchange(incoming, "local", () => ({ address: "", secure: false, host: "" }));
    const target = { kind: "response", response: new ServerResponse(incoming) } as const;
    const { signal } = new AbortController();
    const asked = new Request("http://x.test/", { method });
    const answer = await app.fetch(asked, { exchange, target, signal });
    const text = await answer.text();
    return text.startsWith("[") ? JSON.parse(text) : text;
  };
}

const found = finder([
  at("GET", "/a/{x}"),
  at("GET", "/a/fixed"),
  at("POST", "/a/{x}"),
  at("GET", "/a/{x}/b/{y}"),
  at("GET", "/"),
]);

describe("the way to a route", () => {
  test("prefers a fixed segment, and goes on to a parameter when the method asks for it", async () => {
    expect(await found("GET", "/a/fixed")).toEqual(["GET /a/fixed", {}]);
    expect(await found("GET", "/a/other")).toEqual(["GET /a/{x}", { x: "other" }]);
    expect(await found("POST", "/a/fixed")).toEqual(["POST /a/{x}", { x: "fixed" }]);
    expect(await found("GET", "/")).toEqual(["GET /", {}]);
    expect(await found("GET", "/page")).toBe("page");
  });

  test.each(["%2F", "a%2Fb%3A1", "%25", "%252F", "%ff", "%", "%zz", "a+b", "ä"])(
    "hands %p out as it is in the path",
    async (y) => {
      expect(await found("GET", `/a/1/b/${y}`)).toEqual(["GET /a/{x}/b/{y}", { x: "1", y }]);
    },
  );

  test.each(["/a", "/a/", "/a//b/1", "/a/1/b", "/a/1/b/2/", "//", "a", "/%61/1", "/page/", "*"])(
    "%p leads nowhere",
    async (path) => {
      for (const method of ["GET", "DELETE"]) expect(await found(method, path)).toEqual(["not-found", []]);
    },
  );

  test("a wrong method tells the right ones", async () => {
    const refusal = (...allow: readonly string[]) => ["method-not-allowed", allow];
    expect(await found("DELETE", "/a/1/b/2")).toEqual(refusal("GET", "HEAD"));
    expect(await found("DELETE", "/a/fixed")).toEqual(refusal("GET", "HEAD", "POST"));
    expect(await found("POST", "/page")).toEqual(refusal("GET", "HEAD"));
  });

  test("takes a route only once", () => {
    expect(() => finder([at("GET", "/x"), at("GET", "/x")])).toThrow("mounted twice");
  });

  test("leads to every route of the contract by its own path", async () => {
    const all = finder(ALL_ROUTES.map((route) => ({ kind: "public", route, run: async () => undefined })));
    for (const { id, method, path } of ALL_ROUTES) {
      const names = [...path.matchAll(/\{(\w+)\}/g)].map(([, name]) => [name, `some-${name}`]);
      const asked = path.replaceAll(/\{(\w+)\}/g, "some-$1");
      expect(await all(method, asked)).toEqual([id, Object.fromEntries(names)]);
    }
  });
});
