import { readdir, rm } from "node:fs/promises";
import { join } from "node:path";
import type { Logger } from "../../kit/log.ts";
import { type KernelLog, openKernelLog } from "./kernel-log.ts";

/** Which kernel's log: `<kernel id>.g<generation>`. */
export type LogKey = string;

export interface LogStore {
  /** Opens a kernel's log, making it when there is none. `limitBytes` counts for the first opener. */
  open(key: LogKey, limitBytes: number): Promise<KernelLog>;
  /** The log when one is open or on disk. */
  find(key: LogKey): Promise<KernelLog | undefined>;
  /** Ends its readers and deletes it. */
  remove(key: LogKey): Promise<void>;
  /** Keys of the logs on disk. */
  list(): Promise<readonly LogKey[]>;
  /** Writes everything out and closes all. */
  close(): Promise<void>;
}

/** The logs below `dir`, one folder for each kernel. */
export function createLogStore(options: {
  readonly dir: string;
  readonly defaultLimitBytes: number;
  readonly log: Logger;
}): LogStore {
  const { dir, defaultLimitBytes, log } = options;
  const logs = new Map<LogKey, Promise<KernelLog>>();
  const folder = (key: LogKey) => join(dir, key);

  function open(key: LogKey, limitBytes: number): Promise<KernelLog> {
    const known = logs.get(key);
    if (known !== undefined) return known;
    const opened = openKernelLog({ dir: folder(key), limitBytes: limitBytes || defaultLimitBytes, log });
    logs.set(key, opened);
    opened.catch(() => logs.delete(key));
    return opened;
  }

  async function list(): Promise<readonly LogKey[]> {
    return readdir(dir).catch(() => []);
  }

  async function find(key: LogKey): Promise<KernelLog | undefined> {
    if (logs.has(key)) return logs.get(key);
    return (await list()).includes(key) ? open(key, defaultLimitBytes) : undefined;
  }

  async function remove(key: LogKey): Promise<void> {
    const known = await logs.get(key)?.catch(() => undefined);
    logs.delete(key);
    await known?.close();
    await rm(folder(key), { recursive: true, force: true });
  }

  async function close(): Promise<void> {
    const open = await Promise.allSettled(logs.values());
    logs.clear();
    await Promise.all(open.map((entry) => (entry.status === "fulfilled" ? entry.value.close() : undefined)));
  }

  return { open, find, remove, list, close };
}
