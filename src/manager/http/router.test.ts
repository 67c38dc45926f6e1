import { describe, expect, test } from "bun:test";
import { ALL_ROUTES } from "../../contract/api.ts";
import type { Method } from "../../contract/route.ts";
import { PUBLIC } from "../../contract/route.ts";
import type { Mounted } from "./handle.ts";
import { createRouter } from "./router.ts";

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
const router = createRouter([
  at("GET", "/a/{x}"),
  at("GET", "/a/fixed"),
  at("POST", "/a/{x}"),
  at("GET", "/a/{x}/b/{y}"),
  at("GET", "/"),
]);
const found = (method: string, path: string) => {
  const match = router.match(method, path);
  return match.kind === "found" ? [match.mounted.route.id, match.params] : match.kind;
};

describe("the router", () => {
  test("prefers a fixed segment, and goes on to a parameter when the method asks for it", () => {
    expect(found("GET", "/a/fixed")).toEqual(["GET /a/fixed", {}]);
    expect(found("GET", "/a/other")).toEqual(["GET /a/{x}", { x: "other" }]);
    expect(found("POST", "/a/fixed")).toEqual(["POST /a/{x}", { x: "fixed" }]);
    expect(found("GET", "/a/1/b/%2F")).toEqual(["GET /a/{x}/b/{y}", { x: "1", y: "%2F" }]);
    expect(found("GET", "/")).toEqual(["GET /", {}]);
  });

  test.each(["/a", "/a/", "/a//b/1", "/a/1/b", "/a/1/b/2/", "//", "a"])("%p leads nowhere", (path) => {
    expect(found("GET", path)).toBe("none");
  });

  test("a wrong method tells the right ones", () => {
    expect(router.match("DELETE", "/a/1/b/2")).toEqual({ kind: "wrong-method", allow: ["GET", "HEAD"] });
    expect(router.match("DELETE", "/a/fixed")).toEqual({
      kind: "wrong-method",
      allow: ["GET", "HEAD", "POST"],
    });
  });

  test("takes a route only once", () => {
    expect(() => createRouter([at("GET", "/x"), at("GET", "/x")])).toThrow("mounted twice");
  });

  test("finds every route of the contract by its own path", () => {
    const all = createRouter(
      ALL_ROUTES.map((route) => ({ kind: "public", route, run: async () => undefined })),
    );
    for (const { id, method, path } of ALL_ROUTES) {
      const match = all.match(method, path.replaceAll(/\{(\w+)\}/g, "some-$1"));
      expect([id, match.kind === "found" && match.mounted.route.id]).toEqual([id, id]);
    }
  });
});
