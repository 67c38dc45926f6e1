import { describe, expect, test } from "bun:test";
import { isBerthError } from "../../kit/errors.ts";
import { canonicalReference, parseReference } from "./reference.ts";

describe("image references", () => {
  const right: [string, string][] = [
    ["c", "docker.io/library/c:latest"],
    ["python:3.6-ubuntu", "docker.io/library/python:3.6-ubuntu"],
    ["lablup/python:3", "docker.io/lablup/python:3"],
    ["docker.io/python", "docker.io/library/python:latest"],
    ["index.docker.io/python:3", "docker.io/library/python:3"],
    ["myregistry.org/lua", "myregistry.org/lua:latest"],
    ["127.0.0.1:5000/python", "127.0.0.1:5000/python:latest"],
    ["[::1]:5000/python:2", "[::1]:5000/python:2"],
    ["localhost/a/b:x", "localhost/a/b:x"],
    ["a_b/c-d.e__f:1", "docker.io/a_b/c-d.e__f:1"],
  ];
  for (const [text, canonical] of right) {
    test(`${text} is ${canonical}`, () => {
      expect(canonicalReference(text)).toBe(canonical);
      expect(canonicalReference(canonical)).toBe(canonical);
    });
  }

  const wrong = [
    "",
    " a",
    "a:!",
    "127.0.0.1:5000/a:-x-",
    "http://a/b",
    "//a",
    "::1/python",
    "A/b",
    "a//b",
    "a@x",
  ];
  for (const text of wrong) {
    test(`"${text}" is refused`, () => {
      let code = "";
      try {
        canonicalReference(text);
      } catch (error) {
        if (isBerthError(error)) code = error.code;
      }
      expect(code).toBe("invalid-image-reference");
    });
  }

  test("a digest stands alone", () => {
    const digest = `sha256:${"a".repeat(64)}`;
    expect(parseReference(`python@${digest}`)).toEqual({
      registry: "docker.io",
      repository: "library/python",
      tag: null,
      digest,
    });
    expect(canonicalReference(`python:3@${digest}`)).toBe(`docker.io/library/python@${digest}`);
  });
});
