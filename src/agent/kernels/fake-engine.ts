import { BerthError } from "../../kit/errors.ts";
import type { KernelSpec } from "../../wire/generated/berth.ts";
import type {
  ContainerView,
  Engine,
  EngineEvent,
  KernelRef,
  LocalImage,
  OutputChunk,
  PullUpdate,
} from "../engine/engine.ts";
import { type KernelKey, keyOf } from "./record.ts";

/** A container engine in memory, for tests of the agent's own rules. */
export interface FakeEngine extends Engine {
  /** Everything that was asked for, in order: `start <key>`, `remove <key>` … */
  readonly calls: readonly string[];
  readonly containers: ReadonlyMap<KernelKey, ContainerView>;
  /** The main process writes. */
  print(key: KernelKey, text: string): void;
  /** The main process ends by itself. */
  exit(key: KernelKey, exitCode: number): void;
  /** Following a container's log ends with the container, whatever of it has not been read. */
  cutFollowing(): void;
  /** Somebody removes the container by hand. */
  vanish(key: KernelKey): void;
  /** The engine stops or begins to answer. */
  setDown(down: boolean): void;
  /** Holds pulls and creates until they are released. */
  hold(): { release(): void };
  readonly pulled: Set<string>;
  failNextStart(error: BerthError): void;
  failNextCreate(error: BerthError): void;
}

type Box = {
  view: ContainerView;
  readonly written: OutputChunk[];
  readonly wake: Set<() => void>;
};

const down = () => new BerthError("engine-unreachable", "The engine does not answer.");

