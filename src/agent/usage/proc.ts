/** Jiffies of all processors since the start of the node. */
export type CpuTimes = { readonly busy: number; readonly total: number };

/** Reads the first line of /proc/stat. Guests' time is part of user time already. */
export function parseCpuTimes(text: string): CpuTimes {
  const fields = (/^cpu +(.*)$/m.exec(text)?.[1] ?? "").split(" ").slice(0, 8).map(Number);
  const total = fields.reduce((sum, value) => sum + value, 0);
  const idle = (fields[3] ?? 0) + (fields[4] ?? 0);
  return { busy: total - idle, total };
}

export type Traffic = { readonly rxBytes: number; readonly txBytes: number };

/** Sums /proc/net/dev over the interfaces that `counts` accepts. */
export function parseNetDev(text: string, counts: (name: string) => boolean): Traffic {
  let [rxBytes, txBytes] = [0, 0];
  for (const line of text.split("\n")) {
    const match = /^\s*(\S+):\s*(.*)$/.exec(line);
    if (match?.[1] === undefined || !counts(match[1])) continue;
    const fields = (match[2] ?? "").split(/\s+/).map(Number);
    rxBytes += fields[0] ?? 0;
    txBytes += fields[8] ?? 0;
  }
  return { rxBytes, txBytes };
}

/** Whether an interface leads out of the node; bridges and container ends would count the same bytes again. */
export function isOutwards(name: string): boolean {
  return name !== "lo" && !/^(veth|docker|br-|bth-|virbr|cni|tun|tap)/.test(name);
}

/** The distribution's name for people, from /etc/os-release. */
export function parseOsRelease(text: string): string {
  return /^PRETTY_NAME="?([^"\n]*)"?$/m.exec(text)?.[1] ?? "Linux";
}
