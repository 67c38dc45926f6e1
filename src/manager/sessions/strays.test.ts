import { describe, expect, test } from "bun:test";
import { manualClock } from "../../kit/clock.ts";
import { type AgentId, newId } from "../../kit/ids.ts";
import { silentLogger } from "../../kit/log.ts";
import { KernelPhase, type KernelStatus, type ManagerMessage } from "../../wire/generated/berth.ts";
import { createStrays } from "./strays.ts";
import { STATUS } from "./test-bench.ts";

const clock = manualClock();
const agent = newId<AgentId>(clock);
const statusOf = (phase: KernelPhase): KernelStatus => ({
  ...STATUS,
  kernelId: "kernel-1",
  sessionId: "session-1",
  phase,
});

/** Strays of an agent that answers every command with the kernel's status, as agents do. */
function withAnswers(phase: KernelPhase) {
  const sent: string[] = [];
  const strays = createStrays({
    clock,
    log: silentLogger,
    agents: {
      ready: () => true,
      send: async (_agent, message: ManagerMessage["body"] & {}) => {
        sent.push(message.$case);
        // Enough to see a loop, and an end for the test that has one.
        if (sent.length > 50) return;
        if (message.$case === "stopKernel") strays.note(agent, statusOf(phase), "stale");
        strays.note(agent, statusOf(KernelPhase.GONE), "stale");
      },
      openStream: () => Promise.reject(new Error("no streams here")),
    },
  });
  return { strays, sent };
}

async function settle(): Promise<void> {
  for (let turn = 0; turn < 200; turn++) await Promise.resolve();
}

describe("kernels of an earlier generation", () => {
  for (const phase of [KernelPhase.GONE, KernelPhase.FAILED]) {
    test(`what is ${KernelPhase[phase]} is forgotten once and never stopped`, async () => {
      const { strays, sent } = withAnswers(phase);
      strays.note(agent, statusOf(phase), "stale");
      await settle();
      expect(sent).toEqual(["forgetKernel"]);
    });
  }

  test("what runs is stopped after a grace, once", async () => {
    const { strays, sent } = withAnswers(KernelPhase.EXITED);
    strays.note(agent, statusOf(KernelPhase.RUNNING), "stale");
    await settle();
    expect(sent).toEqual([]);
    clock.advance(60_000);
    strays.note(agent, statusOf(KernelPhase.RUNNING), "stale");
    await settle();
    expect(sent).toEqual(["stopKernel", "forgetKernel"]);
  });

  test("a word that was lost is said again later", async () => {
    const { strays, sent } = withAnswers(KernelPhase.FAILED);
    strays.note(agent, statusOf(KernelPhase.FAILED), "stale");
    clock.advance(60_000);
    strays.note(agent, statusOf(KernelPhase.FAILED), "stale");
    await settle();
    expect(sent).toEqual(["forgetKernel", "forgetKernel"]);
  });
});
