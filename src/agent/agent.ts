import { mkdirSync } from "node:fs";
import { join } from "node:path";
import type { Clock } from "../kit/clock.ts";
import { BerthError } from "../kit/errors.ts";
import { type FileLock, tryFileLock } from "../kit/file-lock.ts";
import type { AgentId } from "../kit/ids.ts";
import type { Logger } from "../kit/log.ts";
import { createShutdown } from "../kit/shutdown.ts";
import { createDataDialer } from "../wire/data-dialer.ts";
import type { AgentConfig } from "./config.ts";
import { createDockerEngine } from "./engine/docker.ts";
import type { Engine, Ownership } from "./engine/engine.ts";
import { createExecIds } from "./gateway/exec-ids.ts";
import { createGateway } from "./gateway/gateway.ts";
import { createHealth } from "./health.ts";
import { type IdentityStore, openIdentity } from "./identity.ts";
import { createImages } from "./images/images.ts";
import { createEngineWatch, everyAlone } from "./kernels/engine-watch.ts";
import { createRecordStore, keyOf } from "./kernels/record.ts";
import { createSupervisor } from "./kernels/supervisor.ts";
import { createCommands } from "./link/commands.ts";
import { createManagerLink, type LinkState } from "./link/link.ts";
import { createOutbox } from "./link/outbox.ts";
import { createLogStore } from "./logs/store.ts";
import { createNodeFacts, processAge, readBootId } from "./node.ts";
import { createNodeMeter } from "./usage/node.ts";
import { createUsageSource } from "./usage-report.ts";

export type AgentOptions = {
  readonly config: AgentConfig;
  readonly clock: Clock;
  readonly log: Logger;
  /** Another engine than Docker, for tests. */
  readonly engine?: (ownership: Ownership) => Engine;
};

export type RunningAgent = {
  readonly agentId: AgentId;
  /** Resolves when the manager has taken the agent in; rejects when it refuses for good. */
  readonly ready: Promise<void>;
  state(): LinkState;
  /** Ends the agent in under five seconds; containers run on. */
  stop(): Promise<void>;
};

/** Engine events get lost: everything is looked at this often, in ms. */
const LOOK_MS = 30_000;
const HEALTH_MS = 10_000;
const IMAGES_MS = 60_000;
/** Messages that may wait for the manager; statuses of one kernel count once. */
const OUTBOX_LIMIT = 20_000;
/** The first full report waits this long for the engine, in ms. */
const ADOPT_WAIT_MS = 5000;
/** Each part's time to close; together they stay under five seconds. */
const CLOSE_MS = 1500;

export function lockDataDir(dataDir: string): FileLock {
  mkdirSync(dataDir, { recursive: true, mode: 0o700 });
  const lock = tryFileLock(join(dataDir, "agent.lock"));
  if (lock !== undefined) return lock;
  const sentence = `Another agent uses the data folder ${dataDir}. Stop it, or give this one another --data-dir.`;
  throw new BerthError("data-dir-in-use", sentence, { field: "dataDir" });
}

/**
 * Starts an agent: joins the cluster when the node has not joined, takes over the containers of an earlier process and
 * keeps a link to the manager. Throws when it cannot join or its data folder is in use.
 */
export async function startAgent(options: AgentOptions): Promise<RunningAgent> {
  const { config, clock, log } = options;
  const lock = lockDataDir(config.dataDir);
  try {
    const identity = await openIdentity({ config, clock, log });
    return await startParts(options, identity, lock);
  } catch (err) {
    lock.release();
    throw err;
  }
}

