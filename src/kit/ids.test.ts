import { expect, test } from "bun:test";
import fc from "fast-check";
import { manualClock } from "./clock.ts";
import { asId, isId, newId, type SessionId } from "./ids.ts";

test("an id is a UUIDv7 of its millisecond", () => {
  const wall = 1_789_000_123_456;
  const id = newId<SessionId>(manualClock(wall));
  expect(id).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
  expect(Number.parseInt(id.replaceAll("-", "").slice(0, 12), 16)).toBe(wall);
});

test("ids of later milliseconds sort later", () => {
  const ms = fc.integer({ min: 0, max: 2 ** 47 });
  fc.assert(
    fc.property(ms, ms, (a, b) => {
      fc.pre(a < b);
      expect(newId<SessionId>(manualClock(a)) < newId<SessionId>(manualClock(b))).toBe(true);
    }),
  );
});

test("ids of one millisecond differ", () => {
  const clock = manualClock();
  expect(new Set(Array.from({ length: 1000 }, () => newId<SessionId>(clock))).size).toBe(1000);
});

test("only the form of an id is taken as one", () => {
  const id = newId<SessionId>(manualClock());
  expect(asId<SessionId>(id)).toBe(id);
  for (const text of ["", "x", id.toUpperCase(), `${id}0`, id.replaceAll("-", "")]) {
    expect(isId(text)).toBe(false);
    expect(() => asId<SessionId>(text)).toThrow(TypeError);
  }
});
