import { expect, test } from "bun:test";
import fc from "fast-check";
import { backoffMs } from "./backoff.ts";

test("doubles from the first wait up to the longest", () => {
  const waits = [1, 2, 3, 4, 5, 6].map((attempt) => backoffMs(attempt, { firstMs: 100, maxMs: 1000 }));
  expect(waits).toEqual([100, 200, 400, 800, 1000, 1000]);
});

test("stays within its bounds for any attempt and jitter", () => {
  const attempt = fc.integer({ min: 0, max: 1_000_000 });
  fc.assert(
    fc.property(attempt, fc.double({ min: 0, max: 0.999, noNaN: true }), (n, spread) => {
      const full = backoffMs(n, { firstMs: 50, maxMs: 30_000 });
      const wait = backoffMs(n, { firstMs: 50, maxMs: 30_000, jitter: () => spread });
      expect(full).toBeGreaterThanOrEqual(50);
      expect(full).toBeLessThanOrEqual(30_000);
      expect(wait).toBeGreaterThanOrEqual(full / 2);
      expect(wait).toBeLessThanOrEqual(full);
    }),
  );
});
