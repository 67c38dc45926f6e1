import { isIPv6 } from "node:net";
import { type ClientDuplexStream, credentials, type StatusObject, status } from "@grpc/grpc-js";
import type { Clock } from "../kit/clock.ts";
import { type BerthError, messageOf } from "../kit/errors.ts";
import type { ClusterId } from "../kit/ids.ts";
import { certificateInfo } from "./certificates.ts";
import {
  type AgentCredentials,
  DIAL_TIMEOUT_MS,
  type ManagerAddress,
  notTrusted,
  turnedAway,
  unreachable,
} from "./dial.ts";
import { AgentLinkClient, type AgentMessage, type ManagerMessage } from "./generated/berth.ts";
import { createLinkCore, LINK_CHANNEL_OPTIONS, type Link } from "./link.ts";

/** The agent's end of a link. */
export type AgentLink = Link<AgentMessage, ManagerMessage>;

export type OpenLinkOptions = ManagerAddress &
  AgentCredentials & { readonly clock: Clock; readonly timeoutMs?: number };

/** Time for the manager to end its side after `close`. */
const CLOSE_GRACE_MS = 2_000;

type Call = ClientDuplexStream<AgentMessage, ManagerMessage>;

/** Why the certificate is not the manager's, or undefined when it is. */
function faultOf(certificate: Uint8Array, clusterId: ClusterId): string | undefined {
  try {
    const { identity } = certificateInfo(certificate);
    if (identity.role !== "manager") return "it is an agent.";
    return identity.clusterId === clusterId ? undefined : "it belongs to another cluster.";
  } catch (error) {
    return messageOf(error);
  }
}

function createClient(options: OpenLinkOptions) {
  const { host, port, caPem, certPem, keyPem, clusterId } = options;
  let untrusted: BerthError | undefined;
  let recognised = false;
  const checkServerIdentity = (_: string, { raw }: { raw: Buffer }): Error | undefined => {
    const fault = faultOf(raw, clusterId);
    untrusted = fault === undefined ? undefined : notTrusted(options, fault);
    recognised = fault === undefined;
    return untrusted;
  };
  const channel = credentials.createSsl(Buffer.from(caPem), Buffer.from(keyPem), Buffer.from(certPem), {
    checkServerIdentity,
  });
  const client = new AgentLinkClient(`${isIPv6(host) ? `[${host}]` : host}:${port}`, channel, {
    ...LINK_CHANNEL_OPTIONS,
    // TLS takes no address as a server name; the identity in the certificate is what counts.
    "grpc.ssl_target_name_override": "manager",
    // A connection shared with another link would outlive a renewed certificate, and a cut would end both.
    "grpc.use_local_subchannel_pool": 1,
    "grpc.enable_retries": 0,
    "grpc.enable_http_proxy": 0,
  });
  const explain = (end: StatusObject): Error => {
    if (untrusted !== undefined) return untrusted;
    if (recognised) return turnedAway(options);
    const refused = /certificate|issuer/i.test(end.details);
    return refused ? notTrusted(options, `${end.details}.`) : unreachable(options, end.details);
  };
  return { client, explain };
}

/** Resolves once the manager has taken the stream, which it tells by its headers. */
function taken(call: Call, options: OpenLinkOptions, explain: (end: StatusObject) => Error): Promise<void> {
  return new Promise((resolve, reject) => {
    const cancel = options.clock.after(options.timeoutMs ?? DIAL_TIMEOUT_MS, () => {
      reject(unreachable(options, "no answer in time"));
      call.cancel();
    });
    call.once("metadata", () => {
      cancel();
      resolve();
    });
    call.once("status", (end: StatusObject) => {
      cancel();
      reject(explain(end));
    });
  });
}

/**
 * Opens the agent's one link to its manager and verifies that it is the manager of the cluster. Throws
 * `manager-unreachable` or `manager-not-trusted`. A manager that refuses this agent's certificate cuts the
 * connection, which reads as `manager-unreachable` too.
 */
export async function openLink(options: OpenLinkOptions): Promise<AgentLink> {
  const { client, explain } = createClient(options);
  const call = client.link();
  const { link, finish } = createLinkCore<AgentMessage, ManagerMessage>(call);
  // Every end of a call is told by its status; the error event says the same again.
  call.on("error", () => {});
  call.on("status", (end: StatusObject) => {
    const inOrder = end.code === status.OK;
    finish({
      by: inOrder ? "peer" : "network",
      message: inOrder ? "the manager ended the link" : end.details,
    });
    client.close();
  });
  try {
    await taken(call, options, explain);
  } catch (error) {
    client.close();
    throw error;
  }
  return {
    ...link,
    close: () => {
      finish({ by: "us", message: "the agent ended the link" });
      call.end();
      options.clock.after(CLOSE_GRACE_MS, () => call.cancel());
    },
  };
}
