import type { TLSSocket } from "node:tls";
import type { Cancel, Clock } from "../kit/clock.ts";
import type { AgentId } from "../kit/ids.ts";

export type ListenerLimits = {
  readonly handshakeMs: number;
  /** Connections that have not finished their handshake, in all and from one address. */
  readonly handshakes: number;
  readonly handshakesPerAddress: number;
  /** Join exchanges at once. */
  readonly joins: number;
  /** Connections of one agent at once: its link and its data streams. */
  readonly connectionsPerAgent: number;
};

/** Every open connection of the listener: those still in their handshake, and those of each agent. */
export interface Connections {
  /**
   * A connection begins; it is destroyed when its handshake takes too long. When too many handshakes are
   * under way, the oldest of its address ends; when too many in all, the oldest of the address with most.
   */
  begin(socket: TLSSocket): void;
  handshakeDone(socket: TLSSocket): void;
  /** The connection belongs to the agent; it is destroyed when the agent has too many. */
  assign(socket: TLSSocket, agentId: AgentId): void;
  cut(agentId: AgentId): void;
  countOf(agentId: AgentId): number;
  open(): number;
  destroyAll(): void;
}

export function createConnections(options: {
  readonly clock: Clock;
  readonly limits: ListenerLimits;
}): Connections {
  const { clock, limits } = options;
  const all = new Set<TLSSocket>();
  const handshakes = new Map<TLSSocket, Cancel>();
  /** The sockets of `handshakes` by address, the oldest first. */
  const perAddress = new Map<string, Set<TLSSocket>>();
  const perAgent = new Map<AgentId, Set<TLSSocket>>();

  const busiest = (): Set<TLSSocket> | undefined => {
    let most: Set<TLSSocket> | undefined;
    for (const sockets of perAddress.values()) {
      if (most === undefined || sockets.size > most.size) most = sockets;
    }
    return most;
  };
  // The oldest goes, never the newcomer: peers that say nothing must not keep out one that does.
  const endOldest = (sockets: Set<TLSSocket> | undefined) => {
    const [oldest] = sockets ?? [];
    if (oldest === undefined) return;
    handshakes.get(oldest)?.();
    oldest.destroy();
  };
  const begin = (socket: TLSSocket) => {
    const address = socket.remoteAddress ?? "";
    all.add(socket);
    const neighbours = perAddress.get(address) ?? new Set();
    perAddress.set(address, neighbours.add(socket));
    const done = () => {
      cancel();
      handshakes.delete(socket);
      neighbours.delete(socket);
      if (neighbours.size === 0 && perAddress.get(address) === neighbours) perAddress.delete(address);
    };
    const cancel = clock.after(limits.handshakeMs, () => socket.destroy());
    handshakes.set(socket, done);
    // Without a listener an error of the connection would end the process.
    socket.on("error", () => {});
    socket.once("close", () => {
      done();
      all.delete(socket);
    });
    if (neighbours.size > limits.handshakesPerAddress) endOldest(neighbours);
    if (handshakes.size > limits.handshakes) endOldest(busiest());
  };
  const assign = (socket: TLSSocket, agentId: AgentId) => {
    if (socket.destroyed) return;
    const own = perAgent.get(agentId) ?? new Set();
    perAgent.set(agentId, own.add(socket));
    socket.once("close", () => {
      own.delete(socket);
      if (own.size === 0 && perAgent.get(agentId) === own) perAgent.delete(agentId);
    });
    if (own.size > limits.connectionsPerAgent) socket.destroy();
  };
  const destroyAll = (sockets: Iterable<TLSSocket>) => {
    for (const socket of [...sockets]) socket.destroy();
  };
  return {
    begin,
    handshakeDone: (socket) => handshakes.get(socket)?.(),
    assign,
    cut: (agentId) => destroyAll(perAgent.get(agentId) ?? []),
    countOf: (agentId) => perAgent.get(agentId)?.size ?? 0,
    open: () => all.size,
    destroyAll: () => destroyAll(all),
  };
}
