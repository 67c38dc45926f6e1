import { mkdirSync, realpathSync } from "node:fs";
import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import type { Clock } from "../../kit/clock.ts";
import { messageOf } from "../../kit/errors.ts";
import type { Logger } from "../../kit/log.ts";
import { createUsageReader } from "../usage/container.ts";
import { createEngineClient, field, LONG_CALL_MS } from "./client.ts";
import type { Engine, EngineEvent, EngineInfo, EngineProblem, Ownership } from "./engine.ts";
import { engineEvents } from "./events.ts";
import { endExec, startExec } from "./exec.ts";
import { createFirewall } from "./firewall.ts";
import { createHostImage, offersHost } from "./host-image.ts";
import { createImages } from "./images.ts";
import { installKeepAlive } from "./keep-alive.ts";
import { createKernels } from "./kernels.ts";
import { createLifecycle } from "./lifecycle.ts";
import { createSessionNetwork, DEFAULT_SUBNET_POOL } from "./network.ts";
import { createScratchStore, type ScratchMode } from "./scratch.ts";

export type DockerEngineOptions = {
  readonly socketPath: string;
  readonly ownership: Ownership;
  /** Folder of the agent; scratch disks are made in it. The engine must see the same path. */
  readonly dataDir: string;
  /** `auto` takes loop-mounted files where the node can, else plain directories. */
  readonly scratchMode?: ScratchMode;
  /** IPv4 range of which the sessions' network takes a part (a /22). */
  readonly subnetPool?: string;
  readonly clock: Clock;
  readonly log: Logger;
};

/** Rules are put back when something else on the node, such as a firewall's reload, has taken them away. */
const FIREWALL_AGAIN_MS = 30_000;

