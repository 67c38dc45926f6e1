import { existsSync, readdirSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createDockerEngine, type DockerEngineOptions } from "../../../src/agent/engine/docker.ts";
import type { Engine, OutputChunk, Ownership } from "../../../src/agent/engine/engine.ts";
import { systemClock } from "../../../src/kit/clock.ts";
import { newId } from "../../../src/kit/ids.ts";
import { silentLogger } from "../../../src/kit/log.ts";
import { type KernelSpec, MainProcess } from "../../../src/wire/generated/berth.ts";

export const DOCKER_SOCKET = "/var/run/docker.sock";

/** Whether there is a container engine to test on. */
export const hasEngine = existsSync(DOCKER_SOCKET);

const MIB = 2 ** 20;

export const newOwnership = (): Ownership => ({ clusterId: newId(systemClock), agentId: newId(systemClock) });

/** A batch kernel of the host environment, small enough to run beside others; change what the test is about. */
export function batchSpec(script: string, changes: Partial<KernelSpec> = {}): KernelSpec {
  return {
    kernelId: newId(systemClock),
    sessionId: newId(systemClock),
    generation: 1,
    epoch: 1,
    sessionName: "test",
    image: "host",
    imageIsHost: true,
    main: MainProcess.SHELL,
    argv: [script],
    useEntrypoint: false,
    environment: {},
    cpuMilli: 500,
    memBytes: 128 * MIB,
    shmBytes: 16 * MIB,
    scratchBytes: 32 * MIB,
    uid: 1000,
    gid: 1000,
    supplementaryGids: [],
    hostname: "main1",
    timeoutMs: 0,
    logLimitBytes: 64 * MIB,
    pidsLimit: 256,
    ownerId: newId(systemClock),
    ...changes,
  };
}

/** An interactive kernel of the host environment. */
export function interactiveSpec(changes: Partial<KernelSpec> = {}): KernelSpec {
  return batchSpec("", { main: MainProcess.KEEP_ALIVE, argv: [], ...changes });
}

export type TestEngine = {
  readonly engine: Engine;
  readonly ownership: Ownership;
  readonly dataDir: string;
  /** The same node after a restart of its agent. */
  again(): Engine;
  /** Removes every kernel, the network, the rules and the folder of this test. */
  cleanUp(): Promise<void>;
};

/** An engine with an ownership and a folder of its own, so that tests do not see each other's containers. */
export async function createTestEngine(changes: Partial<DockerEngineOptions> = {}): Promise<TestEngine> {
  const ownership = newOwnership();
  const dataDir = changes.dataDir ?? (await mkdtemp(join(tmpdir(), "berth-engine-")));
  const again = () =>
    createDockerEngine({
      socketPath: DOCKER_SOCKET,
      ownership,
      dataDir,
      clock: systemClock,
      log: silentLogger,
      ...changes,
    });
  const engine = again();
  return {
    engine,
    ownership,
    dataDir,
    again,
    cleanUp: () => cleanUpNode(engine, dataDir),
  };
}

/** Removes what an agent with this engine and folder has on the node. */
export async function cleanUpNode(engine: Engine, dataDir: string): Promise<void> {
  for (const ref of [...(await engine.listKernels()), ...(await engine.listLeftovers())]) {
    await engine.removeKernel(ref);
  }
  await engine.removeNode();
  await rm(dataDir, { recursive: true, force: true });
}

/** The same for an agent that has ended, by the identity in its folder; nothing for one that never joined. */
export async function cleanUpAgent(agentDir: string): Promise<void> {
  const file = Bun.file(join(agentDir, "identity.json"));
  if (!(await file.exists())) return;
  const { agentId, clusterId }: Ownership = await file.json();
  const engine = createDockerEngine({
    socketPath: DOCKER_SOCKET,
    ownership: { agentId, clusterId },
    dataDir: agentDir,
    clock: systemClock,
    log: silentLogger,
  });
  await cleanUpNode(engine, agentDir);
}

export type Collected = { readonly stdout: string; readonly stderr: string };

/** All output, each stream by itself. */
export async function collect(output: AsyncIterable<OutputChunk>): Promise<Collected> {
  const pieces: { 1: Uint8Array[]; 2: Uint8Array[] } = { 1: [], 2: [] };
  for await (const { stream, bytes } of output) pieces[stream].push(bytes);
  const text = (stream: 1 | 2) => Buffer.concat(pieces[stream]).toString("utf8");
  return { stdout: text(1), stderr: text(2) };
}

export type Ended = Collected & {
  readonly exitCode: number;
  readonly oomKilled: boolean;
  readonly containerId: string;
};

/** Creates and starts a kernel, waits for its end and tells how it ended; the container stays. */
export async function runToEnd(engine: Engine, spec: KernelSpec): Promise<Ended> {
  const never = new AbortController().signal;
  const { containerId } = await engine.createKernel(spec, () => {}, never);
  const { output } = await engine.startKernel(containerId);
  const collected = await collect(output);
  await engine.waitContainer(containerId, never);
  const view = await engine.inspectKernel(spec);
  if (view?.state.kind !== "exited") throw new Error(`the container is ${view?.state.kind ?? "gone"}`);
  return { ...collected, ...view.state, containerId };
}

/** Creates and starts a kernel and drops its output; returns the container's id. */
export async function startInBackground(engine: Engine, spec: KernelSpec): Promise<string> {
  const { containerId } = await engine.createKernel(spec, () => {}, new AbortController().signal);
  const { output } = await engine.startKernel(containerId);
  collect(output).catch(() => {});
  return containerId;
}

/** Loop devices that are backed by a file in `dir`. */
export function loopDevicesOf(dir: string): string[] {
  return readdirSync("/sys/block")
    .filter((name) => name.startsWith("loop"))
    .filter((name) => {
      try {
        const file = Bun.spawnSync(["cat", `/sys/block/${name}/loop/backing_file`]).stdout.toString();
        return file.startsWith(`${dir}/`);
      } catch {
        return false;
      }
    });
}
