import { chmod, chown, mkdir, open, readdir, readFile, rm, stat, statfs, writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { Clock } from "../../kit/clock.ts";
import { BerthError, messageOf } from "../../kit/errors.ts";
import type { Logger } from "../../kit/log.ts";
import type { KernelRef } from "./engine.ts";
import { isMounted } from "./mounts.ts";
import { checkRef } from "./names.ts";
import { mustRun, run } from "./run.ts";

export type ScratchMode = "auto" | "loop" | "directory";

export type ScratchRequest = KernelRef & {
  /** Size of the file system in bytes; 0 for a plain directory without a limit. */
  readonly bytes: number;
  readonly uid: number;
  readonly gid: number;
};

/** Paths on the node that become the session's home and /tmp. */
export type ScratchPaths = { readonly home: string; readonly tmp: string };

export type ScratchUsage = { readonly usedBytes: number; readonly totalBytes: number };

/** The disk of one kernel each: `/home/work` and `/tmp`, with one size for both. */
export interface ScratchStore {
  /** Whether scratch is a loop-mounted file of exact size here; tried once. */
  loops(): Promise<boolean>;
  /** Makes a kernel's scratch anew and mounts it; what a failed attempt left is removed before. */
  create(request: ScratchRequest): Promise<ScratchPaths>;
  /** Mounts a scratch that exists, such as after a reboot; nothing when it is mounted or a plain directory. */
  ensureMounted(ref: KernelRef): Promise<void>;
  /** Unmounts and deletes; what is gone already is no error. */
  remove(ref: KernelRef): Promise<void>;
  usage(ref: KernelRef): Promise<ScratchUsage | undefined>;
  list(): Promise<readonly KernelRef[]>;
  /** Removes what a killed process left of its try of loop mounts. The data folder must be this process's alone. */
  clearProbes(): Promise<void>;
}

// The smallest ext4 that leaves room for files, and what must stay free on the node besides.
const LEAST_BYTES = 16 * 2 ** 20;
const KEEP_FREE_BYTES = 256 * 2 ** 20;
const MEASURE_AGAIN_MS = 30_000;
const MOUNT_TRIES = 3;
const PROBE = "probe-";

type Note = { readonly sessionId: string; readonly bytes: number; readonly loop: boolean };

export function createScratchStore({
  dataDir,
  mode,
  clock,
  log,
}: {
  readonly dataDir: string;
  readonly mode: ScratchMode;
  readonly clock: Clock;
  readonly log: Logger;
}): ScratchStore {
  const root = join(dataDir, "scratch");
  const measured = new Map<string, { readonly at: number; readonly usedBytes: number }>();
  let probe: Promise<boolean> | undefined;

  const folder = (ref: Omit<KernelRef, "sessionId">) => {
    checkRef(ref);
    return join(root, `${ref.kernelId}.g${ref.generation}`);
  };

  async function clearProbes(): Promise<void> {
    const names = await readdir(root).catch(() => []);
    for (const name of names.filter((one) => one.startsWith(PROBE))) {
      await discard(join(root, name)).catch((err: unknown) => {
        log.warn({ err, folder: join(root, name) }, "the rest of an earlier try of loop mounts stays");
      });
    }
  }

  async function probeLoops(): Promise<boolean> {
    await clearProbes();
    if (mode === "directory") return false;
    const dir = join(root, `${PROBE}${process.pid}`);
    try {
      await makeImage(dir, LEAST_BYTES, 0, 0);
      await mountImage(dir, clock);
      return true;
    } catch (err) {
      if (mode === "loop") {
        const sentence = `Loop-mounted scratch was asked for but does not work on this node: ${messageOf(err)}`;
        throw new BerthError("engine-refused", sentence, { cause: err });
      }
      log.warn({ err }, "scratch cannot be a loop-mounted file on this node; plain directories are used");
      return false;
    } finally {
      await discard(dir);
    }
  }

  async function loops(): Promise<boolean> {
    probe ??= probeLoops();
    try {
      return await probe;
    } catch (error) {
      probe = undefined;
      throw error;
    }
  }

  async function create(request: ScratchRequest): Promise<ScratchPaths> {
    const dir = folder(request);
    await discard(dir);
    await refuseFullDisk(dataDir);
    const loop = request.bytes > 0 && (await loops());
    try {
      await mkdir(join(dir, "mnt"), { recursive: true, mode: 0o711 });
      const note: Note = { sessionId: request.sessionId, bytes: request.bytes, loop };
      await writeFile(join(dir, "note.json"), JSON.stringify(note), { mode: 0o600 });
      if (loop) {
        await makeImage(dir, Math.max(request.bytes, LEAST_BYTES), request.uid, request.gid);
        await mountImage(dir, clock);
      }
      return await makeFolders(dir, request);
    } catch (error) {
      await discard(dir);
      throw error;
    }
  }

  async function usage(ref: KernelRef): Promise<ScratchUsage | undefined> {
    const dir = folder(ref);
    const note = await readNote(dir);
    if (note === undefined) return undefined;
    if (!note.loop) return { usedBytes: await measure(dir), totalBytes: note.bytes };
    if (!isMounted(join(dir, "mnt"))) return undefined;
    const { bsize, blocks, bfree } = await statfs(join(dir, "mnt"));
    return { usedBytes: (blocks - bfree) * bsize, totalBytes: blocks * bsize };
  }

  async function measure(dir: string): Promise<number> {
    const before = measured.get(dir);
    if (before !== undefined && clock.mono() - before.at < MEASURE_AGAIN_MS) return before.usedBytes;
    // Files vanish while du walks: its exit code says nothing, its sum is good enough.
    const { stdout } = await run([
      "du",
      "--summarize",
      "--block-size=1",
      "--one-file-system",
      join(dir, "mnt"),
    ]);
    const usedBytes = Number.parseInt(stdout, 10) || 0;
    measured.set(dir, { at: clock.mono(), usedBytes });
    return usedBytes;
  }

  return {
    loops,
    create,
    ensureMounted: async (ref) => {
      const dir = folder(ref);
      const note = await readNote(dir);
      if (note?.loop === true && !isMounted(join(dir, "mnt"))) await mountImage(dir, clock);
    },
    remove: async (ref) => {
      measured.delete(folder(ref));
      await discard(folder(ref));
    },
    usage,
    list: async () => {
      const names = await readdir(root).catch(() => []);
      const found = names.flatMap((name) => {
        const [, kernelId, generation] = /^([0-9a-f-]{36})\.g(\d+)$/.exec(name) ?? [];
        return kernelId === undefined ? [] : [{ kernelId, generation: Number(generation) }];
      });
      const withSession = found.map(async (ref) => ({
        ...ref,
        sessionId: (await readNote(folder(ref)))?.sessionId ?? "",
      }));
      return Promise.all(withSession);
    },
    clearProbes,
  };
}

async function refuseFullDisk(dataDir: string): Promise<void> {
  const { bsize, bavail } = await statfs(dataDir);
  if (bsize * bavail >= KEEP_FREE_BYTES) return;
  throw new BerthError(
    "disk-full",
    `The node's disk under ${dataDir} has less than ${KEEP_FREE_BYTES / 2 ** 20} MiB left; free some of it.`,
  );
}

async function makeImage(dir: string, bytes: number, uid: number, gid: number): Promise<void> {
  await mkdir(join(dir, "mnt"), { recursive: true, mode: 0o711 });
  const path = join(dir, "image.ext4");
  const file = await open(path, "w", 0o600);
  await file.truncate(bytes).finally(() => file.close());
  // No journal: the disk does not outlive its session. No reserved blocks: all of it is the user's.
  const options = `root_owner=${uid}:${gid},lazy_itable_init=1,nodiscard`;
  await mustRun(["mkfs.ext4", "-q", "-F", "-m", "0", "-O", "^has_journal", "-E", options, path]);
}

async function mountImage(dir: string, clock: Clock): Promise<void> {
  // Without noinit_itable the kernel would fill the sparse file in the background.
  const argv = ["mount", "-t", "ext4", "-o", "loop,nosuid,nodev,noatime,noinit_itable"];
  for (let attempt = 1; ; attempt += 1) {
    try {
      await mustRun([...argv, join(dir, "image.ext4"), join(dir, "mnt")]);
      return;
    } catch (error) {
      // Two mounts at once may pick the same free loop device.
      if (attempt === MOUNT_TRIES) throw error;
      await clock.sleep(50 * attempt);
    }
  }
}

/** Home and /tmp are folders of the disk, so that its `lost+found` and each other stay out of sight. */
async function makeFolders(dir: string, { uid, gid }: ScratchRequest): Promise<ScratchPaths> {
  const home = join(dir, "mnt", "home");
  const tmp = join(dir, "mnt", "tmp");
  await mkdir(home, { mode: 0o755 });
  await chown(home, uid, gid);
  await mkdir(tmp);
  await chmod(tmp, 0o1777);
  return { home, tmp };
}

async function readNote(dir: string): Promise<Note | undefined> {
  try {
    const note: unknown = JSON.parse(await readFile(join(dir, "note.json"), "utf8"));
    if (typeof note !== "object" || note === null) return undefined;
    const { sessionId, bytes, loop } = { sessionId: "", bytes: 0, loop: false, ...note };
    return { sessionId: String(sessionId), bytes: Number(bytes), loop: loop === true };
  } catch {
    return undefined;
  }
}

async function discard(dir: string): Promise<void> {
  const mount = join(dir, "mnt");
  while (isMounted(mount)) {
    if ((await run(["umount", mount])).code !== 0) {
      // Something still holds it: it goes out of sight now and away when that lets go.
      await mustRun(["umount", "--lazy", mount]);
    }
  }
  if (await stat(dir).catch(() => undefined)) await rm(dir, { recursive: true, force: true });
}
