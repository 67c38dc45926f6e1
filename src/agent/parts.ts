import { join } from "node:path";
import type { Clock } from "../kit/clock.ts";
import type { Logger } from "../kit/log.ts";
import type { Shutdown } from "../kit/shutdown.ts";
import { createWorkQueue } from "../kit/workqueue.ts";
import { createDataDialer } from "../wire/data-dialer.ts";
import type { AgentConfig } from "./config.ts";
import { createDockerEngine } from "./engine/docker.ts";
import type { Engine, Ownership } from "./engine/engine.ts";
import { createExecIds } from "./gateway/exec-ids.ts";
import { createGateway } from "./gateway/gateway.ts";
import { createHealth } from "./health.ts";
import type { IdentityStore } from "./identity.ts";
import { createImages } from "./images/images.ts";
import { createEngineWatch } from "./kernels/engine-watch.ts";
import { createRecordStore, keyOf } from "./kernels/record.ts";
import { createSupervisor } from "./kernels/supervisor.ts";
import { createCommands } from "./link/commands.ts";
import { createManagerLink, type LinkState } from "./link/link.ts";
import { createOutbox } from "./link/outbox.ts";
import { createLogStore } from "./logs/store.ts";
import { createNodeFacts, processAge, readBootId } from "./node.ts";
import { createNodeMeter } from "./usage/node.ts";
import { createUsageSource } from "./usage-report.ts";

export type PartsOptions = {
  readonly config: AgentConfig;
  readonly clock: Clock;
  readonly log: Logger;
  /** Another engine than Docker, for tests. */
  readonly engine?: (ownership: Ownership) => Engine;
  readonly identity: IdentityStore;
  readonly shutdown: Shutdown;
  readonly onState: (state: LinkState, message: string) => void;
};

/** Messages that may wait for the manager; statuses of one kernel count once. */
const OUTBOX_LIMIT = 20_000;

/** The node's engine, as the owner sees it. */
export function engineOf(
  { config, clock, log, engine }: Omit<PartsOptions, "identity" | "shutdown" | "onState">,
  { agentId, clusterId }: Ownership,
): Engine {
  const ownership = { clusterId, agentId };
  if (engine !== undefined) return engine(ownership);
  return createDockerEngine({
    socketPath: config.engineSocket,
    ownership,
    dataDir: config.dataDir,
    scratchMode: config.scratchMode,
    ...(config.subnetPool !== undefined && { subnetPool: config.subnetPool }),
    clock,
    log: log.child({ part: "engine" }),
  });
}

/** What runs kernels on this node, whether or not there is a manager. */
function createNodeParts(options: PartsOptions) {
  const { config, clock, log, shutdown } = options;
  const { dataDir } = config;
  const engine = engineOf(options, options.identity);
  const outbox = createOutbox({ limit: OUTBOX_LIMIT, log });
  const engineWatch = createEngineWatch({ engine, clock, log });
  const meter = createNodeMeter({ dataDir });
  const logs = createLogStore({ dir: join(dataDir, "logs"), defaultLimitBytes: config.logLimit, log });
  shutdown.add("logs", logs.close);
  const images = createImages({
    engine,
    clock,
    log,
    onProgress: (progress) => {
      outbox.put(`pull:${progress.pullId}`, () => ({ $case: "pullProgress", value: progress }));
    },
  });
  shutdown.add("images", images.close);
  const supervisor = createSupervisor({
    engine,
    engineWatch,
    images,
    logs,
    records: createRecordStore({ dir: join(dataDir, "kernels"), clock, log }),
    clock,
    log,
    bootId: readBootId(),
    ageOf: processAge,
    onStatus: (status) =>
      outbox.put(`kernel:${keyOf(status)}`, () => ({ $case: "kernelStatus", value: status })),
  });
  shutdown.add("kernels", supervisor.close);
  const health = createHealth({
    dataDir,
    clock,
    engineReachable: engineWatch.reachable,
    engineProblems: engine.problems,
    onChange: () => outbox.put("health", () => ({ $case: "health", value: health.report() })),
  });
  const facts = createNodeFacts({ config, engine, engineWatch, meter });
  const usage = createUsageSource({ engine, supervisor, meter, clock, log });
  const execIds = createExecIds({ dir: join(dataDir, "execs"), log });
  return { engine, outbox, engineWatch, logs, images, supervisor, health, facts, usage, execIds };
}
type NodeParts = ReturnType<typeof createNodeParts>;

/** What the manager reaches the node by. */
function createLinkParts(options: PartsOptions, parts: NodeParts) {
  const { config, identity, clock, log, shutdown } = options;
  const { engine, engineWatch, outbox, logs, images, supervisor, health, facts, usage, execIds } = parts;
  const dialer = createDataDialer({ ...identity.address(), credentials: identity.credentials, clock, log });
  shutdown.add("data streams", dialer.close);
  const gateway = createGateway({ engine, supervisor, logs, execIds, clock, log, open: dialer.open });
  shutdown.add("gateway", gateway.close);
  const onCommand = createCommands({
    supervisor,
    images,
    gateway,
    outbox,
    log,
    defaults: { scratchBytes: config.scratchSize, logLimitBytes: config.logLimit },
    onImagesChanged: () => imageLooks.add("images"),
  });
  const link = createManagerLink({
    identity,
    bootId: readBootId(),
    outbox,
    clock,
    log,
    node: facts.read,
    fullReport: (seq) => ({
      $case: "fullReport",
      value: {
        seq,
        kernels: [...supervisor.statuses()],
        images: [...images.list()],
        engineReachable: engineWatch.reachable() && supervisor.hasAdopted(),
        node: facts.last(),
      },
    }),
    usage: async () => ({ $case: "usage", value: await usage.sample() }),
    health: () => ({ $case: "health", value: health.report() }),
    onCommand,
    onUp: (_, skewMs) => {
      health.noteSkew(skewMs);
      void health.check();
      dialer.warm();
    },
    onDown: dialer.cool,
    onState: options.onState,
  });
  // A pull of many layers gives many events: a look that is asked for during a look is made once, after it.
  const imageLooks = createWorkQueue<"images">({
    clock,
    run: async () => {
      if (engineWatch.reachable() && (await images.refresh())) link.report();
    },
    concurrency: 1,
    backoff: { firstMs: 1000, maxMs: 60_000 },
    log,
  });
  shutdown.add("image list", imageLooks.close);
  return { link, lookAtImages: () => imageLooks.add("images") };
}

/** Builds every part of an agent; nothing runs yet. What needs an end is registered with `shutdown`. */
export function createParts(options: PartsOptions) {
  const node = createNodeParts(options);
  return { ...node, ...createLinkParts(options, node) };
}
export type Parts = ReturnType<typeof createParts>;
