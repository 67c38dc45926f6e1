import type { ImageInspectInfo } from "dockerode";
import type { Clock } from "../../kit/clock.ts";
import { BerthError, messageOf } from "../../kit/errors.ts";
import { type EngineClient, engineError, field, hasStatus, LONG_CALL_MS, wordsOf } from "./client.ts";
import type { LocalImage, PullUpdate } from "./engine.ts";
import { HOST_IMAGE, isHostImage } from "./host-image.ts";
import { pullError } from "./images-words.ts";
import { jsonLines } from "./output.ts";

/** A pull that says nothing for so long has failed. */
const SILENCE_MS = 300_000;

/** Adds `:latest` where neither tag nor digest is given: the engine would pull every tag. */
export function withTag(reference: string): string {
  const last = reference.slice(reference.lastIndexOf("/") + 1);
  return last.includes(":") || last.includes("@") ? reference : `${reference}:latest`;
}

type PullLine = {
  readonly status?: string;
  readonly id?: string;
  readonly error?: string;
  readonly progressDetail?: { readonly current?: number; readonly total?: number };
};

/** Adds up the lines of a pull; a layer counts once, by what has been downloaded of it. */
export function createPullSum(): { add(line: PullLine): PullUpdate } {
  const layers = new Map<string, { done: number; total: number }>();
  let phase = "";
  return {
    add: ({ status = "", id, progressDetail }) => {
      phase = status || phase;
      if (id !== undefined) {
        const layer = layers.get(id) ?? { done: 0, total: 0 };
        if (status === "Downloading") {
          layer.total = Math.max(layer.total, progressDetail?.total ?? 0);
          layer.done = Math.max(layer.done, progressDetail?.current ?? 0);
        } else if (
          ["Verifying Checksum", "Download complete", "Extracting", "Pull complete"].includes(status)
        ) {
          layer.done = layer.total;
        }
        layers.set(id, layer);
      }
      const all = [...layers.values()];
      return {
        phase,
        doneBytes: all.reduce((sum, layer) => sum + layer.done, 0),
        totalBytes: all.reduce((sum, layer) => sum + layer.total, 0),
      };
    },
  };
}

function asPullLine(value: unknown): PullLine {
  const text = (name: string) => {
    const found = field(value, name);
    return typeof found === "string" ? { [name]: found } : {};
  };
  const detail = field(value, "progressDetail");
  const number = (name: string) => {
    const found = field(detail, name);
    return typeof found === "number" ? { [name]: found } : {};
  };
  return {
    ...text("status"),
    ...text("id"),
    ...text("error"),
    progressDetail: { ...number("current"), ...number("total") },
  };
}

export interface Images {
  list(): Promise<readonly LocalImage[]>;
  has(reference: string): Promise<boolean>;
  pull(reference: string, onProgress: (update: PullUpdate) => void, signal: AbortSignal): Promise<LocalImage>;
  remove(reference: string): Promise<void>;
}

const named = (references: readonly string[] | null | undefined): string[] =>
  (references ?? []).filter((reference) => !reference.includes("<none>"));

export function createImages({
  client,
  clock,
}: {
  readonly client: EngineClient;
  readonly clock: Clock;
}): Images {
  const arches = new Map<string, string>();

  const inspect = (reference: string): Promise<ImageInspectInfo> =>
    client.call("inspect image", (docker) => docker.getImage(reference).inspect());

  async function archOf(id: string): Promise<string> {
    const known = arches.get(id);
    if (known !== undefined) return known;
    const { Architecture } = await inspect(id);
    arches.set(id, Architecture);
    return Architecture;
  }

  async function list(): Promise<readonly LocalImage[]> {
    const all = await client.call("list images", (docker) => docker.listImages());
    const images: LocalImage[] = [];
    for (const image of all) {
      const { Id, RepoTags, RepoDigests, Size } = image;
      const labels = image.Labels ?? {};
      const isHost = isHostImage(image);
      // An older version may still serve sessions; users know one image of that name.
      if (isHost && images.some(({ references }) => references.includes(HOST_IMAGE))) continue;
      const references = isHost ? [HOST_IMAGE] : named(RepoTags);
      const digests = isHost ? [] : named(RepoDigests);
      if (references.length === 0 && digests.length === 0) continue;
      try {
        images.push({ id: Id, references, digests, sizeBytes: Size, labels, arch: await archOf(Id) });
      } catch (error) {
        // Removed since the list was made.
        if (!hasStatus(error, 404)) throw error;
      }
    }
    return images;
  }

  async function follow(
    reference: string,
    onProgress: (update: PullUpdate) => void,
    abortSignal: AbortSignal,
    alive: () => void,
  ): Promise<void> {
    const sum = createPullSum();
    const stream = await client.call(
      "pull image",
      (docker) => docker.pull(reference, { abortSignal }),
      SILENCE_MS,
    );
    for await (const value of jsonLines(stream)) {
      alive();
      const line = asPullLine(value);
      if (line.error !== undefined) throw pullError(reference, line.error);
      onProgress(sum.add(line));
    }
  }

  async function pull(
    asked: string,
    onProgress: (update: PullUpdate) => void,
    signal: AbortSignal,
  ): Promise<LocalImage> {
    const reference = withTag(asked);
    const quiet = new AbortController();
    let cancel = () => {};
    const alive = () => {
      cancel();
      cancel = clock.after(SILENCE_MS, () => quiet.abort());
    };
    const stop = AbortSignal.any([signal, quiet.signal]);
    const stopped = new Promise<never>((_, reject) => {
      stop.addEventListener("abort", () => reject(stop.reason), { once: true });
    });
    stopped.catch(() => {});
    try {
      signal.throwIfAborted();
      alive();
      await Promise.race([follow(reference, onProgress, stop, alive), stopped]);
      return toLocal(await inspect(reference));
    } catch (error) {
      signal.throwIfAborted();
      if (quiet.signal.aborted)
        throw pullError(reference, `the registry said nothing for ${SILENCE_MS / 60_000} min`);
      // Also what ends the stream of progress, such as an engine that stops.
      const told = engineError(error, "pull image");
      if (told.code !== "engine-refused") throw told;
      throw pullError(reference, wordsOf(told) || messageOf(error), error);
    } finally {
      cancel();
    }
  }

  async function has(reference: string): Promise<boolean> {
    try {
      await inspect(reference);
      return true;
    } catch (error) {
      if (hasStatus(error, 404)) return false;
      throw error;
    }
  }

  return {
    list,
    has,
    pull,
    remove: async (asked) => {
      if (asked === HOST_IMAGE) {
        throw new BerthError("engine-refused", "The host environment is built in and cannot be removed.");
      }
      const reference = asked.startsWith("sha256:") ? asked : withTag(asked);
      try {
        await client.call("remove image", (docker) => docker.getImage(reference).remove(), LONG_CALL_MS);
      } catch (error) {
        if (hasStatus(error, 404)) return;
        if (!hasStatus(error, 409)) throw error;
        const sentence = `The image ${reference} is in use on this node; end its sessions first. (${wordsOf(error)})`;
        throw new BerthError("engine-refused", sentence, { cause: error });
      }
    },
  };
}

function toLocal(image: ImageInspectInfo): LocalImage {
  return {
    id: image.Id,
    references: named(image.RepoTags),
    digests: named(image.RepoDigests),
    sizeBytes: image.Size,
    labels: image.Config.Labels ?? {},
    arch: image.Architecture,
  };
}
