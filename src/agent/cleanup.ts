import { existsSync } from "node:fs";
import { join } from "node:path";
import { systemClock } from "../kit/clock.ts";
import { createLogger } from "../kit/log.ts";
import { lockDataDir } from "./agent.ts";
import { agentOptions, loadAgentConfig } from "./config.ts";
import { createDockerEngine } from "./engine/docker.ts";
import type { Engine } from "./engine/engine.ts";
import { openIdentity } from "./identity.ts";

/** Time that sessions get to end by themselves, in ms. */
const GRACE_MS = 5000;

const HELP = `berth agent-cleanup: ends this node's sessions and removes what Berth made on it; its data folder stays

Options are those of \`berth agent\`, as flags, variables, or keys of the file that --config names:
${agentOptions}
`;

/** Ends every session of this agent and removes what it made on the node; its data folder stays. */
async function clearNode(engine: Engine): Promise<number> {
  const kernels = await engine.listKernels();
  await Promise.all(
    kernels.map(async (kernel) => {
      if (kernel.state.kind === "running") await engine.stopContainer(kernel.containerId, GRACE_MS);
      await engine.removeKernel(kernel);
    }),
  );
  for (const leftover of await engine.listLeftovers()) await engine.removeKernel(leftover);
  await engine.removeNode();
  return kernels.length;
}

/**
 * `berth agent-cleanup`, for uninstalling: takes the agent's options, and refuses while an agent runs on the same
 * data folder. Throws `data-dir-in-use`, `engine-unreachable`.
 */
export async function runCleanup(argv: readonly string[]): Promise<number> {
  if (argv.includes("--help") || argv.includes("-h")) {
    console.log(HELP);
    return 0;
  }
  const { value: config } = loadAgentConfig({ argv });
  if (!existsSync(join(config.dataDir, "identity.json"))) {
    console.log(`No node has joined with the data folder ${config.dataDir}: there is nothing to remove.`);
    return 0;
  }
  const log = createLogger({ level: "warn", name: "agent-cleanup" });
  const lock = lockDataDir(config.dataDir);
  try {
    const { agentId, clusterId } = await openIdentity({ config, clock: systemClock, log });
    const engine = createDockerEngine({
      socketPath: config.engineSocket,
      ownership: { agentId, clusterId },
      dataDir: config.dataDir,
      scratchMode: config.scratchMode,
      clock: systemClock,
      log,
    });
    const ended = await clearNode(engine);
    console.log(
      `Removed ${ended} ${ended === 1 ? "session" : "sessions"}, the network and the firewall rules.`,
    );
    return 0;
  } finally {
    lock.release();
  }
}
