import { systemClock } from "../kit/clock.ts";
import { messageOf } from "../kit/errors.ts";
import { createLogger } from "../kit/log.ts";
import { endSignal, surviveFaults } from "../kit/process.ts";
import { startAgent } from "./agent.ts";
import { agentOptions, loadAgentConfig } from "./config.ts";

const HELP = `berth agent: runs sessions on this node

Options, as flags, variables, or keys of the file that --config names:
${agentOptions}
`;

/** Keeps the process alive: timers and idle sockets of ours do not. */
function stayAlive(): () => void {
  const timer = setInterval(() => {}, 2 ** 30);
  return () => clearInterval(timer);
}

/**
 * The role `berth agent`: runs until a signal; returns the exit code. An agent that the manager refuses for good stays
 * and says so in its log: ended, a service manager would only start it again.
 */
export async function runAgent(argv: readonly string[]): Promise<number> {
  if (argv.includes("--help") || argv.includes("-h")) {
    console.log(HELP);
    return 0;
  }
  const { value: config } = loadAgentConfig({ argv });
  const log = createLogger({ level: config.logLevel, name: "agent" });
  const ended = endSignal();
  const release = stayAlive();
  const agent = await startAgent({ config, clock: systemClock, log });
  surviveFaults(log);
  agent.ready.then(
    () => console.log(`Berth agent ${agent.agentId} is ready.`),
    (err: unknown) => console.error(`berth: ${messageOf(err)}`),
  );
  log.info({ signal: await ended }, "the agent stops; sessions run on");
  await agent.stop();
  release();
  return 0;
}
