import { systemClock } from "../kit/clock.ts";
import { createLogger } from "../kit/log.ts";
import { lockDataDir } from "./agent.ts";
import { clearNode } from "./clear.ts";
import { agentOptions, loadAgentConfig } from "./config.ts";
import { createDockerEngine } from "./engine/docker.ts";
import { knownIdentity } from "./identity.ts";

const HELP = `berth agent-cleanup: ends this node's sessions and removes what Berth made on it; its data folder stays

Options are those of \`berth agent\`, as flags, variables, or keys of the file that --config names:
${agentOptions}
`;

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
  const known = knownIdentity(config.dataDir);
  if (known === undefined) {
    console.log(`No node has joined with the data folder ${config.dataDir}: there is nothing to remove.`);
    return 0;
  }
  const log = createLogger({ level: "warn", name: "agent-cleanup" });
  const lock = lockDataDir(config.dataDir);
  try {
    const { agentId, clusterId } = known;
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
