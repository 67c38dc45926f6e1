import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { acknowledgeLease, evaluateLease, type LeaseState, NO_LEASE } from "./lease.ts";

/** Where a connect breaks off: each is a crash of the agent, or a cut of the link, at that point. */
const STEPS = ["offer-lost", "welcome-lost", "before-store", "after-store", "ack-lost", "complete"] as const;
type Step = (typeof STEPS)[number];

function world() {
  let manager: LeaseState = NO_LEASE;
  let count = 0;
  /** One connect of a holder of `lease` that gets as far as `step`; gives what the holder has stored after. */
  const connect = (lease: string, step: Step, hasLiveStream = false, otherBoot = false) => {
    if (step === "offer-lost") return { verdict: undefined, lease };
    const newLease = `L${++count}`;
    const verdict = evaluateLease({ ...manager, offered: lease, hasLiveStream, otherBoot, newLease });
    if (verdict.kind === "refuse") return { verdict, lease };
    manager = verdict.state;
    if (step === "welcome-lost" || step === "before-store") return { verdict, lease };
    const fresh = manager.stored ?? "";
    if (step === "complete") manager = acknowledgeLease(manager, fresh);
    return { verdict, lease: fresh };
  };
  return { connect, state: () => manager };
}

describe("leases", () => {
  const steps = fc.array(fc.constantFrom(...STEPS), { maxLength: 30 });

  test("one honest agent gets back in wherever it crashed, however often", () => {
    fc.assert(
      fc.property(steps, (crashes) => {
        const w = world();
        let lease = "";
        for (const step of crashes) {
          const result = w.connect(lease, step);
          expect(result.verdict?.kind).not.toBe("refuse");
          lease = result.lease;
        }
        expect(w.connect(lease, "complete").verdict?.kind).toBe("accept");
      }),
    );
  });

  test("a copy is refused once the agent has acknowledged a newer lease, live or not", () => {
    fc.assert(
      fc.property(steps, fc.nat(), steps, steps, fc.boolean(), (before, at, more, after, live) => {
        const w = world();
        let lease = "";
        let copy = "";
        for (const [i, step] of before.entries()) {
          if (i === at % before.length) copy = lease;
          lease = w.connect(lease, step).lease;
        }
        for (const step of more) lease = w.connect(lease, step).lease;
        lease = w.connect(lease, "complete").lease;
        for (const step of after) {
          expect(w.connect(copy, "complete", live).verdict).toMatchObject({ kind: "refuse", code: "clone" });
          lease = w.connect(lease, step).lease;
        }
        const refused = w.connect(copy, "complete", live).verdict;
        expect(refused).toMatchObject({ kind: "refuse", code: "clone", retry: false });
        expect(w.connect(lease, "complete").verdict?.kind).toBe("accept");
      }),
    );
  });

  test("a copy with the lease before an unacknowledged one never gets in beside a live stream", () => {
    const w = world();
    const lease = w.connect("", "complete").lease;
    w.connect(lease, "ack-lost");
    expect(w.connect(lease, "complete", true).verdict).toMatchObject({ code: "lease-in-doubt", retry: true });
    expect(w.connect(lease, "complete", false).verdict?.kind).toBe("accept");
  });

  test("the newest lease replaces a live stream", () => {
    const w = world();
    const lease = w.connect("", "complete").lease;
    expect(w.connect(lease, "complete", true).verdict?.kind).toBe("accept");
  });

  test("the newest lease from another boot waits until the live stream has ended", () => {
    const w = world();
    const lease = w.connect("", "complete").lease;
    const before = w.state();
    const refused = w.connect(lease, "complete", true, true).verdict;
    expect(refused).toMatchObject({ kind: "refuse", code: "identity-in-use", retry: true });
    expect(w.state()).toEqual(before);
    expect(w.connect(lease, "complete", false, true).verdict?.kind).toBe("accept");
  });

  test("an older lease stays a clone's, whatever boot it comes from", () => {
    const w = world();
    const old = w.connect("", "complete").lease;
    w.connect(old, "complete");
    expect(w.connect(old, "complete", true, true).verdict).toMatchObject({ code: "clone", retry: false });
  });

  test("an agent that lost its lease file is told apart from a new one", () => {
    const w = world();
    w.connect("", "complete");
    expect(w.connect("", "complete").verdict).toMatchObject({ kind: "refuse", code: "clone" });
  });

  test("a manager that knows no lease, as after a restored backup, takes what is offered", () => {
    const offer = { offered: "L9", hasLiveStream: false, otherBoot: false, newLease: "N" };
    const verdict = evaluateLease({ ...NO_LEASE, ...offer });
    expect(verdict).toEqual({ kind: "accept", state: { stored: "N", previous: "L9" } });
  });

  test("an acknowledgement of another lease changes nothing", () => {
    const state: LeaseState = { stored: "L2", previous: "L1" };
    expect(acknowledgeLease(state, "L1")).toBe(state);
    expect(acknowledgeLease(state, "L2")).toEqual({ stored: "L2", previous: null });
  });
});
