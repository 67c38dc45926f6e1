import { describe, expect, test } from "bun:test";
import { aGroup, agentId, aLive, aNode, aSession, GIB, groupId, NOW, sessionId, userId } from "./fixtures.ts";
import { estimateEnd, plan as planAt, START_ALLOWANCE_MS } from "./plan.ts";
import type { Plan, SchedulingSnapshot } from "./types.ts";
import { momentInWords } from "./words.ts";

const plan = (snapshot: Partial<SchedulingSnapshot>, now = NOW): Plan =>
  planAt({ groups: [aGroup()], nodes: [], live: [], pending: [], ...snapshot }, now);

const placed = (result: Plan) => result.placements.map((p) => [p.sessionId, p.agentId]);
const waitOf = (result: Plan, n: number) => {
  const wait = result.waits.find((w) => w.sessionId === sessionId(n));
  if (wait === undefined) throw new Error(`session ${n} does not wait`);
  return wait;
};
const MINUTE = 60_000;
const full = { cpu: 4000, mem: GIB };

describe("order", () => {
  const twoOfThree = (group: Parameters<typeof aGroup>[0], priorities: number[]) =>
    plan({
      groups: [aGroup(group)],
      nodes: [aNode(1, { capacity: { cpu: 2000, mem: 8 * GIB } })],
      pending: priorities.map((priority, i) => aSession(i + 1, { priority })),
    }).placements.map((p) => p.sessionId);

  test("first in, first out inside a band", () => {
    expect(twoOfThree({}, [10, 10, 10])).toEqual([sessionId(1), sessionId(2)]);
  });
  test("last in, first out inside a band", () => {
    expect(twoOfThree({ scheduler: "lifo" }, [10, 10, 10])).toEqual([sessionId(3), sessionId(2)]);
  });
  test("a higher priority goes first under both schedulers", () => {
    expect(twoOfThree({}, [1, 5, 10])).toEqual([sessionId(3), sessionId(2)]);
    expect(twoOfThree({ scheduler: "lifo" }, [10, 5, 1])).toEqual([sessionId(1), sessionId(2)]);
  });
  test("positions count the waiting sessions in that order", () => {
    const result = plan({ pending: [aSession(1, { priority: 0 }), aSession(2), aSession(3)] });
    expect([1, 2, 3].map((n) => waitOf(result, n).position)).toEqual([3, 1, 2]);
  });
});

describe("placement", () => {
  const nodes = [aNode(1), aNode(2), aNode(3)];
  const live = [aLive(1, 1, { slots: { cpu: 2000, mem: GIB } }), aLive(2, 2)];
  const pick = (placement: "dispersed" | "concentrated" | "round-robin", cursor: number | null = null) =>
    plan({
      groups: [aGroup({ placement, roundRobinCursor: cursor === null ? null : agentId(cursor) })],
      nodes,
      live,
      pending: [aSession(1)],
    });

  test("dispersed takes the node with most left, concentrated the one with least", () => {
    expect(placed(pick("dispersed"))).toEqual([[sessionId(1), agentId(3)]]);
    expect(placed(pick("concentrated"))).toEqual([[sessionId(1), agentId(1)]]);
  });
  test("round-robin goes on after its cursor, also where that node is gone, and starts over", () => {
    expect(placed(pick("round-robin", 1))).toEqual([[sessionId(1), agentId(2)]]);
    expect(placed(pick("round-robin", 3))).toEqual([[sessionId(1), agentId(1)]]);
    expect(placed(pick("round-robin", 9))).toEqual([[sessionId(1), agentId(1)]]);
    expect(pick("round-robin", 1).cursors.get(groupId(1))).toBe(agentId(2));
  });
  test("round-robin spreads sessions over nodes in turn", () => {
    const pending = [1, 2, 3, 4].map((n) => aSession(n));
    const result = plan({ groups: [aGroup({ placement: "round-robin" })], nodes, pending });
    expect(result.placements.map((p) => p.agentId)).toEqual([1, 2, 3, 1].map(agentId));
  });
  test("a session without a GPU leaves the GPU node alone, one with a GPU gets it", () => {
    const gpuNode = aNode(1, { capacity: { cpu: 64_000, mem: 64 * GIB, "cuda.device": 2 } });
    const gpuSession = aSession(2, { slots: { cpu: 1000, mem: GIB, "cuda.device": 1 } });
    for (const placement of ["dispersed", "concentrated"] as const) {
      const groups = [aGroup({ placement })];
      const result = plan({ groups, nodes: [gpuNode, aNode(2)], pending: [aSession(1), gpuSession] });
      expect(placed(result)).toEqual([
        [sessionId(1), agentId(2)],
        [sessionId(2), agentId(1)],
      ]);
    }
  });
  test("what is reserved for the node is not given away", () => {
    const reserved = { cpu: 3500, mem: GIB };
    const result = plan({ nodes: [aNode(1, { reserved })], pending: [aSession(1)] });
    expect(waitOf(result, 1).code).toBe("too-large");
  });
  test("a node on which the session failed is taken only where there is no other", () => {
    const avoid = aSession(1, { avoidAgents: [agentId(1)] });
    expect(placed(plan({ nodes: [aNode(1), aNode(2)], pending: [avoid] }))[0]).toEqual([
      sessionId(1),
      agentId(2),
    ]);
    expect(placed(plan({ nodes: [aNode(1)], pending: [avoid] }))).toEqual([[sessionId(1), agentId(1)]]);
  });
  test("groups do not use each other's nodes", () => {
    const result = plan({
      groups: [aGroup(), aGroup({ id: groupId(2), name: "other" })],
      nodes: [aNode(1, { groupId: groupId(2) })],
      pending: [aSession(1)],
    });
    expect(waitOf(result, 1).sentence).toBe("No node has joined the group default yet.");
  });
});

