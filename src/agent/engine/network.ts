import { readFile } from "node:fs/promises";
import { BerthError } from "../../kit/errors.ts";
import { type EngineClient, hasStatus, wordsOf } from "./client.ts";
import type { Ownership } from "./engine.ts";
import { bridgeName, isOwn, networkName, ownershipFilter, ownershipLabels } from "./names.ts";

/** An IPv4 network: its first address as a number, and the length of its prefix. */
export type Subnet = { readonly base: number; readonly prefix: number };

/** A Linux bridge takes 1,023 ports: a larger network could not be filled. */
const SESSION_PREFIX = 22;

export const DEFAULT_SUBNET_POOL = "10.213.0.0/16";

/** Reads "10.213.0.0/16"; undefined when it is no IPv4 network. Bits beyond the prefix are dropped. */
export function parseSubnet(text: string): Subnet | undefined {
  const match = /^(\d{1,3})\.(\d{1,3})\.(\d{1,3})\.(\d{1,3})\/(\d{1,2})$/.exec(text.trim());
  if (match === null) return undefined;
  const parts = match.slice(1, 5).map(Number);
  const prefix = Number(match[5]);
  if (parts.some((part) => part > 255) || prefix > 32) return undefined;
  const address = parts.reduce((sum, part) => sum * 256 + part, 0);
  const size = 2 ** (32 - prefix);
  return { base: Math.floor(address / size) * size, prefix };
}

export function formatSubnet({ base, prefix }: Subnet): string {
  const parts = [24, 16, 8, 0].map((shift) => Math.floor(base / 2 ** shift) % 256);
  return `${parts.join(".")}/${prefix}`;
}

function overlaps(a: Subnet, b: Subnet): boolean {
  return a.base < b.base + 2 ** (32 - b.prefix) && b.base < a.base + 2 ** (32 - a.prefix);
}

/** Networks that the node routes, from the text of /proc/net/route. The default route is none of them. */
export function parseRoutes(text: string): Subnet[] {
  const swap = (hex: string) => Number.parseInt((hex.match(/../g) ?? []).reverse().join(""), 16);
  return text
    .split("\n")
    .slice(1)
    .flatMap((line) => {
      const fields = line.split(/\s+/);
      const [destination, mask] = [fields[1], fields[7]];
      if (destination === undefined || mask === undefined || mask === "00000000") return [];
      const prefix = swap(mask).toString(2).replaceAll("0", "").length;
      return [{ base: swap(destination), prefix }];
    });
}

/**
 * The free networks of a pool, beginning at a place that depends on `seed`, so that agents which do not see each
 * other's networks rarely choose the same.
 */
export function freeSubnets(pool: Subnet, taken: readonly Subnet[], seed: number): Subnet[] {
  const prefix = Math.max(SESSION_PREFIX, pool.prefix);
  const size = 2 ** (32 - prefix);
  const count = 2 ** (prefix - pool.prefix);
  const all = Array.from({ length: count }, (_, i) => ({
    base: pool.base + ((seed + i) % count) * size,
    prefix,
  }));
  return all.filter((subnet) => !taken.some((other) => overlaps(subnet, other)));
}

/** The bridge that an agent's sessions share. */
export interface SessionNetwork {
  /** Makes the network unless it exists; returns its name. */
  ensure(): Promise<string>;
  remove(): Promise<void>;
}

/**
 * One bridge for all sessions of an agent rather than one each: inter-container communication is off on it, which
 * keeps sessions apart just as well, and a bridge each costs a subnet, an interface and some hundred ms per start.
 */
export function createSessionNetwork({
  client,
  ownership,
  pool,
}: {
  readonly client: EngineClient;
  readonly ownership: Ownership;
  readonly pool: string;
}): SessionNetwork {
  const name = networkName(ownership);

  async function exists(): Promise<boolean> {
    try {
      const found = await client.call("inspect network", (docker) => docker.getNetwork(name).inspect());
      if (isOwn(ownership, found.Labels ?? {})) return true;
    } catch (error) {
      if (hasStatus(error, 404)) return false;
      throw error;
    }
    const sentence = `The network ${name} exists but was not made by this agent; remove or rename it.`;
    throw new BerthError("engine-refused", sentence);
  }

  async function takenSubnets(): Promise<Subnet[]> {
    const networks = await client.call("list networks", (docker) => docker.listNetworks());
    const configured = networks
      .flatMap((network) => network.IPAM?.Config ?? [])
      .flatMap((config) => (config.Subnet === undefined ? [] : (parseSubnet(config.Subnet) ?? [])));
    return [...configured, ...parseRoutes(await readFile("/proc/net/route", "utf8"))];
  }

  async function make(subnet: Subnet): Promise<void> {
    await client.call("create network", (docker) =>
      docker.createNetwork({
        Name: name,
        CheckDuplicate: true,
        Driver: "bridge",
        Labels: ownershipLabels(ownership),
        IPAM: { Driver: "default", Config: [{ Subnet: formatSubnet(subnet) }] },
        Options: {
          "com.docker.network.bridge.name": bridgeName(ownership),
          "com.docker.network.bridge.enable_icc": "false",
          "com.docker.network.bridge.enable_ip_masquerade": "true",
        },
      }),
    );
  }

  async function create(): Promise<void> {
    const range = parseSubnet(pool);
    if (range === undefined) {
      throw new BerthError(
        "invalid-config",
        `subnetPool: "${pool}" is no IPv4 network such as 10.213.0.0/16.`,
      );
    }
    const seed = Number.parseInt(ownership.agentId.slice(-6), 16) || 0;
    for (const subnet of freeSubnets(range, await takenSubnets(), seed)) {
      try {
        return await make(subnet);
      } catch (error) {
        if (/already exists/i.test(wordsOf(error))) return;
        // Another agent took it since we looked.
        if (!/overlap/i.test(wordsOf(error))) throw error;
      }
    }
    const sentence = `No network for sessions is free in ${pool}; set subnetPool to a range that this node does not use.`;
    throw new BerthError("engine-refused", sentence);
  }

  let making: Promise<void> | undefined;

  return {
    ensure: async () => {
      if (!(await exists())) {
        making ??= create().finally(() => {
          making = undefined;
        });
        await making;
      }
      return name;
    },
    remove: async () => {
      const filters = { label: ownershipFilter(ownership) };
      const found = await client.call("list networks", (docker) => docker.listNetworks({ filters }));
      for (const { Id } of found) {
        await client
          .call("remove network", (docker) => docker.getNetwork(Id).remove())
          .catch((error: unknown) => {
            if (!hasStatus(error, 404)) throw error;
          });
      }
    },
  };
}
