import { pack as createPack, extract } from "tar-stream";
import { type EngineClient, hasStatus } from "./client.ts";
import { bytesOf } from "./output.ts";

/** One entry of a tar: a file with its text or bytes, a folder, or a link with its target. */
export type TarEntry = {
  readonly name: string;
  readonly mode: number;
  readonly text?: string;
  readonly bytes?: Buffer;
  readonly link?: string;
};

/** A tar of these entries, all of them root's. The same entries give the same bytes. */
export async function makeTar(entries: readonly TarEntry[]): Promise<Buffer> {
  const pack = createPack();
  for (const { name, mode, text, bytes, link } of entries) {
    const common = { name, mode, uid: 0, gid: 0, mtime: new Date(0) };
    const content = bytes ?? text;
    if (content !== undefined) pack.entry({ ...common, type: "file" }, content);
    else if (link !== undefined) pack.entry({ ...common, type: "symlink", linkname: link });
    else pack.entry({ ...common, type: "directory" });
  }
  pack.finalize();
  const pieces: Uint8Array[] = [];
  for await (const piece of bytesOf(pack)) pieces.push(piece);
  return Buffer.concat(pieces);
}

/** Account files are small; a larger one is not read into memory. */
const MOST_BYTES = 4 * 2 ** 20;

/** The text of a file in a container, also of one that never ran; undefined when there is no such file. */
export async function readContainerFile(
  client: EngineClient,
  containerId: string,
  path: string,
): Promise<string | undefined> {
  try {
    return await client.call("read a file of the container", async (docker, abortSignal) => {
      const stream = await docker.getContainer(containerId).getArchive({ path, abortSignal });
      return firstFile(stream);
    });
  } catch (error) {
    if (hasStatus(error, 404)) return undefined;
    throw error;
  }
}

async function firstFile(stream: NodeJS.ReadableStream): Promise<string | undefined> {
  const reader = stream.pipe(extract());
  let found: string | undefined;
  for await (const entry of reader) {
    if (entry.header.type !== "file" || (entry.header.size ?? 0) > MOST_BYTES) {
      entry.resume();
      continue;
    }
    const pieces: Uint8Array[] = [];
    for await (const piece of bytesOf(entry)) pieces.push(piece);
    found ??= Buffer.concat(pieces).toString("utf8");
  }
  return found;
}

/** Whether a path exists in a container, also in one that never ran. */
export async function containerHas(
  client: EngineClient,
  containerId: string,
  path: string,
): Promise<boolean> {
  try {
    await client.call("look for a file in the container", (docker, abortSignal) =>
      docker.getContainer(containerId).infoArchive({ path, abortSignal }),
    );
    return true;
  } catch (error) {
    if (hasStatus(error, 404)) return false;
    throw error;
  }
}

/** Unpacks entries into a container's root folder. */
export async function putIntoContainer(
  client: EngineClient,
  containerId: string,
  entries: readonly TarEntry[],
): Promise<void> {
  const tar = await makeTar(entries);
  await client.call("put files into the container", (docker, abortSignal) =>
    docker.getContainer(containerId).putArchive(tar, { path: "/", abortSignal }),
  );
}