describe("backfill", () => {
  test("a small session does not overtake a blocked one where nothing says when room comes", () => {
    const result = plan({
      nodes: [aNode(1)],
      live: [aLive(1, 1)],
      pending: [aSession(1, { slots: full }), aSession(2)],
    });
    expect(result.placements).toEqual([]);
    expect(waitOf(result, 2).sentence).toBe(
      "It is held back so that sess-1 (position 1) can start on node-1.",
    );
  });
  test("it may use another node", () => {
    const result = plan({
      nodes: [aNode(1), aNode(2)],
      live: [aLive(1, 1), aLive(2, 2, { slots: { cpu: 2000, mem: GIB } })],
      pending: [aSession(1, { slots: full }), aSession(2)],
    });
    expect(placed(result)).toEqual([[sessionId(2), agentId(2)]]);
    expect(waitOf(result, 1).details.reservedNode).toBe("node-1");
  });
  test("it may use the reserved node where it surely ends in time, and not otherwise", () => {
    const live = [aLive(1, 1, { estimatedEnd: NOW + 30 * MINUTE })];
    const head = aSession(1, { slots: full });
    const fitsBefore = 30 * MINUTE - START_ALLOWANCE_MS;
    const attempt = (timeoutMs: number | null) =>
      plan({ nodes: [aNode(1)], live, pending: [head, aSession(2, { timeoutMs })] });
    expect(placed(attempt(fitsBefore))).toEqual([[sessionId(2), agentId(1)]]);
    expect(attempt(fitsBefore + 1).placements).toEqual([]);
    expect(attempt(null).placements).toEqual([]);
  });
  test("it may use the reserved node where there is room for both, as often as there is", () => {
    const live = [aLive(1, 1, { slots: { cpu: 2000, mem: GIB }, estimatedEnd: NOW + MINUTE })];
    const head = aSession(1, { slots: { cpu: 3000, mem: GIB } });
    const result = plan({ nodes: [aNode(1)], live, pending: [head, aSession(2), aSession(3)] });
    expect(placed(result)).toEqual([[sessionId(2), agentId(1)]]);
    expect(waitOf(result, 3).code).toBe("held-back");
  });
  test("who waits for a GPU alone does not hold back those who need none", () => {
    const node = aNode(1, { capacity: { cpu: 4000, mem: 8 * GIB, "cuda.device": 1 } });
    const gpu = { cpu: 1000, mem: GIB, "cuda.device": 1 };
    const pending = [aSession(1, { slots: gpu }), ...[2, 3, 4].map((n) => aSession(n))];
    const result = plan({ nodes: [node], live: [aLive(1, 1, { slots: gpu })], pending });
    expect(placed(result)).toEqual([2, 3].map((n) => [sessionId(n), agentId(1)]));
  });
  test("who fits no ready node blocks nobody", () => {
    const huge = aSession(1, { slots: { cpu: 64_000, mem: GIB } });
    const result = plan({ nodes: [aNode(1)], pending: [huge, aSession(2)] });
    expect(placed(result)).toEqual([[sessionId(2), agentId(1)]]);
  });
  test("an end that is overdue counts as an end that may come at any moment", () => {
    const live = [aLive(1, 1, { estimatedEnd: NOW - MINUTE })];
    const pending = [aSession(1, { slots: full }), aSession(2, { timeoutMs: 1000 })];
    expect(plan({ nodes: [aNode(1)], live, pending }).placements).toEqual([]);
  });
  test("the name of another owner's session is not told", () => {
    const pending = [aSession(1, { slots: full, ownerId: userId(2) }), aSession(2)];
    const result = plan({ nodes: [aNode(1)], live: [aLive(1, 1)], pending });
    expect(waitOf(result, 2).sentence).toBe(
      "It is held back so that the session at position 1 can start on node-1.",
    );
  });
});

