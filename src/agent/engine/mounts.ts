import { readFileSync } from "node:fs";

export type MountPoint = { readonly path: string; readonly source: string; readonly fsType: string };

// The kernel writes blanks and backslashes in paths as octal numbers.
const plainPath = (text: string): string =>
  text.replace(/\\([0-7]{3})/g, (_, octal: string) => String.fromCharCode(Number.parseInt(octal, 8)));

/** Reads the text of /proc/self/mountinfo. */
export function parseMountInfo(text: string): MountPoint[] {
  return text.split("\n").flatMap((line) => {
    const [left, right] = line.split(" - ");
    const path = left?.split(" ")[4];
    const [fsType, source] = right?.split(" ") ?? [];
    if (path === undefined || fsType === undefined || source === undefined) return [];
    return [{ path: plainPath(path), source: plainPath(source), fsType }];
  });
}

export function readMounts(): MountPoint[] {
  return parseMountInfo(readFileSync("/proc/self/mountinfo", "utf8"));
}

export function isMounted(path: string): boolean {
  return readMounts().some((mount) => mount.path === path);
}

/** Mount points strictly below `path`, parents first and each once. */
export function mountsBelow(path: string, mounts: readonly MountPoint[]): string[] {
  const below = mounts.map((mount) => mount.path).filter((mount) => mount.startsWith(`${path}/`));
  return [...new Set(below)].sort();
}
