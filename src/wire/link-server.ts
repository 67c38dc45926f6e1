import type { TLSSocket } from "node:tls";
import { Metadata, Server, ServerCredentials, type ServerDuplexStream, status } from "@grpc/grpc-js";
import type { Clock } from "../kit/clock.ts";
import { AgentLinkService, type AgentMessage, type ManagerMessage } from "./generated/berth.ts";
import type { AgentIdentity } from "./identity.ts";
import { createLinkCore, LINK_CHANNEL_OPTIONS, type Link } from "./link.ts";

/** The manager's end of a link. The identity is the one of the TLS connection, whatever a message says. */
export type ServerLink = Link<ManagerMessage, AgentMessage> & { readonly identity: AgentIdentity };

type Call = ServerDuplexStream<AgentMessage, ManagerMessage>;

/** A connection that has not opened its stream after this time is cut. */
const OPEN_TIMEOUT_MS = 10_000;
/** Time for the last messages to leave after `close`. */
const CLOSE_GRACE_MS = 2_000;

function acceptCall(call: Call, socket: TLSSocket, identity: AgentIdentity, clock: Clock): ServerLink {
  const { link, finish } = createLinkCore<ManagerMessage, AgentMessage>(call);
  const endSoon = () => {
    call.end();
    clock.after(CLOSE_GRACE_MS, () => socket.destroy());
  };
  call.on("end", () => {
    finish({ by: "peer", message: "the agent ended the link" });
    endSoon();
  });
  call.on("cancelled", () => finish({ by: "network", message: "the agent's stream was cut" }));
  call.on("error", (error: Error) => finish({ by: "network", message: error.message }));
  socket.once("close", () => finish({ by: "network", message: "the connection was closed" }));
  return {
    ...link,
    identity,
    close: () => {
      finish({ by: "us", message: "the manager ended the link" });
      endSoon();
    },
  };
}

/**
 * Serves gRPC on one connection of a verified agent. Each connection has a server of its own: that is how
 * a call knows whose it is. A connection carries one stream; a further one is refused.
 */
export function serveLink(options: {
  readonly socket: TLSSocket;
  readonly identity: AgentIdentity;
  readonly clock: Clock;
  readonly onLink: (link: ServerLink) => void;
}): void {
  const { socket, identity, clock, onLink } = options;
  const server = new Server({ ...LINK_CHANNEL_OPTIONS, "grpc.max_concurrent_streams": 2 });
  const cancel = clock.after(OPEN_TIMEOUT_MS, () => socket.destroy());
  let taken = false;
  server.addService(AgentLinkService, {
    link: (call: Call) => {
      if (taken) {
        const details = "This connection has carried its link already.";
        call.emit("error", { code: status.RESOURCE_EXHAUSTED, details });
        return;
      }
      taken = true;
      cancel();
      // Tells the agent at once that its stream was taken.
      call.sendMetadata(new Metadata());
      onLink(acceptCall(call, socket, identity, clock));
    },
  });
  const injector = server.createConnectionInjector(ServerCredentials.createInsecure());
  socket.once("close", () => {
    cancel();
    injector.destroy();
    server.forceShutdown();
  });
  injector.injectConnection(socket);
}
