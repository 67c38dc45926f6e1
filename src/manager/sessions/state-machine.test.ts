import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { SESSION_STATUSES } from "../../contract/states.ts";
import {
  DEFAULT_DEADLINES,
  deadlineOf,
  deadlinesOf,
  deriveEvent,
  isFinal,
  isTerminalPhase,
  type KernelPhase,
  nextState,
  occupies,
  type SessionEvent,
  statesAllowing,
  transition,
} from "./state-machine.ts";

const EVENTS: readonly SessionEvent[] = [
  "schedule",
  "unschedule",
  "prepare",
  "pull",
  "create",
  "run",
  "degrade",
  "pause",
  "resume",
  "stop",
  "ended",
  "failed",
  "cancelled",
];
const PHASES: readonly KernelPhase[] = [
  "unknown",
  "preparing",
  "pulling",
  "creating",
  "running",
  "exited",
  "failed",
  "gone",
];

describe("transitions", () => {
  test("the usual way of a session", () => {
    const way: SessionEvent[] = ["schedule", "prepare", "pull", "create", "run", "stop", "ended"];
    const states: string[] = [];
    way.reduce(
      (state, event) => {
        const next = transition(state, event);
        states.push(next);
        return next;
      },
      "PENDING" as Parameters<typeof transition>[0],
    );
    expect(states).toEqual([
      "SCHEDULED",
      "PREPARING",
      "PULLING",
      "CREATING",
      "RUNNING",
      "TERMINATING",
      "TERMINATED",
    ]);
  });
  test("a phase may be skipped and never comes back", () => {
    expect(nextState("SCHEDULED", "run")).toBe("RUNNING");
    expect(nextState("PREPARING", "create")).toBe("CREATING");
    expect(nextState("CREATING", "pull")).toBeNull();
    expect(nextState("RUNNING", "create")).toBeNull();
    expect(nextState("TERMINATING", "run")).toBeNull();
  });
  test("what waits is cancelled, what was given up by its node waits again", () => {
    expect(nextState("PENDING", "cancelled")).toBe("CANCELLED");
    expect(nextState("PENDING", "stop")).toBeNull();
    expect(nextState("SCHEDULED", "unschedule")).toBe("PENDING");
    expect(nextState("PULLING", "unschedule")).toBe("PENDING");
    expect(nextState("RUNNING", "unschedule")).toBeNull();
  });
  test("a final state is final", () => {
    for (const state of SESSION_STATUSES.filter(isFinal)) {
      expect(EVENTS.filter((event) => nextState(state, event) !== null)).toEqual([]);
    }
  });
  test("from every other state there is a way to the end", () => {
    const reaches = (state: (typeof SESSION_STATUSES)[number], seen = new Set<string>()): boolean => {
      if (isFinal(state)) return true;
      if (seen.has(state)) return false;
      seen.add(state);
      return (["stop", "ended", "failed", "cancelled"] as const).some((event) => {
        const next = nextState(state, event);
        return next !== null && reaches(next, seen);
      });
    };
    expect(SESSION_STATUSES.filter((state) => !reaches(state))).toEqual([]);
  });
  test("a forbidden one throws in words", () => {
    expect(() => transition("TERMINATED", "run")).toThrow("A session that is TERMINATED cannot run.");
  });
  test("the guard of an update lists exactly the allowed states", () => {
    expect(statesAllowing("pause")).toEqual(["RUNNING", "DEGRADED"]);
    expect(statesAllowing("schedule")).toEqual(["PENDING"]);
  });
  test("waiting, paused and ended sessions hold no room by their state", () => {
    expect(SESSION_STATUSES.filter((state) => !occupies(state))).toEqual([
      "PENDING",
      "PAUSED",
      "TERMINATED",
      "CANCELLED",
      "ERROR",
    ]);
  });
});

describe("what kernels mean for their session", () => {
  test("the slowest kernel while they start", () => {
    expect(deriveEvent(["running", "pulling", "creating"])).toBe("pull");
    expect(deriveEvent(["unknown", "running"])).toBeNull();
    expect(deriveEvent([])).toBeNull();
  });
  test("running, partly ended", () => {
    expect(deriveEvent(["running", "running"])).toBe("run");
    expect(deriveEvent(["running", "exited"])).toBe("degrade");
  });
  test("the session ends exactly when every kernel is over, in whatever mix", () => {
    fc.assert(
      fc.property(fc.array(fc.constantFrom(...PHASES), { minLength: 1, maxLength: 6 }), (phases) => {
        expect(deriveEvent(phases) === "end").toBe(phases.every(isTerminalPhase));
      }),
    );
  });
});

describe("deadlines", () => {
  test("count from the start of the phase; a group may change or lift them", () => {
    expect(deadlineOf("PULLING", 1000)).toBe(1000 + 7_200_000);
    const own = deadlinesOf({ PULLING: null, CREATING: 5 });
    expect(deadlineOf("PULLING", 1000, own)).toBeNull();
    expect(deadlineOf("CREATING", 1000, own)).toBe(1005);
    expect(deadlineOf("SCHEDULED", 0, own)).toBe(DEFAULT_DEADLINES.SCHEDULED);
  });
  test("running, waiting and ended sessions have none", () => {
    for (const state of ["PENDING", "RUNNING", "DEGRADED", "PAUSED", "TERMINATED", "ERROR"] as const) {
      expect(deadlineOf(state, 0)).toBeNull();
    }
  });
});
