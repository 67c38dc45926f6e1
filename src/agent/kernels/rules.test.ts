import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { KernelPhase } from "../../wire/generated/berth.ts";
import type { ContainerState, ContainerView } from "../engine/engine.ts";
import { type KernelRecord, recordOfSpec } from "./record.ts";
import { type Exited, endReason, type KernelFacts, mergeStop, nextStep, statusOf } from "./rules.ts";
import { specOf } from "./test-bench.ts";

const spec = specOf(1);
const record = recordOfSpec(spec, { keepAlive: false, bootId: "b1", view: undefined });
const exited: Exited = {
  kind: "exited",
  exitCode: 137,
  oomKilled: false,
  startedAt: 1000,
  endedAt: 50_000,
  error: "",
};
const view = (state: ContainerState): ContainerView => ({
  kernelId: spec.kernelId,
  sessionId: spec.sessionId,
  generation: 1,
  containerId: "c",
  epoch: 1,
  labels: {},
  state,
});

const end = { startedAtMs: 1, endedAtMs: 2, exitCode: 0, oomKilled: false, reason: "", logBytes: 0 };
const facts: fc.Arbitrary<KernelFacts> = fc.record({
  record: fc.option(
    fc
      .record({
        startIntent: fc.boolean(),
        stop: fc.constantFrom(null, { graceMs: 1, force: false }),
        failure: fc.constantFrom(null, { code: "x", message: "y" }),
        end: fc.constantFrom(null, end),
        endCause: fc.constantFrom("", "disk-full"),
      })
      .map((change): KernelRecord => ({ ...record, ...change })),
    { nil: undefined },
  ),
  spec: fc.constantFrom(spec, undefined),
  observed: fc.constantFrom(
    "unknown" as const,
    undefined,
    view({ kind: "created" }),
    view({ kind: "running", pid: 1, startedAt: 1 }),
    view(exited),
  ),
  forget: fc.boolean(),
  overdue: fc.boolean(),
});

describe("the next step", () => {
  const always = (name: string, holds: (facts: KernelFacts, step: string) => boolean) =>
    test(name, () => {
      fc.assert(
        fc.property(facts, (given) => holds(given, nextStep(given))),
        { numRuns: 2000 },
      );
    });

  always(
    "nothing is decided on what may be out of date",
    ({ observed }, step) => (observed === "unknown") === (step === "observe"),
  );
  always(
    "nothing is made that was started, stopped, failed or ended",
    ({ record: known, spec: wanted }, step) =>
      step !== "create" ||
      (known !== undefined &&
        !known.startIntent &&
        !known.stop &&
        !known.failure &&
        !known.end &&
        wanted !== undefined),
  );
  always(
    "nothing is started that was stopped, failed or ended, or that has no record",
    ({ record: known }, step) =>
      step !== "start" || (known !== undefined && !known.stop && !known.failure && !known.end),
  );
  always(
    "only what never ran is discarded, only what is forgotten is removed",
    ({ observed, forget }, step) => {
      if (step === "remove") return forget;
      return step !== "discard" || (observed !== "unknown" && observed?.state.kind === "created");
    },
  );
  always(
    "a container without a record is not touched",
    ({ record: known, forget }, step) =>
      known !== undefined || forget || ["observe", "rest", "drop"].includes(step),
  );
});

test("of two stops the harsher one counts", () => {
  expect(mergeStop(null, { graceMs: 5, force: false })).toEqual({ graceMs: 5, force: false });
  expect(mergeStop({ graceMs: 5, force: false }, { graceMs: 9, force: false })).toEqual({
    graceMs: 5,
    force: false,
  });
  expect(mergeStop({ graceMs: 5, force: false }, { graceMs: 9, force: true })).toEqual({
    graceMs: 0,
    force: true,
  });
});

describe("why it ended", () => {
  const reason = (change: Partial<Parameters<typeof endReason>[0]> = {}) =>
    endReason({ record, exited, outages: [], liveRestore: true, bootId: "b1", ...change });
  const outages = [{ fromMs: 49_000, untilMs: 55_000 }];

  test("by itself", () => expect(reason()).toBe(""));
  test("the node restarted", () => expect(reason({ bootId: "b2" })).toBe("node-restarted"));
  test("the engine restarted without live-restore", () =>
    expect(reason({ outages, liveRestore: false })).toBe("engine-restarted"));
  test("the engine found it dead", () =>
    expect(reason({ outages, exited: { ...exited, exitCode: 255 } })).toBe("engine-restarted"));
  test("the engine was away and the container ended by itself", () => {
    expect(reason({ outages })).toBe("");
    expect(reason({ outages, liveRestore: false, exited: { ...exited, exitCode: 3 } })).toBe("");
    expect(reason({ outages: [{ fromMs: 1000, untilMs: 2000 }], liveRestore: false })).toBe("");
  });
  test("a stop, a time limit and a lack of memory explain themselves", () => {
    const killed = { outages, liveRestore: false };
    expect(reason({ ...killed, record: { ...record, stop: { graceMs: 0, force: true } } })).toBe("");
    expect(reason({ ...killed, record: { ...record, timedOut: true } })).toBe("");
    expect(reason({ ...killed, exited: { ...exited, oomKilled: true } })).toBe("");
  });
  test("a cause of the agent's own", () =>
    expect(reason({ record: { ...record, endCause: "disk-full" } })).toBe("disk-full"));
});

describe("the status", () => {
  const status = (change: Partial<Parameters<typeof statusOf>[0]>) =>
    statusOf({
      ref: spec,
      record,
      observed: undefined,
      activity: "idle",
      pull: undefined,
      logBytes: 7,
      ...change,
    });

  test("an end is told when it is settled, not when the container is seen exited", () => {
    const started = { ...record, startIntent: true };
    expect(status({ record: started, observed: view(exited) }).phase).toBe(KernelPhase.RUNNING);
    const settled = status({
      record: { ...started, end: { ...end, exitCode: 9, logBytes: 5 } },
      observed: view(exited),
    });
    expect(settled).toMatchObject({ phase: KernelPhase.EXITED, exitCode: 9, logBytes: 5 });
  });
  test("what is being undone is not gone yet", () => {
    const stopped = { ...record, stop: { graceMs: 0, force: true } };
    expect(status({ record: stopped, activity: "creating" }).phase).toBe(KernelPhase.CREATING);
    expect(status({ record: stopped, observed: "unknown" }).phase).toBe(KernelPhase.CREATING);
    expect(status({ record: stopped })).toMatchObject({ phase: KernelPhase.GONE, scratchPresent: false });
  });
  test("a container without a record is told by its labels and state", () => {
    expect(status({ record: undefined, observed: view(exited) })).toMatchObject({
      phase: KernelPhase.EXITED,
      exitCode: 137,
      epoch: 1,
    });
  });
});
