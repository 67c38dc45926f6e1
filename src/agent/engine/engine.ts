import type { KernelSpec } from "../../wire/generated/berth.ts";

/** Whose containers these are; every name and label carries it, and an engine touches no other's. */
export type Ownership = { readonly clusterId: string; readonly agentId: string };

export type EngineInfo = {
  readonly name: "docker";
  readonly version: string;
  readonly apiVersion: string;
  readonly cgroupVersion: 1 | 2;
  readonly liveRestore: boolean;
  readonly arch: string;
  readonly rootDir: string;
  /** Processors and memory that the engine itself sees; it refuses containers beyond them. */
  readonly cpus: number;
  readonly memBytes: number;
};

/** Identity of a kernel's container, read back from its labels. */
export type KernelRef = {
  readonly kernelId: string;
  readonly sessionId: string;
  readonly generation: number;
};

export type ContainerState =
  | { readonly kind: "created" }
  | { readonly kind: "running"; readonly pid: number; readonly startedAt: number }
  | {
      readonly kind: "exited";
      readonly exitCode: number;
      readonly oomKilled: boolean;
      readonly startedAt: number;
      readonly endedAt: number;
      /** The engine's own words, such as "no such file or directory" for a missing executable. */
      readonly error: string;
    };

export type ContainerView = KernelRef & {
  readonly containerId: string;
  readonly epoch: number;
  readonly state: ContainerState;
  readonly labels: Readonly<Record<string, string>>;
};

export type EngineEvent =
  | {
      readonly kind: "container";
      readonly action: "start" | "die" | "oom" | "destroy";
      readonly kernel: KernelRef;
      readonly containerId: string;
    }
  | { readonly kind: "image" };

export type LocalImage = {
  readonly id: string;
  readonly references: readonly string[];
  readonly digests: readonly string[];
  readonly sizeBytes: number;
  readonly labels: Readonly<Record<string, string>>;
  readonly arch: string;
};

export type PullUpdate = { readonly phase: string; readonly doneBytes: number; readonly totalBytes: number };

/** One piece of a container's output. `stream` is 1 for stdout, 2 for stderr. */
export type OutputChunk = { readonly stream: 1 | 2; readonly bytes: Uint8Array };

export type ExecRequest = {
  readonly containerId: string;
  readonly argv: readonly string[];
  readonly tty: boolean;
  readonly cols: number;
  readonly rows: number;
  readonly environment: Readonly<Record<string, string>>;
  readonly workdir: string;
  readonly stdin: boolean;
};

/** A command running in a container. Output is pulled, so a slow reader slows the command and nothing else. */
export interface ExecHandle {
  readonly execId: string;
  readonly output: AsyncIterable<OutputChunk>;
  write(bytes: Uint8Array): Promise<void>;
  closeStdin(): void;
  resize(cols: number, rows: number): Promise<void>;
  /** Ends the process and what it started, by host pid with its start time checked. */
  end(): Promise<void>;
  /** The exit code once the process has ended. */
  readonly exited: Promise<number>;
}

export type ContainerUsage = {
  readonly cpuNanos: number;
  readonly memBytes: number;
  readonly memLimitBytes: number;
  readonly ioReadBytes: number;
  readonly ioWriteBytes: number;
  readonly netRxBytes: number;
  readonly netTxBytes: number;
  readonly pids: number;
};

/** What the node can give to sessions, measured once. */
export type NodeCapabilities = {
  /** The built-in image `host` works here (the node has a merged /usr). */
  readonly hostEnvironment: boolean;
  /** Scratch is a loop-mounted file of exact size; otherwise a plain directory that somebody must watch. */
  readonly loopScratch: boolean;
};

/** Something on the node that weakens what the platform promises; the sentence says what to do. */
export type EngineProblem = {
  readonly code: "no-firewall" | "no-live-restore" | "scratch-directory-mode" | "engine-refused";
  readonly message: string;
};

