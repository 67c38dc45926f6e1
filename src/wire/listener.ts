import type { AddressInfo } from "node:net";
import { createServer, type Server, type TLSSocket } from "node:tls";
import type { Clock } from "../kit/clock.ts";
import { BerthError, messageOf } from "../kit/errors.ts";
import type { AgentId, ClusterId } from "../kit/ids.ts";
import type { Logger } from "../kit/log.ts";
import { type ByteStream, createByteStream } from "./byte-stream.ts";
import { createVerifier, type KeyedCertificate } from "./certificates.ts";
import { createConnections, type ListenerLimits } from "./connections.ts";
import { DATA_PROTOCOL, JOIN_PROTOCOL, LINK_PROTOCOL } from "./dial.ts";
import type { AgentIdentity } from "./identity.ts";
import { answerJoin, type OnJoin } from "./join-server.ts";
import { type ServerLink, serveLink } from "./link-server.ts";

export type AgentListenerOptions = {
  readonly clusterId: ClusterId;
  readonly caPem: string;
  readonly serverCert: KeyedCertificate;
  readonly host: string;
  /** 0 takes a free port. */
  readonly port: number;
  readonly clock: Clock;
  readonly log: Logger;
  /** Decides on a node that asks to join; a BerthError that it throws is told to the node. */
  readonly onJoin: OnJoin;
  readonly onLink: (link: ServerLink) => void;
  readonly onData: (identity: AgentIdentity, stream: ByteStream) => void;
  /** Whether an agent or one of its certificates (serial in lower-case hex) may not connect any more. */
  readonly isRevoked: (identity: AgentIdentity, serial: string) => boolean | Promise<boolean>;
  readonly limits?: Partial<ListenerLimits>;
};

const LIMITS: ListenerLimits = {
  handshakeMs: 10_000,
  handshakes: 256,
  handshakesPerAddress: 64,
  joins: 32,
  connectionsPerAgent: 2_048,
};

export interface AgentListener {
  readonly port: number;
  /** Destroys every connection of the agent at once. It does not keep it from connecting again. */
  cut(agentId: AgentId): void;
  /** Open connections of the agent. */
  connectionsOf(agentId: AgentId): number;
  /** Connections that are open now, whoever they belong to. */
  open(): number;
  /** Stops listening and destroys every connection. */
  close(): Promise<void>;
}

const KEEP_ALIVE_MS = 30_000;
const tooManyJoins = () => new BerthError("busy", "Too many nodes are joining at once. Try again soon.");

/**
 * The one port for agents. TLS 1.3; ALPN tells links, data streams and joins apart. Links and data streams
 * need a certificate that this cluster's CA signed for one of its agents and that is not revoked; the join
 * exchange needs none. Throws `port-in-use` or `cannot-listen`.
 */
