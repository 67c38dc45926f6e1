import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { addSlots, fitsSlots, missingSlots, subtractSlots } from "../../kit/slots.ts";
import { aGroup, agentId, aLive, aNode, aSession, GIB, groupId, kernelId, NOW } from "./fixtures.ts";
import { comparePending } from "./order.ts";
import { estimateEnd, plan } from "./plan.ts";
import { isReady, suits, usableSlots } from "./room.ts";
import type { LiveAllocation, NodeSnapshot, PendingSession, Plan, SchedulingSnapshot } from "./types.ts";

const MINUTE = 60_000;

const arbSlots = fc
  .record({ cpu: fc.integer({ min: 1, max: 8 }), mem: fc.integer({ min: 1, max: 8 }), gpu: fc.nat(2) })
  .map(({ cpu, mem, gpu }) => ({ cpu: cpu * 500, mem: mem * GIB, ...(gpu > 0 ? { gpu } : {}) }));

const arbNode = (n: number, alwaysReady: boolean) =>
  fc
    .record({
      group: alwaysReady ? fc.constant(1) : fc.integer({ min: 1, max: 2 }),
      cpu: fc.integer({ min: 1, max: 8 }),
      mem: fc.integer({ min: 2, max: 12 }),
      gpu: fc.nat(2),
      reservedCpu: fc.nat(1),
      ready: alwaysReady ? fc.constant(0) : fc.nat(5),
      host: fc.boolean(),
    })
    .map(({ group, cpu, mem, gpu, reservedCpu, ready, host }) =>
      aNode(n, {
        groupId: groupId(group),
        capacity: { cpu: cpu * 1000, mem: mem * GIB, gpu },
        reserved: { cpu: reservedCpu * 500, mem: 0 },
        alive: ready !== 1,
        reconciled: ready !== 2,
        schedulable: ready !== 3,
        hostEnvironment: alwaysReady || host,
      }),
    );

const arbNodes = (alwaysReady: boolean, max: number) =>
  fc
    .integer({ min: alwaysReady ? 1 : 0, max })
    .chain((count) => fc.tuple(...Array.from({ length: count }, (_, i) => arbNode(i + 1, alwaysReady))));

const arbTimeout = fc.option(
  fc.integer({ min: 1, max: 120 }).map((m) => m * MINUTE),
  { freq: 2 },
);

const arbPending = (n: number) =>
  fc
    .record({
      group: fc.integer({ min: 1, max: 3 }),
      slots: arbSlots,
      priority: fc.constantFrom(0, 10, 20),
      timeoutMs: arbTimeout,
      imageNeedsHost: fc.boolean(),
      type: fc.constantFrom("batch" as const, "interactive" as const, "system" as const),
      startsAt: fc.option(fc.integer({ min: NOW - MINUTE, max: NOW + MINUTE }), { freq: 3 }),
      enqueuedAt: fc.integer({ min: NOW - 20 * MINUTE, max: NOW }),
      avoid: fc.option(fc.integer({ min: 1, max: 4 }), { freq: 3 }),
    })
    .map(({ group, avoid, ...rest }) =>
      aSession(n, { ...rest, groupId: groupId(group), avoidAgents: avoid === null ? [] : [agentId(avoid)] }),
    );

const arbGroup = (n: number) =>
  fc
    .record({
      scheduler: fc.constantFrom("fifo" as const, "lifo" as const),
      placement: fc.constantFrom("dispersed" as const, "concentrated" as const, "round-robin" as const),
      pendingTimeoutMs: fc.option(fc.constant(15 * MINUTE)),
      active: fc.integer({ min: 0, max: 7 }).map((x) => x > 0),
      cursor: fc.option(fc.integer({ min: 1, max: 6 })),
    })
    .map(({ cursor, ...rest }) =>
      aGroup({ ...rest, id: groupId(n), roundRobinCursor: cursor === null ? null : agentId(cursor) }),
    );

const arbSnapshot: fc.Arbitrary<SchedulingSnapshot> = fc.record({
  groups: fc.tuple(arbGroup(1), arbGroup(2)),
  nodes: arbNodes(false, 5),
  live: fc
    .array(fc.record({ agent: fc.integer({ min: 1, max: 5 }), slots: arbSlots, end: arbTimeout }), {
      maxLength: 6,
    })
    .map((uses) =>
      uses.map(({ agent, slots, end }, i) =>
        aLive(i + 1, agent, { slots, estimatedEnd: end === null ? null : NOW - 30 * MINUTE + end }),
      ),
    ),
  pending: fc
    .integer({ min: 0, max: 14 })
    .chain((count) => fc.tuple(...Array.from({ length: count }, (_, i) => arbPending(i + 1)))),
});

function byId(pending: readonly PendingSession[], id: string): PendingSession {
  const session = pending.find((s) => s.sessionId === id);
  if (session === undefined) throw new Error(`no session ${id}`);
  return session;
}

