import type { Clock } from "../../kit/clock.ts";
import type { AgentId } from "../../kit/ids.ts";
import type { Logger } from "../../kit/log.ts";
import type { AgentPort } from "../agents/ports.ts";
import type { Observations } from "./observed.ts";
import type { KernelRow } from "./repository.ts";

/** How long a node that is removed may take to end its containers before it is let go, in ms. */
const WAIT_MS = 5_000;
const LOOK_MS = 250;

/**
 * Has an agent that is to be removed end and delete its containers, and waits a few seconds for that. An agent
 * that is not connected, or takes longer, is left as it is: it never throws.
 */
export function createVacate(deps: {
  readonly clock: Clock;
  readonly log: Logger;
  readonly agents: Pick<AgentPort, "send">;
  readonly observed: Pick<Observations, "get">;
}): (agent: AgentId, kernels: readonly KernelRow[]) => Promise<void> {
  const { clock, log, agents, observed } = deps;

  async function order(agent: AgentId, kernels: readonly KernelRow[]): Promise<void> {
    for (const { id: kernelId, session_id: sessionId, generation } of kernels) {
      const stop = { kernelId, sessionId, generation, graceMs: 0, force: true };
      await agents.send(agent, { $case: "stopKernel", value: stop });
      await agents.send(agent, { $case: "forgetKernel", value: { kernelId, generation } });
    }
  }

  return async (agent, kernels) => {
    try {
      await order(agent, kernels);
    } catch (err) {
      log.warn({ err, agent }, "a node that is removed could not be told to end its containers");
      return;
    }
    const until = clock.mono() + WAIT_MS;
    const left = () => kernels.filter((kernel) => observed.get(kernel.id)?.phase !== "gone").length;
    while (left() > 0 && clock.mono() < until) await clock.sleep(LOOK_MS);
    if (left() > 0) log.warn({ agent, kernels: left() }, "a removed node may still have containers");
  };
}