describe("reasons", () => {
  const reasonOf = (snapshot: Partial<SchedulingSnapshot>, session = aSession(1)) => {
    const { code, sentence } = waitOf(plan({ ...snapshot, pending: [session] }), 1);
    return `${code}: ${sentence}`;
  };
  test("no room says what is asked for and what there is", () => {
    const live = [aLive(1, 1, { slots: { cpu: 2500, mem: 5 * GIB } }), aLive(2, 2, { slots: full })];
    const session = aSession(1, { slots: { cpu: 4000, mem: 8 * GIB } });
    expect(reasonOf({ nodes: [aNode(1), aNode(2)], live }, session)).toBe(
      "no-room: It needs 4 CPUs and 8 GiB; the most that any ready node of the group default has free is " +
        "1.5 CPUs and 3 GiB (node-1). Room is held for it on node-1.",
    );
  });
  test("no room with known ends says when there will be", () => {
    const live = [aLive(1, 1, { slots: full, estimatedEnd: NOW + 90 * MINUTE })];
    expect(reasonOf({ nodes: [aNode(1)], live })).toEndWith(
      "0 CPUs and 7 GiB (node-1). It will find room on node-1 by 2023-11-14T23:43:20Z.",
    );
  });
  test("no node at all", () => {
    expect(reasonOf({})).toBe("no-node: No node is registered yet.");
  });
  test("nodes that are not ready are counted by what is the matter", () => {
    const lost = aNode(1, { alive: false, reconciled: false });
    const fresh = aNode(2, { reconciled: false });
    const off = aNode(3, { schedulable: false });
    expect(reasonOf({ nodes: [lost, fresh, off] })).toBe(
      "no-ready-node: No node of the group default is ready: 1 is lost, 1 has not reported yet and " +
        "1 is set unschedulable.",
    );
    expect(reasonOf({ nodes: [off] })).toBe(
      "nodes-unschedulable: All nodes of the group default are set unschedulable.",
    );
  });
  test("no node of the right kind", () => {
    const session = aSession(1, { imageNeedsHost: true, arch: "arm64" });
    expect(reasonOf({ nodes: [aNode(1)] }, session)).toBe(
      "no-matching-node: No ready node of the group default runs arm64 images and offers the host environment.",
    );
  });
  test("too large for what is ready, with the lost node that could", () => {
    const big = aNode(2, { capacity: { cpu: 64_000, mem: 64 * GIB }, alive: false });
    const session = aSession(1, { slots: { cpu: 8000, mem: GIB } });
    expect(reasonOf({ nodes: [aNode(1), big] }, session)).toBe(
      "too-large: It needs 8 CPUs and 1 GiB; the largest ready node of the group default, node-1, gives " +
        "4 CPUs and 8 GiB at the most, and node-2 is lost.",
    );
  });
  test("rules of the group and the start time", () => {
    expect(reasonOf({ groups: [aGroup({ active: false })], nodes: [aNode(1)] })).toStartWith(
      "group-inactive:",
    );
    expect(reasonOf({ groups: [aGroup({ allowedTypes: ["interactive"] })], nodes: [aNode(1)] })).toBe(
      "type-not-allowed: The resource group default now takes only interactive sessions.",
    );
    expect(reasonOf({ groups: [] })).toStartWith("unknown-group:");
    const later = plan({ nodes: [aNode(1)], pending: [aSession(1, { startsAt: NOW + 1 })] });
    expect(waitOf(later, 1)).toMatchObject({ code: "starts-later", position: null });
    expect(later.nextChangeAt).toBe(NOW + 1);
  });
});

