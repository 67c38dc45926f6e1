/** Path of a process's control group: under v1 one per controller, under v2 one for all (the empty name). */
export type CgroupPaths = ReadonlyMap<string, string>;

/** Reads the text of /proc/PID/cgroup. */
export function parseCgroup(text: string): CgroupPaths {
  const paths = new Map<string, string>();
  for (const line of text.split("\n")) {
    const match = /^\d+:([^:]*):(.+)$/.exec(line);
    for (const controller of match?.[1]?.split(",") ?? []) paths.set(controller, match?.[2] ?? "/");
  }
  return paths;
}

/** The number after a key in the `key value` lines of files such as memory.stat; 0 when it is not there. */
export function keyed(text: string, key: string): number {
  const line = text.split("\n").find((one) => one.startsWith(`${key} `));
  return Number(line?.slice(key.length + 1) ?? 0) || 0;
}

/** A limit; "max" and version 1's largest number both mean none, which is 0. */
export function parseLimit(text: string): number {
  const limit = Number(text.trim());
  return Number.isNaN(limit) || limit >= 2 ** 62 ? 0 : limit;
}

/** Bytes read and written, from version 2's io.stat ("8:0 rbytes=1 wbytes=2 …"). */
export function parseIoStat(text: string): { readonly read: number; readonly write: number } {
  const sum = (key: string) =>
    [...text.matchAll(new RegExp(`\\b${key}=(\\d+)`, "g"))].reduce((all, match) => all + Number(match[1]), 0);
  return { read: sum("rbytes"), write: sum("wbytes") };
}

/** The same from version 1's blkio.throttle.io_service_bytes ("8:0 Read 1"). */
export function parseBlkio(text: string): { readonly read: number; readonly write: number } {
  const sum = (word: string) =>
    [...text.matchAll(new RegExp(`^\\d+:\\d+ ${word} (\\d+)$`, "gm"))].reduce(
      (all, match) => all + Number(match[1]),
      0,
    );
  return { read: sum("Read"), write: sum("Write") };
}
