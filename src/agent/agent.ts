import { join } from "node:path";
import type { Clock } from "../kit/clock.ts";
import { prepareDataDir } from "../kit/data-dir.ts";
import { BerthError, messageOf } from "../kit/errors.ts";
import { type FileLock, tryFileLock } from "../kit/file-lock.ts";
import type { AgentId } from "../kit/ids.ts";
import type { Logger } from "../kit/log.ts";
import { createShutdown, type Shutdown } from "../kit/shutdown.ts";
import { retireIdentity } from "./clear.ts";
import type { AgentConfig } from "./config.ts";
import type { Engine, Ownership } from "./engine/engine.ts";
import { openIdentity } from "./identity.ts";
import { everyAlone, within } from "./kernels/timing.ts";
import type { LinkState } from "./link/link.ts";
import { createParts, engineOf, type Parts } from "./parts.ts";
import { createStatusFile } from "./status-file.ts";

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
const SLOW_LOOK_MS = 60_000;
/** The first full report waits this long for the engine, in ms. */
const ADOPT_WAIT_MS = 5000;
/** Each part's time to close; together they stay under five seconds. */
const CLOSE_MS = 1500;

const LOCK = "agent.lock";

export function lockDataDir(dataDir: string): FileLock {
  prepareDataDir(dataDir, [LOCK, "identity.json"]);
  const lock = tryFileLock(join(dataDir, LOCK));
  if (lock !== undefined) return lock;
  const sentence = `Another agent uses the data folder ${dataDir}. Stop it, or give this one another --data-dir.`;
  throw new BerthError("data-dir-in-use", sentence, { field: "dataDir" });
}

type Timing = Pick<AgentOptions, "clock" | "log">;

/** Follows the engine: looks at everything whenever it answers anew, and at what its events name. */
async function followEngine(parts: Parts, { log }: Timing): Promise<void> {
  const { engine, engineWatch, supervisor, images, health, facts, execIds, link, lookAtImages } = parts;

  async function onBack(): Promise<void> {
    await engine.prepareNode().catch((err: unknown) => {
      log.error({ err }, "the node could not be prepared for sessions; each session tries again");
    });
    await Promise.all([supervisor.lookAtAll(), execIds.endStrays(engine)]);
    await Promise.all([facts.read(), images.refresh(), health.check()]);
    link.report();
  }

  await facts.read();
  await supervisor.start();
  engineWatch.start({
    onEvent: (event) => {
      supervisor.onEvent(event);
      if (event.kind === "image") lookAtImages();
    },
    onBack: () => {
      onBack().catch((err: unknown) => log.warn({ err }, "the engine's containers could not be looked at"));
    },
    onLost: () => {
      void health.check();
      link.report();
    },
  });
}

/** Engine events get lost and disks fill silently: looks at everything from time to time. */
function keepLooking(parts: Parts, { clock, log }: Timing): () => void {
  const { engineWatch, supervisor, health, facts, lookAtImages } = parts;
  const timers = [
    everyAlone(clock, LOOK_MS, log, async () => {
      if (engineWatch.reachable()) await supervisor.lookAtAll();
    }),
    everyAlone(clock, HEALTH_MS, log, health.check),
    everyAlone(clock, SLOW_LOOK_MS, log, async () => {
      lookAtImages();
      await facts.read();
    }),
  ];
  return () => {
    for (const cancel of timers) cancel();
  };
}

async function run(parts: Parts, timing: Timing, shutdown: Shutdown): Promise<void> {
  await followEngine(parts, timing);
  shutdown.add("engine", parts.engineWatch.stop);
  shutdown.add("timers", keepLooking(parts, timing));
  // What is not in the first full report does not exist for the manager: the engine is looked at before it.
  await within(timing.clock, ADOPT_WAIT_MS, parts.supervisor.adopted);
  parts.link.start();
  shutdown.add("link", parts.link.stop);
}

/**
 * Starts an agent: joins the cluster when the node has not joined, takes over the containers of an earlier process and
 * keeps a link to the manager. Throws when it cannot join or its data folder is in use.
 */
export async function startAgent(options: AgentOptions): Promise<RunningAgent> {
  const { config, clock, log } = options;
  const shutdown = createShutdown({ clock, limitMs: CLOSE_MS, log });
  const lock = lockDataDir(config.dataDir);
  shutdown.add("data folder", lock.release);
  const noteState = createStatusFile({ dataDir: config.dataDir, log });
  noteState("connecting");
  try {
    const identity = await openIdentity({
      config,
      clock,
      log,
      retire: (old) => retireIdentity(old, engineOf(options, old), config.dataDir),
    });
    const parts = createParts({ ...options, identity, shutdown, onState: noteState });
    await run(parts, { clock, log }, shutdown);
    const { link } = parts;
    return { agentId: identity.agentId, ready: link.ready, state: link.state, stop: shutdown.run };
  } catch (err) {
    noteState("failed", messageOf(err));
    await shutdown.run();
    throw err;
  }
}