/** Docker (20.10 or newer) as the engine of a node. Makes the data folder; asks the engine nothing until its first call. */
export function createDockerEngine(options: DockerEngineOptions): Engine {
  const { socketPath, ownership, clock, log } = options;
  // The kernel lists mounts by their real paths: through a link they would look as if they were not there.
  mkdirSync(options.dataDir, { recursive: true, mode: 0o700 });
  const dataDir = realpathSync(options.dataDir);
  const client = createEngineClient({ socketPath, clock });
  const scratch = createScratchStore({ dataDir, mode: options.scratchMode ?? "auto", clock, log });
  const network = createSessionNetwork({
    client,
    ownership,
    pool: options.subnetPool ?? DEFAULT_SUBNET_POOL,
  });
  const firewall = createFirewall(ownership);
  const hostImage = createHostImage({ client });
  const images = createImages({ client, clock });
  const problems = createProblemList();
  const usage = createUsageReader();
  const killed = new Set<string>();
  let firewallAt = Number.NEGATIVE_INFINITY;
  let keepAlive: Promise<string> | undefined;

  async function guardNetwork(): Promise<void> {
    if (clock.mono() - firewallAt < FIREWALL_AGAIN_MS) return;
    const problem = await firewall.ensure();
    problems.set("no-firewall", problem);
    if (problem === undefined) firewallAt = clock.mono();
    else log.warn(problem);
  }

  const shared = {
    network: async () => {
      const name = await network.ensure();
      await guardNetwork();
      return name;
    },
    hostImage: hostImage.ensure,
    keepAlive: () => {
      keepAlive ??= installKeepAlive(join(dataDir, "run"), process.arch).catch((error: unknown) => {
        keepAlive = undefined;
        throw error;
      });
      return keepAlive;
    },
  };
  const oomSeen = (containerId: string) => killed.has(containerId);
  const kernels = createKernels({ client, ownership, scratch, shared, clock, oomSeen });
  const lifecycle = createLifecycle({ client, kernels, scratch, clock });

  async function info(): Promise<EngineInfo> {
    const version = await client.version();
    const raw: unknown = await client.call("info", (docker) => docker.info());
    const liveRestore = field(raw, "LiveRestoreEnabled") === true;
    problems.set("no-live-restore", liveRestore ? undefined : NO_LIVE_RESTORE);
    return {
      name: "docker",
      ...version,
      cgroupVersion: field(raw, "CgroupVersion") === "2" ? 2 : 1,
      liveRestore,
      rootDir: String(field(raw, "DockerRootDir") ?? ""),
      cpus: Number(field(raw, "NCPU") ?? 0),
      memBytes: Number(field(raw, "MemTotal") ?? 0),
    };
  }

  async function capabilities() {
    const loopScratch = await scratch.loops();
    problems.set("scratch-directory-mode", loopScratch ? undefined : DIRECTORY_SCRATCH);
    return { hostEnvironment: offersHost(), loopScratch };
  }

  async function prepareNode(): Promise<void> {
    await mkdir(join(dataDir, "scratch"), { recursive: true, mode: 0o711 });
    firewallAt = Number.NEGATIVE_INFINITY;
    await info();
    await shared.network();
    await shared.keepAlive();
    const { hostEnvironment } = await capabilities();
    if (!hostEnvironment) return;
    await hostImage.ensure().then(
      () => problems.set("engine-refused", undefined),
      (err: unknown) => {
        problems.set("engine-refused", `The host environment cannot be offered: ${messageOf(err)}`);
        log.warn({ err }, "the host image could not be imported");
      },
    );
  }

  async function* events(signal: AbortSignal): AsyncGenerator<EngineEvent> {
    for await (const event of engineEvents(client, ownership, signal)) {
      if (event.kind === "container" && event.action === "oom") killed.add(event.containerId);
      if (event.kind === "container" && event.action === "destroy") killed.delete(event.containerId);
      yield event;
    }
  }

  return {
    info,
    capabilities,
    prepareNode,
    problems: problems.list,
    removeNode: async () => {
      await network.remove();
      await firewall.remove();
      await hostImage.remove();
      await scratch.clearProbes();
      firewallAt = Number.NEGATIVE_INFINITY;
    },
    listKernels: kernels.list,
    inspectKernel: kernels.find,
    createKernel: kernels.create,
    startKernel: lifecycle.start,
    replayOutput: lifecycle.replay,
    stopContainer: lifecycle.stop,
    waitContainer: lifecycle.wait,
    removeKernel: kernels.remove,
    exec: (request) => startExec(client, clock, request),
    endExec: (execId) => endExec(client, clock, execId),
    usage: async (containerId, pid) => {
      const { oomKills, ...sample } = await usage.read(pid);
      // The counter goes with the cgroup, and the engine's own flag is known to miss kills.
      if (oomKills > 0) killed.add(containerId);
      return sample;
    },
    scratchUsage: scratch.usage,
    layerBytes: async (containerId) => {
      const inspected: unknown = await client.call(
        "measure container",
        // dockerode's types do not know that inspecting can measure.
        (docker, abortSignal) =>
          docker.getContainer(containerId).inspect(Object.assign({ abortSignal }, { size: true })),
        LONG_CALL_MS,
      );
      return Number(field(inspected, "SizeRw") ?? 0);
    },
    listImages: images.list,
    hasImage: images.has,
    pullImage: images.pull,
    removeImage: images.remove,
    events,
    listLeftovers: async () => {
      const [disks, containers] = await Promise.all([scratch.list(), kernels.list()]);
      const alive = new Set(containers.map((view) => `${view.kernelId} ${view.generation}`));
      return disks.filter((ref) => !alive.has(`${ref.kernelId} ${ref.generation}`));
    },
  };
}

const NO_LIVE_RESTORE =
  "The container engine runs without live-restore: restarting it ends all sessions of this node. " +
  'Set "live-restore": true in /etc/docker/daemon.json and reload the engine.';

const DIRECTORY_SCRATCH =
  "Scratch disks are plain folders on this node, because files cannot be loop-mounted: their size is watched, not enforced.";

function createProblemList() {
  const found = new Map<EngineProblem["code"], string>();
  return {
    set: (code: EngineProblem["code"], message: string | undefined): void => {
      if (message === undefined) found.delete(code);
      else found.set(code, message);
    },
    list: (): readonly EngineProblem[] => [...found].map(([code, message]) => ({ code, message })),
  };
}
