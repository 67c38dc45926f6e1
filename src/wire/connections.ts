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
  /** A connection begins; it is destroyed when too many handshakes are under way or this one takes too long. */
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
  const perAddress = new Map<string, number>();
  const perAgent = new Map<AgentId, Set<TLSSocket>>();

  const countAddress = (address: string, change: number): number => {
    const count = (perAddress.get(address) ?? 0) + change;
    if (count > 0) perAddress.set(address, count);
    else perAddress.delete(address);
    return count;
  };
  const begin = (socket: TLSSocket) => {
    const address = socket.remoteAddress ?? "";
    all.add(socket);
    const inFlight = countAddress(address, 1);
    let counted = true;
    const done = () => {
      cancel();
      handshakes.delete(socket);
      if (counted) countAddress(address, -1);
      counted = false;
    };
    const cancel = clock.after(limits.handshakeMs, () => socket.destroy());
    handshakes.set(socket, done);
    // Without a listener an error of the connection would end the process.
    socket.on("error", () => {});
    socket.once("close", () => {
      done();
      all.delete(socket);
    });
    if (handshakes.size > limits.handshakes || inFlight > limits.handshakesPerAddress) socket.destroy();
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
