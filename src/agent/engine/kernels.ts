import { readdir } from "node:fs/promises";
import type { ContainerCreateOptions, ContainerInspectInfo } from "dockerode";
import type { Clock } from "../../kit/clock.ts";
import { BerthError, isBerthError } from "../../kit/errors.ts";
import type { KernelSpec } from "../../wire/generated/berth.ts";
import { containerHas, putIntoContainer, readContainerFile } from "./archive.ts";
import { type EngineClient, hasStatus, LONG_CALL_MS, wordsOf } from "./client.ts";
import { containerOptions } from "./containers.ts";
import type { ContainerView, CreateStep, KernelRef, Ownership } from "./engine.ts";
import { currentHostMounts, HOST_ACCOUNTS } from "./host-image.ts";
import { checkRef, containerName, LABEL, ownershipFilter, refOfLabels } from "./names.ts";
import type { ScratchPaths, ScratchStore } from "./scratch.ts";
import { nodeUlimits } from "./ulimits.ts";
import { type AccountFiles, mergeAccounts } from "./users.ts";
import { containerView } from "./views.ts";

const INSPECT_AT_ONCE = 8;
const HOST_IMAGE_TRIES = 3;
const REMOVE_TRIES = 20;
const REMOVE_AGAIN_MS = 250;

/** What the kernels of a node share. */
export type SharedParts = {
  /** Makes the network and the rules on it; returns its name. */
  readonly network: () => Promise<string>;
  /** Imports the host image; returns its reference. */
  readonly hostImage: () => Promise<string>;
  /** Installs the keep-alive program; returns its path. */
  readonly keepAlive: () => Promise<string>;
};

/** The containers of this agent's kernels: found, made, removed. */
export interface Kernels {
  list(): Promise<readonly ContainerView[]>;
  find(ref: KernelRef): Promise<ContainerView | undefined>;
  byId(containerId: string): Promise<ContainerView | undefined>;
  create(spec: KernelSpec, onStep: (step: CreateStep) => void, signal: AbortSignal): Promise<ContainerView>;
  remove(ref: KernelRef): Promise<void>;
}

