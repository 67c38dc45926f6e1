import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { addSlots, fitsSlots, missingSlots, NO_SLOTS, subtractSlots, sumSlots } from "./slots.ts";

const amount = fc.integer({ min: 0, max: 2 ** 40 });
const slots = fc
  .record({ cpu: amount, mem: amount, gpu: fc.option(amount, { nil: undefined }) })
  .map(({ cpu, mem, gpu }) => (gpu === undefined ? { cpu, mem } : { cpu, mem, "cuda.device": gpu }));

describe("slots", () => {
  test("what was added can be taken away", () => {
    fc.assert(
      fc.property(slots, slots, (a, b) => {
        expect(subtractSlots(addSlots(a, b), b)).toMatchObject(a);
      }),
    );
  });

  test("fits exactly when nothing is missing", () => {
    fc.assert(
      fc.property(slots, slots, (request, room) => {
        expect(fitsSlots(request, room)).toBe(Object.keys(missingSlots(request, room)).length === 0);
        expect(fitsSlots(request, addSlots(request, room))).toBe(true);
      }),
    );
  });

  test("a slot that the room does not know is missing, unless nothing of it is asked", () => {
    const room = { cpu: 1000, mem: 10 };
    expect(missingSlots({ cpu: 1500, mem: 10, "cuda.device": 2 }, room)).toEqual({
      cpu: 500,
      "cuda.device": 2,
    });
    expect(fitsSlots({ cpu: 0, mem: 0, "cuda.device": 0 }, room)).toBe(true);
  });

  test("a sum of none is nothing and a sum leaves its parts alone", () => {
    const part = { cpu: 1, mem: 2 };
    expect(sumSlots([])).toEqual(NO_SLOTS);
    expect(sumSlots([part, part, { cpu: 1, mem: 0, tpu: 3 }])).toEqual({ cpu: 3, mem: 4, tpu: 3 });
    expect(part).toEqual({ cpu: 1, mem: 2 });
  });

  test("room that is overdrawn holds nothing of that slot", () => {
    expect(fitsSlots({ cpu: 1, mem: 0 }, { cpu: -5, mem: 10 })).toBe(false);
  });
});