/** What a kernel's preparation is doing, so that a deadline and a person know which step it is in. */
export type CreateStep = "scratch" | "network" | "container" | "files";

/**
 * What the agent needs of a container engine. All calls are idempotent where the word allows it: creating what exists
 * returns it, removing what is gone succeeds. Failures for a person are BerthErrors (`image-missing`, `image-pull-failed`,
 * `engine-unreachable`, `disk-full`, `command-not-found`, `command-not-executable`, `engine-refused`).
 */
export interface Engine {
  info(): Promise<EngineInfo>;
  capabilities(): Promise<NodeCapabilities>;
  /**
   * Makes what all kernels of this agent share: network, firewall rules, the `host` image. Idempotent; call it at the
   * start and each time the engine came back. `createKernel` makes what is missing by itself.
   */
  prepareNode(): Promise<void>;
  /** What `prepareNode` and the calls since found wrong; empty when all is well. */
  problems(): readonly EngineProblem[];
  /** Removes what `prepareNode` made. For uninstalling and tests; kernels must be removed before. */
  removeNode(): Promise<void>;
  /** Every container with this ownership's labels, whatever its state. */
  listKernels(): Promise<readonly ContainerView[]>;
  inspectKernel(ref: KernelRef): Promise<ContainerView | undefined>;
  /** Makes scratch, network and container of a kernel, not yet started. An aborted signal undoes what was made. */
  createKernel(
    spec: KernelSpec,
    onStep: (step: CreateStep) => void,
    signal: AbortSignal,
  ): Promise<ContainerView>;
  /**
   * Attaches to the output first, then starts, so that no byte is lost. The output must be read at once: an unread one
   * stalls the container. It ends when the main process has ended, and throws `engine-unreachable` when it was cut
   * before that (continue with `replayOutput`).
   */
  startKernel(containerId: string): Promise<{ readonly output: AsyncIterable<OutputChunk> }>;
  /** Output of a container that runs already or has ended, from its beginning as far as the engine's own log still has it. */
  replayOutput(containerId: string, follow: boolean): AsyncIterable<OutputChunk>;
  /** SIGTERM, then SIGKILL after `graceMs`; with `graceMs` 0 SIGKILL at once. Bounded; resolves when it has ended. */
  stopContainer(containerId: string, graceMs: number): Promise<void>;
  /** The main process's exit code once it has ended; at once for one that ended before. Throws `kernel-not-running` when it is gone. */
  waitContainer(containerId: string, signal: AbortSignal): Promise<number>;
  /** Removes container, network, scratch mount and scratch file of a kernel; what is gone already is no error. */
  removeKernel(ref: KernelRef): Promise<void>;
  exec(request: ExecRequest): Promise<ExecHandle>;
  /** Ends a command that an earlier process of the agent started and left; one that has ended is no error. */
  endExec(execId: string): Promise<void>;
  usage(containerId: string, pid: number): Promise<ContainerUsage>;
  /** Without loop scratch `totalBytes` is a limit that nothing enforces: end a session that is beyond it. */
  scratchUsage(
    ref: KernelRef,
  ): Promise<{ readonly usedBytes: number; readonly totalBytes: number } | undefined>;
  /** Bytes that a container has written outside its scratch, into its own layer. Costly: at most once a minute. */
  layerBytes(containerId: string): Promise<number>;
  listImages(): Promise<readonly LocalImage[]>;
  /** Whether a container could be made from the image without a pull. */
  hasImage(reference: string): Promise<boolean>;
  pullImage(
    reference: string,
    onProgress: (update: PullUpdate) => void,
    signal: AbortSignal,
  ): Promise<LocalImage>;
  removeImage(reference: string): Promise<void>;
  /** Events from now on; ends with an error when the engine goes away. */
  events(signal: AbortSignal): AsyncIterable<EngineEvent>;
  /** Things left of kernels that have no container any more (networks, mounts, scratch files). */
  listLeftovers(): Promise<readonly KernelRef[]>;
}
