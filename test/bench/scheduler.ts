/**
 * How fast the scheduler plans: `bun test/bench/scheduler.ts [pending] [nodes]`. Prints one line for
 * each situation; the targets are reasons for 10,000 waiting sessions on 100 nodes in under 500 ms and
 * 5,000 placements a second.
 */
import { aGroup, agentId, aLive, aNode, aSession, GIB, NOW } from "../../src/manager/scheduling/fixtures.ts";
import { plan } from "../../src/manager/scheduling/plan.ts";
import type { PlacementName, SchedulingSnapshot } from "../../src/manager/scheduling/types.ts";

const count = Number(process.argv[2] ?? 10_000);
const nodeCount = Number(process.argv[3] ?? 100);
const ROUNDS = 5;

const nodes = (cpu: number) =>
  Array.from({ length: nodeCount }, (_, i) =>
    aNode(i + 1, {
      capacity: { cpu, mem: 512 * GIB, ...(i % 4 === 0 ? { "cuda.device": 8 } : {}) },
      reserved: { cpu: 1000, mem: GIB },
    }),
  );

/** Sessions of `shapes` different sizes and timeouts, a tenth of them with a GPU. */
const pending = (shapes: number) =>
  Array.from({ length: count }, (_, i) => {
    const shape = i % shapes;
    return aSession(i + 1, {
      priority: (i % 3) * 10,
      timeoutMs: shape % 2 === 0 ? null : (1 + shape) * 60_000,
      slots: {
        cpu: 500 + 100 * (shape % 40),
        mem: GIB + shape * 2 ** 20,
        ...(shape % 10 === 9 ? { "cuda.device": 1 } : {}),
      },
    });
  });

const live = Array.from({ length: nodeCount * 20 }, (_, i) =>
  aLive(i + 1, 1 + (i % nodeCount), {
    slots: { cpu: 3000, mem: 8 * GIB },
    estimatedEnd: i % 3 === 0 ? NOW + (i % 500) * 60_000 : null,
  }),
);

function measure(title: string, snapshot: SchedulingSnapshot): void {
  const times: number[] = [];
  let result = plan(snapshot, NOW);
  for (let round = 0; round < ROUNDS; round++) {
    const before = performance.now();
    result = plan(snapshot, NOW);
    times.push(performance.now() - before);
  }
  const ms = times.sort((a, b) => a - b)[Math.floor(ROUNDS / 2)] ?? 0;
  const rate =
    result.placements.length === 0 ? "" : `, ${Math.round(result.placements.length / (ms / 1000))}/s`;
  const outcome = `${result.placements.length} placed${rate}, ${result.waits.length} explained`;
  console.log(`${title.padEnd(52)} ${ms.toFixed(1).padStart(8)} ms  ${outcome}`);
}

console.log(`${count} pending sessions, ${nodeCount} nodes; median of ${ROUNDS}`);
for (const placement of ["dispersed", "concentrated", "round-robin"] satisfies PlacementName[]) {
  const groups = [aGroup({ placement })];
  measure(`all find room, 20 shapes, ${placement}`, {
    groups,
    nodes: nodes(1_000_000),
    live: [],
    pending: pending(20).map((session) => ({ ...session, slots: { cpu: 500, mem: GIB } })),
  });
}
const groups = [aGroup()];
for (const shapes of [1, 20, 1000, count]) {
  measure(`full cluster, ${shapes} shapes`, { groups, nodes: nodes(61_000), live, pending: pending(shapes) });
}
const busy = nodes(128_000);
measure("half full cluster, 1000 shapes", { groups, nodes: busy, live, pending: pending(1000) });
const avoidAgents = [agentId(1)];
measure("half full cluster, each avoids a node", {
  groups,
  nodes: busy,
  live,
  pending: pending(1000).map((session) => ({ ...session, avoidAgents })),
});
