import type { Logger } from "../../kit/log.ts";
import { networkOf } from "../network.ts";
import { plainAddress } from "./client.ts";

export type ConnectionLimits = {
  /** Open connections of all clients together. */
  readonly connections: number;
  /** Those of one client: an IPv4 address or an IPv6 /64. */
  readonly perClient: number;
};

export type ConnectionCount = {
  /** Counts a new connection, unless a limit is met; then it must be closed. `undefined`: a Unix socket. */
  admit(remoteAddress: string | undefined): boolean;
  /** Takes back what `admit` counted. */
  leave(remoteAddress: string | undefined): void;
  readonly open: () => number;
};

/** Counts open connections, so that no client alone can take them all. `exempt` ones count only for the whole. */
export function createConnectionCount(options: {
  readonly limits: ConnectionLimits;
  readonly exempt: (address: string) => boolean;
  readonly log: Logger;
}): ConnectionCount {
  const { limits, exempt, log } = options;
  const clients = new Map<string, number>();
  /** Whose refusal is in the log already: a flood must not fill it. */
  const told = new Set<string>();
  let open = 0;

  function clientOf(remoteAddress: string | undefined): string | undefined {
    const address = plainAddress(remoteAddress ?? "");
    return address === "" || exempt(address) ? undefined : networkOf(address);
  }

  function refuse(who: string, limit: number): false {
    if (!told.has(who)) log.warn({ client: who, limit }, "connections are refused: too many are open");
    told.add(who);
    return false;
  }

  return {
    admit: (remoteAddress) => {
      const client = clientOf(remoteAddress);
      if (open >= limits.connections) return refuse("all", limits.connections);
      const count = client === undefined ? 0 : (clients.get(client) ?? 0);
      if (client !== undefined && count >= limits.perClient) return refuse(client, limits.perClient);
      open++;
      if (client !== undefined) clients.set(client, count + 1);
      return true;
    },
    leave: (remoteAddress) => {
      open--;
      told.delete("all");
      const client = clientOf(remoteAddress);
      if (client === undefined) return;
      const left = (clients.get(client) ?? 1) - 1;
      if (left > 0) return void clients.set(client, left);
      clients.delete(client);
      told.delete(client);
    },
    open: () => open,
  };
}