export function createKernels({
  client,
  ownership,
  scratch,
  shared,
  clock,
  oomSeen,
}: {
  readonly client: EngineClient;
  readonly ownership: Ownership;
  readonly scratch: ScratchStore;
  readonly shared: SharedParts;
  readonly clock: Clock;
  readonly oomSeen: (containerId: string) => boolean;
}): Kernels {
  const accountsOf = new Map<string, AccountFiles & { readonly shell: string }>();

  async function inspect(nameOrId: string): Promise<ContainerInspectInfo | undefined> {
    try {
      return await client.call("inspect container", (docker, abortSignal) =>
        docker.getContainer(nameOrId).inspect({ abortSignal }),
      );
    } catch (error) {
      if (hasStatus(error, 404)) return undefined;
      throw error;
    }
  }

  async function byId(containerId: string): Promise<ContainerView | undefined> {
    const info = await inspect(containerId);
    return info === undefined ? undefined : containerView(ownership, info, oomSeen(info.Id));
  }

  const find = async (ref: KernelRef): Promise<ContainerView | undefined> => {
    checkRef(ref);
    return byId(containerName(ownership, ref));
  };

  async function list(): Promise<readonly ContainerView[]> {
    const filters = { label: ownershipFilter(ownership) };
    const all = await client.call("list containers", (docker) =>
      docker.listContainers({ all: true, filters }),
    );
    const ids = all.filter(({ Labels }) => refOfLabels(Labels ?? {}) !== undefined).map(({ Id }) => Id);
    const views: ContainerView[] = [];
    for (let at = 0; at < ids.length; at += INSPECT_AT_ONCE) {
      const some = await Promise.all(ids.slice(at, at + INSPECT_AT_ONCE).map(byId));
      views.push(...some.flatMap((view) => view ?? []));
    }
    return views;
  }

  /** Reads an image's accounts out of a container that never ran, once per image. */
  async function imageAccounts(imageId: string, containerId: string) {
    const known = accountsOf.get(imageId);
    if (known !== undefined) return known;
    const read = (path: string) => readContainerFile(client, containerId, path);
    const [passwd, group, bash] = await Promise.all([
      read("/etc/passwd"),
      read("/etc/group"),
      containerHas(client, containerId, "/bin/bash"),
    ]);
    const found = { passwd: passwd ?? "", group: group ?? "", shell: bash ? "/bin/bash" : "/bin/sh" };
    accountsOf.set(imageId, found);
    return found;
  }

  async function putAccounts(spec: KernelSpec, containerId: string, imageId: string): Promise<void> {
    if (spec.uid === 0) return;
    const { shell, ...files } = spec.imageIsHost
      ? { ...HOST_ACCOUNTS, shell: "/bin/bash" }
      : await imageAccounts(imageId, containerId);
    const { uid, gid, supplementaryGids } = spec;
    const merged = mergeAccounts(files, { uid, gid, supplementaryGids, shell });
    const hasEtc =
      spec.imageIsHost || files.passwd !== "" || (await containerHas(client, containerId, "/etc"));
    await putIntoContainer(client, containerId, [
      ...(hasEtc ? [] : [{ name: "etc", mode: 0o755 }]),
      { name: "etc/passwd", mode: 0o644, text: merged.passwd },
      { name: "etc/group", mode: 0o644, text: merged.group },
    ]);
  }

  async function makeContainer(spec: KernelSpec, paths: ScratchPaths, network: string): Promise<void> {
    const hostMounts = spec.imageIsHost ? currentHostMounts(await readdir("/etc")) : [];
    const keepAlive = await shared.keepAlive();
    for (let attempt = 1; ; attempt += 1) {
      const image = spec.imageIsHost ? await shared.hostImage() : spec.image;
      const parts = { image, network, scratch: paths, keepAlive, hostMounts, ulimits: nodeUlimits() };
      try {
        return await submit(containerOptions(spec, ownership, parts), spec.image);
      } catch (error) {
        // Another agent of this engine may have removed the host image since we looked.
        const again = spec.imageIsHost && isBerthError(error) && error.code === "image-missing";
        if (!again || attempt === HOST_IMAGE_TRIES) throw error;
      }
    }
  }

  async function submit(options: ContainerCreateOptions, image: string): Promise<void> {
    try {
      await client.call("create container", (docker) => docker.createContainer(options), LONG_CALL_MS);
    } catch (error) {
      if (hasStatus(error, 404) && /image/i.test(wordsOf(error))) {
        throw new BerthError("image-missing", `The image ${image} is not on this node.`, { cause: error });
      }
      // Name in use: an attempt whose answer was lost has made it.
      if (!hasStatus(error, 409)) throw error;
    }
  }

  async function makeAll(spec: KernelSpec, onStep: (step: CreateStep) => void, signal: AbortSignal) {
    const { kernelId, sessionId, generation, uid, gid } = spec;
    const step = (name: CreateStep) => {
      signal.throwIfAborted();
      onStep(name);
    };
    step("scratch");
    const paths = await scratch.create({
      kernelId,
      sessionId,
      generation,
      bytes: spec.scratchBytes,
      uid,
      gid,
    });
    step("network");
    const network = await shared.network();
    step("container");
    await makeContainer(spec, paths, network);
    step("files");
    return finish(spec, signal);
  }

  /** Also for a container that an interrupted attempt left behind without its files. */
  async function finish(spec: KernelSpec, signal: AbortSignal): Promise<ContainerView> {
    const info = await inspect(containerName(ownership, spec));
    const view = info === undefined ? undefined : containerView(ownership, info, false);
    if (info === undefined || view === undefined) {
      throw new BerthError("engine-refused", "The container vanished while it was being made.");
    }
    if (view.state.kind === "created") {
      await scratch.ensureMounted(spec);
      await putAccounts(spec, view.containerId, info.Image);
    }
    signal.throwIfAborted();
    return view;
  }

  async function removeContainer(ref: KernelRef): Promise<void> {
    const view = await find(ref);
    if (view === undefined) return;
    for (let attempt = 1; ; attempt += 1) {
      try {
        await client.call(
          "remove container",
          (docker, abortSignal) =>
            docker.getContainer(view.containerId).remove({ force: true, v: true, abortSignal }),
          LONG_CALL_MS,
        );
        return;
      } catch (error) {
        if (hasStatus(error, 404)) return;
        // Being removed already, or something still holds its file system for a moment.
        const passing = hasStatus(error, 409) || /busy|in progress/i.test(wordsOf(error));
        if (!passing || attempt === REMOVE_TRIES) throw error;
        await clock.sleep(REMOVE_AGAIN_MS);
      }
    }
  }

  async function remove(ref: KernelRef): Promise<void> {
    await removeContainer(ref);
    await scratch.remove(ref);
  }

  return {
    list,
    find,
    byId,
    create: async (spec, onStep, signal) => {
      checkRef(spec);
      signal.throwIfAborted();
      const existing = await find(spec);
      try {
        return await (existing === undefined ? makeAll(spec, onStep, signal) : finish(spec, signal));
      } catch (error) {
        // One that ran is somebody's work: only what this attempt could have made is undone.
        if (existing === undefined || existing.state.kind === "created") await remove(spec);
        throw error;
      }
    },
    remove,
  };
}

/** Whether the container's main process is the keep-alive program. */
export function isKeptAlive(view: ContainerView): boolean {
  return view.labels[LABEL.main] === "keep-alive";
}
