import type { Clock } from "../../kit/clock.ts";
import { BerthError, isBerthError } from "../../kit/errors.ts";
import { type EngineClient, engineError, hasStatus, LONG_CALL_MS, wordsOf } from "./client.ts";
import type { ContainerView, OutputChunk } from "./engine.ts";
import { isKeptAlive, type Kernels } from "./kernels.ts";
import { outputOf } from "./output.ts";
import { endProcesses, processesIn, processNamespace } from "./processes.ts";
import type { ScratchStore } from "./scratch.ts";

const LOOK_MS = 100;
/** How long the engine may take to notice that a process which gets SIGKILL has ended. */
const KILL_MS = 15_000;
/** How long after the end of the output the engine may take to count the container as ended. */
const SETTLE_MS = 5_000;

export type Lifecycle = {
  start(containerId: string): Promise<{ readonly output: AsyncIterable<OutputChunk> }>;
  replay(containerId: string, follow: boolean): AsyncIterable<OutputChunk>;
  stop(containerId: string, graceMs: number): Promise<void>;
  wait(containerId: string, signal: AbortSignal): Promise<number>;
};

/** Starting, following and ending the main process of a kernel's container. */
export function createLifecycle({
  client,
  kernels,
  scratch,
  clock,
}: {
  readonly client: EngineClient;
  readonly kernels: Kernels;
  readonly scratch: ScratchStore;
  readonly clock: Clock;
}): Lifecycle {
  async function existing(containerId: string): Promise<ContainerView> {
    const view = await kernels.byId(containerId);
    if (view !== undefined) return view;
    throw new BerthError("kernel-not-running", "The session's container does not exist any more.");
  }

  async function start(containerId: string): Promise<{ readonly output: AsyncIterable<OutputChunk> }> {
    await scratch.ensureMounted(await existing(containerId));
    const stream = await client.call("attach", (docker) =>
      docker.getContainer(containerId).attach({ stream: true, stdout: true, stderr: true, hijack: true }),
    );
    // An error also ends the reading side, where it is seen; without a listener it would end the agent.
    stream.on("error", () => {});
    try {
      await client.call(
        "start container",
        (docker) => docker.getContainer(containerId).start(),
        LONG_CALL_MS,
      );
    } catch (error) {
      if ("destroy" in stream && typeof stream.destroy === "function") stream.destroy();
      // 304: it runs already.
      if (!hasStatus(error, 304)) throw startError(error);
    }
    return { output: untilEnded(containerId, outputOf(stream, true)) };
  }

  /** Passes output on and, at its end, makes sure that the container has ended too. */
  async function* untilEnded(
    containerId: string,
    output: AsyncIterable<OutputChunk>,
  ): AsyncGenerator<OutputChunk> {
    try {
      yield* output;
    } catch (error) {
      throw engineError(error, "output");
    }
    const until = clock.mono() + SETTLE_MS;
    while ((await kernels.byId(containerId))?.state.kind === "running") {
      if (clock.mono() >= until) {
        throw new BerthError(
          "engine-unreachable",
          "The session's output was cut off by the container engine.",
        );
      }
      await clock.sleep(LOOK_MS);
    }
  }

  async function* replay(containerId: string, follow: boolean): AsyncGenerator<OutputChunk> {
    const query = { stdout: true, stderr: true, follow };
    const stream = await client.call("logs", (docker) =>
      // `follow` makes dockerode hand out a stream; what is asked of the engine stands in `_query`.
      docker.getContainer(containerId).logs(Object.assign({ follow: true as const }, { _query: query })),
    );
    const output = outputOf(stream, true);
    if (follow) yield* untilEnded(containerId, output);
    else yield* output;
  }

  async function kill(containerId: string, signal: "SIGTERM" | "SIGKILL"): Promise<void> {
    try {
      await client.call("kill container", (docker, abortSignal) =>
        docker.getContainer(containerId).kill({ signal, abortSignal }),
      );
    } catch (error) {
      // It has ended already, or is gone.
      if (!hasStatus(error, 409) && !hasStatus(error, 404)) throw error;
    }
  }

  async function hasEnded(containerId: string, withinMs: number): Promise<boolean> {
    const until = clock.mono() + withinMs;
    for (;;) {
      const view = await kernels.byId(containerId);
      if (view?.state.kind !== "running") return true;
      if (clock.mono() >= until) return false;
      await clock.sleep(Math.min(LOOK_MS, Math.max(until - clock.mono(), 1)));
    }
  }

  /**
   * The keep-alive program has nothing to save, and when it ends everything else is killed at once. So in an interactive
   * session the owner's own processes are asked first.
   */
  async function askProcesses(pid: number, graceMs: number): Promise<void> {
    const namespace = processNamespace(pid);
    if (namespace === undefined) return;
    const main = firstChild(namespace, pid);
    const owners = () => processesIn(namespace).filter((one) => one.pid !== pid && one.pid !== main);
    await endProcesses(owners, graceMs, clock);
  }

  async function stop(containerId: string, graceMs: number): Promise<void> {
    const view = await kernels.byId(containerId);
    if (view?.state.kind !== "running") return;
    if (graceMs > 0) {
      if (isKeptAlive(view)) await askProcesses(view.state.pid, graceMs);
      await kill(containerId, "SIGTERM");
      if (await hasEnded(containerId, isKeptAlive(view) ? 1_000 : graceMs)) return;
    }
    await kill(containerId, "SIGKILL");
    if (await hasEnded(containerId, KILL_MS)) return;
    throw new BerthError(
      "engine-refused",
      `The session's processes did not end within ${KILL_MS / 1000} s of SIGKILL; they may hang in the kernel.`,
    );
  }

  async function wait(containerId: string, signal: AbortSignal): Promise<number> {
    for (;;) {
      signal.throwIfAborted();
      const view = await existing(containerId);
      if (view.state.kind === "exited") return view.state.exitCode;
      await waitOnce(containerId, view.state.kind === "created" ? "next-exit" : "not-running", signal);
      await clock.sleep(LOOK_MS / 10, signal);
    }
  }

  async function waitOnce(
    containerId: string,
    condition: "next-exit" | "not-running",
    signal: AbortSignal,
  ): Promise<void> {
    // Not through `call`: a session may run for weeks.
    const docker = await client.call("wait", async (engine) => engine);
    try {
      await docker.getContainer(containerId).wait({ condition, abortSignal: signal });
    } catch (error) {
      signal.throwIfAborted();
      const known = engineError(error, "wait");
      if (!hasStatus(known, 404)) throw known;
    }
  }

  return { start, replay, stop, wait };
}

/** The first process that init of a container started: its main process. */
function firstChild(namespace: string, init: number): number | undefined {
  return processesIn(namespace)
    .filter(({ parent }) => parent === init)
    .sort((a, b) => a.startTicks - b.startTicks || a.pid - b.pid)
    .at(0)?.pid;
}

/** Why a container could not be started, told apart where the command itself is at fault. */
function startError(error: unknown): unknown {
  if (!isBerthError(error)) return error;
  const words = wordsOf(error);
  if (/permission denied/i.test(words) && /exec/i.test(words)) {
    const sentence = `The command may not be executed: ${words}`;
    return new BerthError("command-not-executable", sentence, { cause: error });
  }
  if (/executable file not found|no such file or directory/i.test(words) && /exec/i.test(words)) {
    return new BerthError("command-not-found", `The command was not found: ${words}`, { cause: error });
  }
  return error;
}