/** The allocations after a plan was carried out at `now`. */
function carryOut(snapshot: SchedulingSnapshot, result: Plan, now: number): LiveAllocation[] {
  return result.placements.map(({ sessionId, agentId }, i) => {
    const { slots, timeoutMs } = byId(snapshot.pending, sessionId);
    return {
      kernelId: kernelId(1_000_000 + i),
      sessionId,
      agentId,
      slots,
      estimatedEnd: estimateEnd(now, timeoutMs),
    };
  });
}

describe("every plan", () => {
  test("puts each pending session in exactly one of placements, waits and timeouts", () => {
    fc.assert(
      fc.property(arbSnapshot, (snapshot) => {
        const result = plan(snapshot, NOW);
        const told = [...result.placements, ...result.waits, ...result.timeouts].map((x) => x.sessionId);
        expect(told.sort()).toEqual(snapshot.pending.map((s) => s.sessionId).sort());
      }),
    );
  });

  test("never gives a node more than it has", () => {
    fc.assert(
      fc.property(arbSnapshot, (snapshot) => {
        const placed = carryOut(snapshot, plan(snapshot, NOW), NOW);
        for (const node of snapshot.nodes) {
          const before = snapshot.live.filter((use) => use.agentId === node.id).map((use) => use.slots);
          const added = placed.filter((use) => use.agentId === node.id).map((use) => use.slots);
          if (added.length === 0) continue;
          const sum = added.reduce((a, b) => addSlots(a, b));
          const room = before.reduce((free, slots) => subtractSlots(free, slots), usableSlots(node));
          expect(missingSlots(sum, room)).toEqual({});
        }
      }),
    );
  });

  test("places only what may start, on ready nodes of its group that suit it", () => {
    fc.assert(
      fc.property(arbSnapshot, (snapshot) => {
        for (const { sessionId, agentId } of plan(snapshot, NOW).placements) {
          const session = byId(snapshot.pending, sessionId);
          const node = snapshot.nodes.find((n) => n.id === agentId);
          const group = snapshot.groups.find((g) => g.id === session.groupId);
          if (node === undefined || group === undefined) throw new Error("placed on nothing");
          expect(isReady(node) && suits(node, session) && node.groupId === session.groupId).toBe(true);
          expect(group.active && group.allowedTypes.includes(session.type)).toBe(true);
          expect(session.startsAt ?? 0).toBeLessThanOrEqual(NOW);
        }
      }),
    );
  });

  test("lets nobody overtake a session of the same shape", () => {
    fc.assert(
      fc.property(arbSnapshot, (snapshot) => {
        const result = plan(snapshot, NOW);
        const shape = (s: PendingSession) =>
          JSON.stringify([s.groupId, s.slots, s.timeoutMs, s.imageNeedsHost, s.avoidAgents]);
        for (const { sessionId } of result.placements) {
          const placed = byId(snapshot.pending, sessionId);
          const scheduler = snapshot.groups.find((g) => g.id === placed.groupId)?.scheduler ?? "fifo";
          for (const wait of result.waits) {
            const waiting = byId(snapshot.pending, wait.sessionId);
            const byRule = wait.code === "starts-later" || wait.code === "type-not-allowed";
            if (byRule || shape(waiting) !== shape(placed)) continue;
            expect(comparePending(scheduler)(placed, waiting)).toBeLessThan(0);
          }
        }
      }),
    );
  });

  test("is the same whatever the order of the lists, and does not change its input", () => {
    fc.assert(
      fc.property(arbSnapshot, (snapshot) => {
        const before = JSON.stringify(snapshot);
        const once = plan(snapshot, NOW);
        const again = plan(
          {
            groups: snapshot.groups,
            nodes: snapshot.nodes.toReversed(),
            live: snapshot.live.toReversed(),
            pending: snapshot.pending.toReversed(),
          },
          NOW,
        );
        expect(again).toEqual(once);
        expect(JSON.stringify(snapshot)).toBe(before);
      }),
    );
  });

  test("is complete: carried out, the next plan at the same moment starts nothing and tells the same", () => {
    fc.assert(
      fc.property(arbSnapshot, (snapshot) => {
        const first = plan(snapshot, NOW);
        const rest = new Set(first.waits.map((wait) => wait.sessionId));
        const next = plan(
          {
            ...snapshot,
            pending: snapshot.pending.filter((s) => rest.has(s.sessionId)),
            live: [...snapshot.live, ...carryOut(snapshot, first, NOW)],
            groups: snapshot.groups.map((g) => ({
              ...g,
              roundRobinCursor: first.cursors.get(g.id) ?? g.roundRobinCursor,
            })),
          },
          NOW,
        );
        expect(next.placements).toEqual([]);
        expect(next.waits).toEqual([...first.waits]);
      }),
    );
  });
});

type Job = { readonly session: PendingSession; readonly arrives: number; readonly runsMs: number };