export function createFakeEngine(options: { readonly now: () => number }): FakeEngine {
  const { now } = options;
  const boxes = new Map<KernelKey, Box>();
  const containers = new Map<KernelKey, ContainerView>();
  const calls: string[] = [];
  const pulled = new Set<string>(["present"]);
  const listeners = new Set<(event: EngineEvent | undefined) => void>();
  let isDown = false;
  let followingIsCut = false;
  let gate: PromiseWithResolvers<void> | undefined;
  let startError: BerthError | undefined;
  let createError: BerthError | undefined;
  let count = 0;

  function set(key: KernelKey, box: Box, view: ContainerView): void {
    box.view = view;
    containers.set(key, view);
    for (const wake of [...box.wake]) wake();
  }
  const byId = (containerId: string): [KernelKey, Box] => {
    for (const [key, box] of boxes) if (box.view.containerId === containerId) return [key, box];
    throw new BerthError("engine-refused", `There is no container ${containerId}.`);
  };
  const answer = async (): Promise<void> => {
    await Promise.resolve();
    if (isDown) throw down();
  };
  const emit = (action: "start" | "die" | "destroy", view: ContainerView) => {
    for (const listen of [...listeners]) {
      listen({ kind: "container", action, kernel: refOf(view), containerId: view.containerId });
    }
  };
  const changed = (box: Box): Promise<void> =>
    new Promise((resolve) => {
      const wake = () => {
        box.wake.delete(wake);
        resolve();
      };
      box.wake.add(wake);
    });
  async function held(signal: AbortSignal): Promise<void> {
    signal.throwIfAborted();
    const aborted = Promise.withResolvers<never>();
    signal.addEventListener("abort", () => aborted.reject(signal.reason), { once: true });
    aborted.promise.catch(() => {});
    await Promise.race([gate?.promise ?? Promise.resolve(), aborted.promise]);
    signal.throwIfAborted();
  }

  async function* output(
    key: KernelKey,
    box: Box,
    follow: boolean,
    cut = false,
  ): AsyncGenerator<OutputChunk> {
    for (let at = 0; ; ) {
      if (cut && box.view.state.kind === "exited") return;
      const chunk = box.written[at];
      if (chunk !== undefined) {
        at += 1;
        yield chunk;
      } else if (!follow || box.view.state.kind === "exited" || boxes.get(key) !== box) return;
      else if (isDown) throw down();
      else await changed(box);
    }
  }

  function exit(key: KernelKey, exitCode: number): void {
    const box = boxes.get(key);
    if (box?.view.state.kind !== "running") return;
    const { startedAt } = box.view.state;
    const state = {
      kind: "exited",
      exitCode,
      oomKilled: false,
      startedAt,
      endedAt: now(),
      error: "",
    } as const;
    set(key, box, { ...box.view, state });
    emit("die", box.view);
  }

  function drop(key: KernelKey): void {
    const box = boxes.get(key);
    if (box === undefined) return;
    boxes.delete(key);
    containers.delete(key);
    for (const wake of [...box.wake]) wake();
    emit("destroy", box.view);
  }

  async function createKernel(spec: KernelSpec, _: unknown, signal: AbortSignal): Promise<ContainerView> {
    await answer();
    const key = keyOf(spec);
    if (createError !== undefined) {
      const err = createError;
      createError = undefined;
      throw err;
    }
    if (!spec.imageIsHost && !pulled.has(spec.image)) {
      throw new BerthError("image-missing", `The image ${spec.image} is not here.`);
    }
    await held(signal);
    await answer();
    const known = boxes.get(key);
    if (known !== undefined) return known.view;
    count += 1;
    calls.push(`create ${key}`);
    const view: ContainerView = {
      ...refOf(spec),
      containerId: `c${count}`,
      epoch: spec.epoch,
      labels: {},
      state: { kind: "created" },
    };
    boxes.set(key, { view, written: [], wake: new Set() });
    containers.set(key, view);
    return view;
  }

  async function startKernel(containerId: string) {
    await answer();
    const [key, box] = byId(containerId);
    if (startError !== undefined) {
      const err = startError;
      startError = undefined;
      throw err;
    }
    calls.push(`start ${key}`);
    set(key, box, { ...box.view, state: { kind: "running", pid: 1, startedAt: now() } });
    emit("start", box.view);
    return { output: output(key, box, true) };
  }

  async function* events(signal: AbortSignal): AsyncGenerator<EngineEvent> {
    await answer();
    const waiting: (EngineEvent | undefined)[] = [];
    let wake = () => {};
    const listen = (event: EngineEvent | undefined) => {
      waiting.push(event);
      wake();
    };
    listeners.add(listen);
    signal.addEventListener("abort", () => listen(undefined), { once: true });
    try {
      while (!signal.aborted) {
        const event = waiting.shift();
        if (event !== undefined) yield event;
        else if (isDown) throw down();
        else await new Promise<void>((resolve) => (wake = resolve));
      }
    } finally {
      listeners.delete(listen);
    }
  }

  const unused = (name: string) => (): never => {
    throw new Error(`${name} is not in the fake engine`);
  };

  return {
    calls,
    containers,
    pulled,
    print: (key, text) => {
      const box = boxes.get(key);
      box?.written.push({ stream: 1, bytes: Buffer.from(text) });
      for (const wake of [...(box?.wake ?? [])]) wake();
    },
    exit,
    cutFollowing: () => {
      followingIsCut = true;
    },
    vanish: drop,
    setDown: (value) => {
      isDown = value;
      for (const listen of [...listeners]) listen(undefined);
      for (const box of boxes.values()) for (const wake of [...box.wake]) wake();
    },
    hold: () => {
      const held = Promise.withResolvers<void>();
      gate = held;
      return {
        release: () => {
          if (gate === held) gate = undefined;
          held.resolve();
        },
      };
    },
    failNextStart: (error) => {
      startError = error;
    },
    failNextCreate: (error) => {
      createError = error;
    },
    info: async () => {
      await answer();
      return {
        name: "docker",
        version: "0",
        apiVersion: "1.41",
        cgroupVersion: 2,
        liveRestore: true,
        arch: "x86_64",
        rootDir: "/",
        cpus: 4,
        memBytes: 8 * 2 ** 30,
      };
    },
    capabilities: async () => ({ hostEnvironment: true, loopScratch: true }),
    prepareNode: answer,
    problems: () => [],
    removeNode: answer,
    listKernels: async () => {
      await answer();
      return [...containers.values()];
    },
    inspectKernel: async (ref) => {
      await answer();
      return containers.get(keyOf(ref));
    },
    createKernel,
    startKernel,
    replayOutput: (containerId, follow) => {
      const [key, box] = byId(containerId);
      return output(key, box, follow, follow && followingIsCut);
    },
    stopContainer: async (containerId, graceMs) => {
      await answer();
      const [key] = byId(containerId);
      calls.push(`stop ${key} ${graceMs}`);
      exit(key, graceMs === 0 ? 137 : 143);
    },
    waitContainer: async (containerId, signal) => {
      await answer();
      const [key, box] = byId(containerId);
      const aborted = new Promise<void>((resolve) => signal.addEventListener("abort", () => resolve()));
      while (box.view.state.kind !== "exited" && boxes.get(key) === box) {
        if (isDown) throw down();
        await Promise.race([changed(box), aborted]);
        signal.throwIfAborted();
      }
      return box.view.state.kind === "exited" ? box.view.state.exitCode : 137;
    },
    removeKernel: async (ref) => {
      await answer();
      const key = keyOf(ref);
      calls.push(`remove ${key}`);
      exit(key, 137);
      drop(key);
    },
    pullImage: async (reference: string, onProgress: (update: PullUpdate) => void, signal: AbortSignal) => {
      await answer();
      calls.push(`pull ${reference}`);
      onProgress({ phase: "downloading", doneBytes: 1, totalBytes: 2 });
      if (reference.startsWith("absent")) {
        throw new BerthError("image-pull-failed", `The registry has no image ${reference}.`);
      }
      await held(signal);
      pulled.add(reference);
      return imageOf(reference);
    },
    listImages: async () => [...pulled].map(imageOf),
    hasImage: async (reference) => {
      await answer();
      return pulled.has(reference);
    },
    removeImage: async (reference) => {
      pulled.delete(reference);
    },
    events,
    listLeftovers: async () => [],
    exec: unused("exec"),
    endExec: answer,
    usage: unused("usage"),
    scratchUsage: async () => undefined,
    layerBytes: async () => 0,
  };
}

function refOf(ref: KernelRef): KernelRef {
  return { kernelId: ref.kernelId, sessionId: ref.sessionId, generation: ref.generation };
}

function imageOf(reference: string): LocalImage {
  return { id: reference, references: [reference], digests: [], sizeBytes: 1, labels: {}, arch: "x86_64" };
}
