import { homedir } from "node:os";
import { join, resolve } from "node:path";
import { z } from "zod";
import { type RunningAgent, startAgent } from "./agent/agent.ts";
import { type AgentConfig, agentConfig } from "./agent/config.ts";
import { knownIdentity } from "./agent/identity.ts";
import { systemClock } from "./kit/clock.ts";
import { describeConfig, type LoadedConfig, loadConfig } from "./kit/config.ts";
import { BerthError, messageOf } from "./kit/errors.ts";
import { createLogger, type Logger } from "./kit/log.ts";
import { endSignal, surviveFaults } from "./kit/process.ts";
import {
  checkFiles,
  checkTogether,
  type ManagerConfig,
  managerConfig,
  withDerived,
} from "./manager/config.ts";
import { tellFirstAdmin } from "./manager/main.ts";
import { type RunningManager, startManager } from "./manager/manager.ts";

const DEFAULT_DIR =
  process.getuid?.() === 0 ? "/var/lib/berth/up" : join(homedir(), ".local", "share", "berth");

const { engineSocket, name, reservedCpu, reservedMem, scratchSize, scratchMode, subnetPool } =
  agentConfig.shape;

/** The manager's keys, and those of the agent that are about this node. */
const upConfig = z.object({
  ...managerConfig.shape,
  dataDir: z
    .string("must be text")
    .trim()
    .min(1, "must not be empty")
    .default(DEFAULT_DIR)
    .describe("Folder of everything: the manager's data, and the agent's below it"),
  logLevel: managerConfig.shape.logLevel.unwrap().default("warn").describe("What is logged"),
  engineSocket,
  name,
  reservedCpu,
  reservedMem,
  scratchSize,
  scratchMode,
  subnetPool,
});

const HELP = `berth up: manager and agent in one process, for one server

Options, as flags, variables, or keys of the file that --config names:
${describeConfig(upConfig)}
`;

/** How long the node may take before it is said that it does not take sessions yet. */
const NODE_WAIT_MS = 60_000;
const LOOK_MS = 50;

type Configs = {
  readonly manager: ManagerConfig;
  readonly agent: AgentConfig;
  readonly loaded: LoadedConfig<z.output<typeof upConfig>>;
};

function loadConfigs(argv: readonly string[]): Configs {
  const loaded = loadConfig({
    schema: upConfig,
    argv,
    env: process.env,
    booleans: ["behindProxy"],
    envPrefixes: ["BERTH_UP_", "BERTH_"],
  });
  const { engineSocket: socket, name: node, subnetPool: pool, ...rest } = loaded.value;
  const { reservedCpu: cpu, reservedMem: mem, scratchSize: size, scratchMode: mode, ...shared } = rest;
  const manager = { ...shared, dataDir: resolve(shared.dataDir) };
  checkTogether(manager);
  const agent = {
    ...agentConfig.parse({}),
    dataDir: join(manager.dataDir, "agent"),
    engineSocket: socket,
    name: node,
    reservedCpu: cpu,
    reservedMem: mem,
    scratchSize: size,
    scratchMode: mode,
    logLevel: manager.logLevel,
    ...(pool === undefined ? {} : { subnetPool: pool }),
  };
  return { manager, agent, loaded };
}

/** For `berth config check up`: what holds. Throws `invalid-config`. */
export async function checkUpConfig(argv: readonly string[]): Promise<Configs["loaded"]> {
  const { manager, loaded } = loadConfigs(argv);
  await checkFiles(manager);
  return withDerived(loaded);
}

/** The manager as this machine reaches it, whatever name others use. */
function localUrl(manager: RunningManager, { listen }: ManagerConfig): string {
  const { port, protocol } = new URL(manager.url);
  const host = listen.host === "0.0.0.0" || listen.host === "::" ? "127.0.0.1" : listen.host;
  return `${protocol}//${host.includes(":") ? `[${host}]` : host}:${listen.port === 0 ? port : listen.port}`;
}

async function startNode(manager: RunningManager, { agent, manager: config }: Configs, log: Logger) {
  const known = knownIdentity(agent.dataDir);
  const joined = known !== undefined && !known.removed;
  const token = joined ? {} : { token: await manager.createJoinToken() };
  const url = localUrl(manager, config);
  return startAgent({ config: { ...agent, ...token, manager: url }, clock: systemClock, log });
}

/** Waits until the node takes sessions; a node that needs longer is no reason to keep people out. */
async function nodeReady(manager: RunningManager, agent: RunningAgent, log: Logger): Promise<void> {
  const until = systemClock.mono() + NODE_WAIT_MS;
  const refused = Promise.withResolvers<never>();
  agent.ready.catch((err: unknown) => refused.reject(err));
  while (manager.agentsReady() === 0 && systemClock.mono() < until) {
    await Promise.race([systemClock.sleep(LOOK_MS), refused.promise]);
  }
  if (manager.agentsReady() === 0) log.warn("the node does not take sessions yet: berth node ls tells why");
}

/** The role `berth up`: runs until a signal; returns the exit code. Sessions outlive it. */
export async function runUp(argv: readonly string[]): Promise<number> {
  if (argv.includes("--help") || argv.includes("-h")) {
    console.log(HELP);
    return 0;
  }
  const configs = loadConfigs(argv);
  const log = createLogger({ level: configs.manager.logLevel, name: "up" });
  const ended = endSignal();
  const manager = await startManager({
    config: configs.manager,
    clock: systemClock,
    log: log.child({ part: "manager" }),
  });
  let agent: RunningAgent | undefined;
  try {
    tellFirstAdmin(manager, configs.manager.dataDir);
    agent = await startNode(manager, configs, log.child({ part: "agent" }));
    surviveFaults(log);
    const stopped = await Promise.race([ended, nodeReady(manager, agent, log)]);
    if (stopped === undefined) console.log(`Berth is ready at ${manager.url}`);
    await ended;
    return 0;
  } catch (err) {
    throw new BerthError("node-failed", `The agent of this node could not start: ${messageOf(err)}`, {
      cause: err,
    });
  } finally {
    await agent?.stop();
    await manager.stop();
  }
}