export async function createAgentListener(options: AgentListenerOptions): Promise<AgentListener> {
  const { clusterId, caPem, serverCert, clock, log, isRevoked } = options;
  const limits = { ...LIMITS, ...options.limits };
  const verifier = createVerifier({ caPem, clock });
  const connections = createConnections({ clock, limits });
  /** Joins that nothing is being decided for, the oldest first, and those that a token may be used up for. */
  const idleJoins = new Set<TLSSocket>();
  const decidedJoins = new Set<TLSSocket>();

  const authenticate = async (socket: TLSSocket): Promise<AgentIdentity> => {
    const { raw } = socket.getPeerCertificate(true);
    // The runtime's verdict and our own: each would do, and either may have a fault.
    if (!socket.authorized || raw === undefined) {
      throw new BerthError(
        "bad-certificate",
        `The peer shows no good certificate: ${socket.authorizationError}`,
      );
    }
    const { identity, serial } = await verifier.verify(raw);
    if (identity.role !== "agent" || identity.clusterId !== clusterId) {
      throw new BerthError("bad-identity", "The peer is no agent of this cluster.");
    }
    // Known under its agent before revocation is asked for, so that a removal meanwhile cuts this one too.
    connections.assign(socket, identity.agentId);
    if (await isRevoked(identity, serial)) throw new BerthError("revoked", "The agent was removed.");
    return identity;
  };
  const join = async (socket: TLSSocket) => {
    if (idleJoins.size + decidedJoins.size >= limits.joins) {
      // The oldest that may still try again goes: peers that say nothing must not keep out one that does.
      const [oldest] = idleJoins;
      if (oldest === undefined) throw tooManyJoins();
      idleJoins.delete(oldest);
      oldest.destroy();
    }
    idleJoins.add(socket);
    const onJoin: OnJoin = async (request) => {
      // One that was ended meanwhile must not use up its token.
      if (!idleJoins.delete(socket)) throw tooManyJoins();
      decidedJoins.add(socket);
      try {
        return await options.onJoin(request);
      } catch (error) {
        if (decidedJoins.delete(socket)) idleJoins.add(socket);
        throw error;
      }
    };
    try {
      const address = socket.remoteAddress ?? "";
      await answerJoin(createByteStream(socket), { ...options, onJoin, address });
    } finally {
      idleJoins.delete(socket);
      decidedJoins.delete(socket);
    }
  };
  const serve = async (socket: TLSSocket) => {
    socket.setNoDelay(true);
    socket.setKeepAlive(true, KEEP_ALIVE_MS);
    if (socket.alpnProtocol === JOIN_PROTOCOL) {
      await join(socket);
      return;
    }
    if (socket.alpnProtocol !== LINK_PROTOCOL && socket.alpnProtocol !== DATA_PROTOCOL) {
      throw new BerthError("unknown-protocol", "The peer names no protocol.");
    }
    const identity = await authenticate(socket);
    if (socket.destroyed) return;
    if (socket.alpnProtocol === DATA_PROTOCOL) options.onData(identity, createByteStream(socket));
    else serveLink({ socket, identity, clock, onLink: options.onLink });
  };

  const server = createServer({
    cert: serverCert.certPem,
    key: serverCert.keyPem,
    ca: caPem,
    requestCert: true,
    rejectUnauthorized: false,
    minVersion: "TLSv1.3",
    handshakeTimeout: limits.handshakeMs,
    ALPNProtocols: [LINK_PROTOCOL, DATA_PROTOCOL, JOIN_PROTOCOL],
  });
  server.on("connection", connections.begin);
  server.on("tlsClientError", (error: Error, socket: TLSSocket) => {
    log.debug({ err: error }, "A handshake on the port of the agents failed");
    // The runtime tells of a handshake that timed out and leaves its connection open.
    socket.destroy();
  });
  server.on("secureConnection", (socket: TLSSocket) => {
    connections.handshakeDone(socket);
    const address = socket.remoteAddress;
    serve(socket).catch((error: unknown) => {
      log.info({ address, reason: messageOf(error) }, "A connection on the port of the agents was refused");
      socket.destroy();
    });
  });
  const port = await listen(server, options);
  return {
    port,
    cut: connections.cut,
    connectionsOf: connections.countOf,
    open: connections.open,
    close: async () => {
      const closed = new Promise<void>((resolve) => server.close(() => resolve()));
      connections.destroyAll();
      await closed;
    },
  };
}

function portOf(address: AddressInfo | string | null): number {
  if (address === null || typeof address === "string") throw new TypeError("not listening on a port");
  return address.port;
}

function listen(server: Server, { host, port, log }: AgentListenerOptions): Promise<number> {
  return new Promise((resolve, reject) => {
    server.once("error", (cause: Error) => {
      const inUse = "code" in cause && cause.code === "EADDRINUSE";
      const sentence = inUse
        ? `The port ${port} for agents is in use at ${host}. Stop what uses it, or choose another port.`
        : `Berth cannot listen for agents at ${host} port ${port}: ${cause.message}.`;
      reject(new BerthError(inUse ? "port-in-use" : "cannot-listen", sentence, { cause }));
    });
    server.listen(port, host, () => {
      server.on("error", (err: Error) => log.error({ err }, "The port of the agents reported an error"));
      resolve(portOf(server.address()));
    });
  });
}