/** Runs a cluster from plan to plan, jumping from event to event; tells when each session started. */
function simulate(nodes: readonly NodeSnapshot[], jobs: readonly Job[], live: readonly LiveAllocation[]) {
  const started = new Map<string, number>();
  const runs = new Map(jobs.map((job) => [job.session.sessionId, job.runsMs]));
  const running = new Map(live.map((use) => [use, runs.get(use.sessionId) ?? use.estimatedEnd ?? NOW]));
  const group = aGroup({ placement: "concentrated" });
  for (let now = NOW, steps = 0; steps < 500; steps++) {
    for (const [use, end] of running) if (end <= now) running.delete(use);
    const pending = jobs
      .filter((job) => job.arrives <= now && !started.has(job.session.sessionId))
      .map((job) => job.session);
    const snapshot = { groups: [group], nodes, live: [...running.keys()], pending };
    for (const use of carryOut(snapshot, plan(snapshot, now), now)) {
      started.set(use.sessionId, now);
      running.set(use, use.estimatedEnd ?? now + (runs.get(use.sessionId) ?? 0));
    }
    const events = [...running.values(), ...jobs.map((job) => job.arrives)].filter((at) => at > now);
    if (events.length === 0) return started;
    now = Math.min(...events);
  }
  throw new Error("the simulation does not end");
}

const arbRun = fc.integer({ min: 1, max: 90 }).map((m) => m * MINUTE);
const arbJob = (timeout: "known" | "unknown" | "any") =>
  fc
    .record({ slots: arbSlots, runsMs: arbRun, later: fc.nat(40), known: fc.boolean() })
    .map(({ slots, runsMs, later, known }) => (n: number): Job => {
      const tells = timeout === "known" || (timeout === "any" && known);
      const session = aSession(n, { slots, timeoutMs: tells ? runsMs : null });
      return { session, arrives: NOW + later * MINUTE, runsMs };
    });

/** The start of the first blocked session, with and without everything that is ordered behind it. */
function headStarts(
  nodes: readonly NodeSnapshot[],
  first: readonly Job[],
  behind: readonly Job[],
): { alone: number; crowded: number } | null {
  const pending = first.map((job) => job.session);
  const snapshot = { groups: [aGroup({ placement: "concentrated" })], nodes, live: [], pending };
  const head = plan(snapshot, NOW).waits.find((wait) => wait.details.reservedNode !== undefined);
  if (head === undefined) return null;
  const upTo = first.filter((job) => job.session.seq <= byId(pending, head.sessionId).seq);
  const rest = first.filter((job) => !upTo.includes(job));
  const alone = simulate(nodes, upTo, []).get(head.sessionId);
  const crowded = simulate(nodes, [...upTo, ...rest, ...behind], []).get(head.sessionId);
  if (alone === undefined || crowded === undefined) throw new Error("the head never starts");
  return { alone, crowded };
}

describe("the first blocked session", () => {
  const arbWorld = (timeout: "known" | "unknown", behind: "known" | "any", nodes: number) =>
    fc.record({
      nodes: arbNodes(true, nodes),
      first: fc.array(arbJob(timeout), { minLength: 2, maxLength: 8 }),
      behind: fc.array(arbJob(behind), { minLength: 1, maxLength: 12 }),
    });
  let checked = 0;
  const neverDelayed = (world: {
    nodes: readonly NodeSnapshot[];
    first: readonly ((n: number) => Job)[];
    behind: readonly ((n: number) => Job)[];
  }) => {
    const first = world.first.map((make, i) => ({ ...make(i + 1), arrives: NOW }));
    const behind = world.behind.map((make, i) => make(first.length + i + 1));
    const starts = headStarts(world.nodes, first, behind);
    if (starts === null) return;
    checked += 1;
    expect(starts.crowded).toBeLessThanOrEqual(starts.alone);
  };

  test("starts no later for those behind it, on any number of nodes, when all ends are known", () => {
    checked = 0;
    fc.assert(fc.property(arbWorld("known", "known", 4), neverDelayed), { numRuns: 300 });
    expect(checked).toBeGreaterThan(50);
  });

  test("starts no later for those behind it, on one node, when no end before it is known", () => {
    checked = 0;
    fc.assert(fc.property(arbWorld("unknown", "any", 1), neverDelayed), { numRuns: 300 });
    expect(checked).toBeGreaterThan(50);
  });
});

test("a session that could fit an idle ready node is never left without a reason about room", () => {
  fc.assert(
    fc.property(arbSnapshot, (snapshot) => {
      for (const wait of plan(snapshot, NOW).waits) {
        const session = byId(snapshot.pending, wait.sessionId);
        const could = snapshot.nodes.some(
          (n) =>
            n.groupId === session.groupId &&
            isReady(n) &&
            suits(n, session) &&
            fitsSlots(session.slots, usableSlots(n)),
        );
        const aboutRoom = wait.code === "no-room" || wait.code === "held-back";
        if (aboutRoom) expect(could).toBe(true);
        if (wait.code === "too-large" || wait.code === "no-matching-node") expect(could).toBe(false);
      }
    }),
  );
});