async function startParts(
  options: AgentOptions,
  identity: IdentityStore,
  lock: FileLock,
): Promise<RunningAgent> {
  const { config, clock, log } = options;
  const { dataDir } = config;
  const { agentId, clusterId } = identity;
  const ownership = { clusterId, agentId };
  const bootId = readBootId();
  const shutdown = createShutdown({ clock, limitMs: CLOSE_MS, log });
  shutdown.add("data folder", () => lock.release());

  const engine =
    options.engine?.(ownership) ??
    createDockerEngine({
      socketPath: config.engineSocket,
      ownership,
      dataDir,
      scratchMode: config.scratchMode,
      ...(config.subnetPool !== undefined && { subnetPool: config.subnetPool }),
      clock,
      log: log.child({ part: "engine" }),
    });
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
      if (progress.finished) void refreshImages();
    },
  });
  shutdown.add("images", images.close);
  const supervisor = createSupervisor({
    engine,
    engineWatch,
    images,
    logs,
    records: createRecordStore({ dir: join(dataDir, "kernels"), log }),
    clock,
    log,
    bootId,
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
    onChange: () => outbox.put("health", healthBody),
  });
  const healthBody = () => ({ $case: "health" as const, value: health.report() });
  const facts = createNodeFacts({ config, engine, engineWatch, meter });
  const usage = createUsageSource({ engine, supervisor, meter, clock, log });
  const dialer = createDataDialer({ ...identity.address(), credentials: identity.credentials, clock, log });
  shutdown.add("data streams", dialer.close);
  const execIds = createExecIds({ dir: join(dataDir, "execs"), log });
  const gateway = createGateway({ engine, supervisor, logs, execIds, clock, log, open: dialer.open });
  shutdown.add("gateway", gateway.close);

  let node = await facts.read();
  const link = createManagerLink({
    identity,
    bootId,
    outbox,
    clock,
    log,
    node: async () => {
      node = await facts.read();
      return node;
    },
    fullReport: (seq) => ({
      $case: "fullReport",
      value: {
        seq,
        kernels: [...supervisor.statuses()],
        images: [...images.list()],
        engineReachable: engineWatch.reachable() && supervisor.hasAdopted(),
        node,
      },
    }),
    usage: async () => ({ $case: "usage", value: await usage.sample() }),
    health: healthBody,
    onCommand: createCommands({
      supervisor,
      images,
      gateway,
      outbox,
      log,
      defaults: { scratchBytes: config.scratchSize, logLimitBytes: config.logLimit },
      onImagesChanged: () => void refreshImages(),
    }),
    onUp: (_, skewMs) => {
      health.noteSkew(skewMs);
      void health.check();
      dialer.warm();
    },
    onDown: dialer.cool,
  });

  async function refreshImages(): Promise<void> {
    try {
      if (await images.refresh()) link.report();
    } catch (err) {
      log.debug({ err }, "the images could not be listed");
    }
  }

  async function refreshNode(): Promise<void> {
    node = await facts.read();
  }

  /** The engine answers, for the first time or again. */
  async function onBack(): Promise<void> {
    await engine.prepareNode().catch((err: unknown) => {
      log.error({ err }, "the node could not be prepared for sessions; each session tries again");
    });
    await Promise.all([supervisor.lookAtAll(), execIds.endStrays(engine)]);
    await Promise.all([refreshNode(), images.refresh(), health.check()]);
    link.report();
  }

  await supervisor.start();
  engineWatch.start({
    onEvent: (event) => {
      supervisor.onEvent(event);
      if (event.kind === "image") void refreshImages();
    },
    onBack: () => {
      onBack().catch((err: unknown) => log.warn({ err }, "the engine's containers could not be looked at"));
    },
    onLost: () => {
      void health.check();
      link.report();
    },
  });
  shutdown.add("engine", engineWatch.stop);
  const whenReachable = (run: () => Promise<void>) => async () => {
    if (engineWatch.reachable()) await run();
  };
  const timers = [
    everyAlone(clock, LOOK_MS, log, whenReachable(supervisor.lookAtAll)),
    everyAlone(clock, HEALTH_MS, log, health.check),
    everyAlone(clock, IMAGES_MS, log, whenReachable(refreshImages)),
    everyAlone(clock, IMAGES_MS, log, refreshNode),
  ];
  shutdown.add("timers", () => {
    for (const cancel of timers) cancel();
  });

  // What is not in the first full report does not exist for the manager: the engine is looked at before it.
  const adoptedInTime = new AbortController();
  const late = clock.sleep(ADOPT_WAIT_MS, adoptedInTime.signal).catch(() => {});
  await Promise.race([supervisor.adopted, late]);
  adoptedInTime.abort();
  link.start();
  shutdown.add("link", link.stop);

  return { agentId, ready: link.ready, state: link.state, stop: shutdown.run };
}
