import { mkdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { z } from "zod";
import { writeFileAtomicSync } from "../kit/atomic-file.ts";
import type { Clock } from "../kit/clock.ts";
import { BerthError, messageOf } from "../kit/errors.ts";
import { type AgentId, asId, type ClusterId, isId } from "../kit/ids.ts";
import type { Logger } from "../kit/log.ts";
import { VERSION } from "../kit/version.ts";
import { createAgentCsr } from "../wire/csr.ts";
import type { AgentCredentials, ManagerAddress } from "../wire/dial.ts";
import { joinCluster } from "../wire/join-client.ts";
import { parseJoinToken } from "../wire/join-token.ts";
import type { AgentConfig } from "./config.ts";

const identitySchema = z.object({
  version: z.literal(1),
  agentId: z.string().refine(isId),
  clusterId: z.string().refine(isId),
  caPem: z.string(),
  certPem: z.string(),
  keyPem: z.string(),
  /** Host and port that agents reach the manager at. */
  host: z.string(),
  port: z.number().int(),
  /** The manager's URL when the node joined, by which a later change of it is seen. */
  managerUrl: z.string(),
});
type StoredIdentity = z.infer<typeof identitySchema>;

/** Who this node is, on disk in the data folder. */
export interface IdentityStore {
  readonly agentId: AgentId;
  readonly clusterId: ClusterId;
  address(): ManagerAddress;
  credentials(): AgentCredentials;
  /** Takes a renewed certificate with its key; used from the next connection. */
  renew(certPem: string, keyPem: string): void;
  /** The lease stored last; empty before the first. */
  lease(): string;
  /** On disk when it returns, so that it may be acknowledged. */
  storeLease(lease: string): void;
}

function readIfThere(path: string): string | undefined {
  try {
    return readFileSync(path, "utf8");
  } catch (err) {
    if (err instanceof Error && "code" in err && err.code === "ENOENT") return undefined;
    throw new BerthError(
      "identity-unreadable",
      `The agent's file ${path} cannot be read: ${messageOf(err)}.`,
    );
  }
}

function readIdentity(path: string): StoredIdentity | undefined {
  const content = readIfThere(path);
  if (content === undefined) return undefined;
  try {
    return identitySchema.parse(JSON.parse(content));
  } catch (cause) {
    const sentence =
      `The agent's identity ${path} is damaged. Put it back from a copy, or remove the node from the cluster, ` +
      "move the file away and join again.";
    throw new BerthError("identity-damaged", sentence, { cause });
  }
}

function defaultPort(url: URL): number {
  if (url.port !== "") return Number(url.port);
  return url.protocol === "https:" ? 443 : 80;
}

/** Where agents reach the manager: as it was told when joining, or, under a new URL, the port after the URL's. */
export function addressFor(
  identity: Pick<StoredIdentity, "host" | "port" | "managerUrl">,
  url: string | undefined,
) {
  if (url === undefined || url === identity.managerUrl) return { host: identity.host, port: identity.port };
  const now = new URL(url);
  const before = new URL(identity.managerUrl);
  const port = defaultPort(now) === defaultPort(before) ? identity.port : defaultPort(now) + 1;
  return { host: hostOf(now), port };
}

function hostOf(url: URL): string {
  return url.hostname.replace(/^\[|\]$/g, "");
}

async function joinNow(config: AgentConfig, clock: Clock, log: Logger): Promise<StoredIdentity> {
  const { manager, token } = config;
  if (manager === undefined || token === undefined) {
    const sentence =
      "This node has not joined a cluster. Make a token on the manager with `berth join-token create` and start the " +
      "agent once with --manager URL --token TOKEN.";
    throw new BerthError("not-joined", sentence, { field: manager === undefined ? "manager" : "token" });
  }
  const parsed = parseJoinToken(token);
  const host = hostOf(new URL(manager));
  const { keyPem, csrPem } = await createAgentCsr();
  const joined = await joinCluster({
    host,
    port: parsed.port,
    token: parsed,
    csrPem,
    hostname: config.name,
    version: VERSION,
    clock,
  });
  if (joined.skewWarning !== undefined) log.warn({ skewMs: joined.skewMs }, joined.skewWarning);
  const { agentId, clusterId, caPem, certPem } = joined;
  const port = parsed.port;
  return { version: 1, agentId, clusterId, caPem, certPem, keyPem, host, port, managerUrl: manager };
}

/**
 * Opens the identity in the data folder, which must exist; joins the cluster when there is none. Throws `not-joined`,
 * `identity-damaged`, or why the manager refused.
 */
export async function openIdentity(options: {
  readonly config: AgentConfig;
  readonly clock: Clock;
  readonly log: Logger;
}): Promise<IdentityStore> {
  const { config, clock, log } = options;
  mkdirSync(config.dataDir, { recursive: true, mode: 0o700 });
  const file = join(config.dataDir, "identity.json");
  const leaseFile = join(config.dataDir, "lease");
  const save = (identity: StoredIdentity) => writeFileAtomicSync(file, JSON.stringify(identity, null, 2));

  const known = readIdentity(file);
  if (known !== undefined && config.token !== undefined) {
    log.info("the node has joined before: the join token is not needed and not used");
  }
  let identity = known ?? (await joinNow(config, clock, log));
  if (known === undefined) {
    save(identity);
    log.info({ agent: identity.agentId, cluster: identity.clusterId }, "the node has joined the cluster");
  }
  let lease = readIfThere(leaseFile)?.trim() ?? "";
  const clusterId = asId<ClusterId>(identity.clusterId);

  return {
    agentId: asId<AgentId>(identity.agentId),
    clusterId,
    address: () => addressFor(identity, config.manager),
    credentials: () => ({
      clusterId,
      caPem: identity.caPem,
      certPem: identity.certPem,
      keyPem: identity.keyPem,
    }),
    renew: (certPem, keyPem) => {
      const renewed = { ...identity, certPem, keyPem };
      save(renewed);
      identity = renewed;
    },
    lease: () => lease,
    storeLease: (next) => {
      writeFileAtomicSync(leaseFile, `${next}\n`);
      lease = next;
    },
  };
}
