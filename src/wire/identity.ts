import { BerthError } from "../kit/errors.ts";
import { type AgentId, asId, type ClusterId, isId } from "../kit/ids.ts";

/** Who a certificate speaks for. */
export type ManagerIdentity = { readonly role: "manager"; readonly clusterId: ClusterId };
export type AgentIdentity = {
  readonly role: "agent";
  readonly clusterId: ClusterId;
  readonly agentId: AgentId;
};
export type Identity = ManagerIdentity | AgentIdentity;

const SCHEME = "berth://";

/** The URI that stands for the identity in a certificate. */
export function formatIdentity(identity: Identity): string {
  const base = `${SCHEME}${identity.clusterId}`;
  return identity.role === "manager" ? `${base}/manager` : `${base}/agent/${identity.agentId}`;
}

function refuse(uri: string): BerthError {
  return new BerthError(
    "bad-identity",
    `The certificate names "${uri}", which is no identity of this system.`,
  );
}

/** The identity that a URI stands for. Throws `bad-identity` for any text that `formatIdentity` cannot make. */
export function parseIdentity(uri: string): Identity {
  if (!uri.startsWith(SCHEME)) throw refuse(uri);
  const [cluster = "", role, agent, ...more] = uri.slice(SCHEME.length).split("/");
  if (!isId(cluster) || more.length > 0) throw refuse(uri);
  const clusterId = asId<ClusterId>(cluster);
  if (role === "manager" && agent === undefined) return { role, clusterId };
  if (role === "agent" && agent !== undefined && isId(agent)) {
    return { role, clusterId, agentId: asId<AgentId>(agent) };
  }
  throw refuse(uri);
}