describe("pending timeout", () => {
  const groups = [aGroup({ pendingTimeoutMs: 10 * MINUTE })];
  const live = [aLive(1, 1, { slots: full })];
  test("gives up exactly when the time is over, counted from the start time where that is later", () => {
    const pending = [aSession(1), aSession(2, { startsAt: NOW + MINUTE })];
    const before = plan({ groups, nodes: [aNode(1)], live, pending }, NOW + 10 * MINUTE - 1);
    expect(before.timeouts).toEqual([]);
    expect(before.nextChangeAt).toBe(NOW + 10 * MINUTE);
    const after = plan({ groups, nodes: [aNode(1)], live, pending }, NOW + 10 * MINUTE);
    expect(after.timeouts.map((t) => t.sessionId)).toEqual([sessionId(1)]);
    expect(after.timeouts[0]?.sentence).toContain("10m");
  });
  test("what a session was queued with goes before what the group says now", () => {
    const pending = [aSession(1, { pendingTimeoutMs: MINUTE }), aSession(2, { pendingTimeoutMs: null })];
    const result = plan({ groups, nodes: [aNode(1)], live, pending }, NOW + 60 * MINUTE);
    expect(result.timeouts.map((t) => t.sessionId)).toEqual([sessionId(1)]);
    expect(waitOf(result, 2).code).toBe("no-room");
  });
  test("who finds room in that moment starts", () => {
    const result = plan({ groups, nodes: [aNode(1)], pending: [aSession(1)] }, NOW + 60 * MINUTE);
    expect(result.placements).toHaveLength(1);
  });
  test("who is given up holds nobody back", () => {
    const pending = [aSession(1, { slots: full }), aSession(2, { enqueuedAt: NOW + MINUTE })];
    const result = plan({ groups, nodes: [aNode(1)], live: [aLive(1, 1)], pending }, NOW + 10 * MINUTE);
    expect(result.timeouts.map((t) => t.sessionId)).toEqual([sessionId(1)]);
    expect(result.placements.map((p) => p.sessionId)).toEqual([sessionId(2)]);
  });
});

describe("readiness", () => {
  test.each([
    ["lost", { alive: false }],
    ["not reconciled", { reconciled: false }],
    ["unschedulable", { schedulable: false }],
  ])("a node that is %s takes nothing", (_, state) => {
    expect(plan({ nodes: [aNode(1, state)], pending: [aSession(1)] }).placements).toEqual([]);
  });
});

describe("nothing that is said of one session stops the others", () => {
  test("a run time beyond every date counts as an end that is not known", () => {
    const result = plan({
      nodes: [aNode(1)],
      pending: [
        aSession(1, { slots: full, timeoutMs: Number.MAX_SAFE_INTEGER }),
        aSession(2, { slots: full }),
      ],
    });
    expect(placed(result)).toEqual([[sessionId(1), agentId(1)]]);
    expect(waitOf(result, 2).details).toMatchObject({ expectedBy: null });
    expect(estimateEnd(NOW, Number.MAX_SAFE_INTEGER)).toBeNull();
    expect(momentInWords(Number.MAX_SAFE_INTEGER)).toBe("a moment after the year 9999");
    expect(momentInWords(Number.NaN)).toBe("a moment after the year 9999");
  });

  test("a fault in the words keeps the plan, and is handed back", () => {
    const fault = new Error("no words");
    const held = {
      ...aSession(3, { slots: { cpu: 3000, mem: GIB } }),
      get name(): string {
        throw fault;
      },
    };
    const faulty = plan({
      nodes: [aNode(1, { capacity: { cpu: 3500, mem: 8 * GIB } })],
      live: [aLive(1, 1)],
      pending: [held, aSession(4), aSession(5, { priority: 50 })],
    });
    expect(placed(faulty)).toEqual([[sessionId(5), agentId(1)]]);
    expect(waitOf(faulty, 4).code).toBe("unexplained");
    expect(faulty.faults).toEqual([fault]);
  });
});
