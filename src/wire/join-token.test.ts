import { expect, test } from "bun:test";
import fc from "fast-check";
import { asId, type JoinTokenId } from "../kit/ids.ts";
import { formatJoinToken, newJoinSecret, parseJoinToken } from "./join-token.ts";

const token = {
  id: asId<JoinTokenId>("0190b5a0-0000-7000-8000-000000000001"),
  secret: newJoinSecret(),
  caFingerprint: Buffer.alloc(32, 7).toString("base64url"),
  port: 8466,
};

test("a token survives being copied as one word", () => {
  const word = formatJoinToken(token);
  expect(word).toMatch(/^bj1\.[A-Za-z0-9_-]+$/);
  expect(parseJoinToken(`  ${word}\n`)).toEqual(token);
});

test("any tokens come back the same", () => {
  const base64 = (min: number, max: number) =>
    fc.uint8Array({ minLength: min, maxLength: max }).map((b) => Buffer.from(b).toString("base64url"));
  const tokens = fc.record({
    id: fc.uuid().map((id) => asId<JoinTokenId>(id)),
    secret: base64(16, 64),
    caFingerprint: base64(32, 32),
    port: fc.integer({ min: 1, max: 65535 }),
  });
  fc.assert(fc.property(tokens, (t) => expect(parseJoinToken(formatJoinToken(t))).toEqual(t)));
});

test("one changed, lost or added character is noticed", () => {
  const word = formatJoinToken(token);
  for (let at = 0; at < word.length; at++) {
    const other = word[at] === "A" ? "B" : "A";
    for (const damaged of [
      word.slice(0, at) + other + word.slice(at + 1),
      word.slice(0, at) + word.slice(at + 1),
    ]) {
      expect(() => parseJoinToken(damaged)).toThrow(expect.objectContaining({ code: "invalid-join-token" }));
    }
  }
  expect(() => parseJoinToken(`${word}A`)).toThrow(/checksum/);
});

test.each([
  ["", /empty/],
  ["hello", /begins with/],
  ["bj2.AAAA", /version/],
  ["bj1.", /characters/],
  ["bj1.AA AA", /one word/],
  ["bj1.AAAA", /checksum/],
])("says what is wrong with %j", (text, sentence) => {
  expect(() => parseJoinToken(text)).toThrow(sentence);
});
