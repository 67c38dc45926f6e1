import { createHash } from "node:crypto";
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
  /** SHA-256 of the join token that it came by, so that a new token is told from it. */
  joinedWith: z.string().optional(),
  /** When the manager said that the node was removed, in ms since 1970. */
  removedAt: z.number().optional(),
});
type StoredIdentity = z.infer<typeof identitySchema>;

/** Who this node is, on disk in the data folder. */
export interface IdentityStore {
  readonly agentId: AgentId;
  readonly clusterId: ClusterId;
  address(): ManagerAddress;
  credentials(): AgentCredentials;
  /** Whether the manager has said that this node was removed. */
  removed(): boolean;
  /** Keeps in the data folder that the node was removed, or that it was taken in after all. */
  noteRemoved(removed: boolean): void;
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

function hashOf(token: string): string {
  return createHash("sha256").update(token.trim()).digest("base64url");
}

/** What a node says that was removed and is given no new token. */
export const REMOVED =
  "This node was removed from its cluster. To bring it back, make a token on the manager with " +
  "`berth join-token create` and start the agent with --manager URL --token TOKEN.";

function identityFile(dataDir: string): string {
  return join(dataDir, "identity.json");
}

/** An identity that a node has or had: whose its containers and network are. */
export type KnownIdentity = {
  readonly agentId: AgentId;
  readonly clusterId: ClusterId;
  /** The manager has said that it is not part of the cluster any more. */
  readonly removed: boolean;
};

function knownOf({ agentId, clusterId, removedAt }: StoredIdentity): KnownIdentity {
  return {
    agentId: asId<AgentId>(agentId),
    clusterId: asId<ClusterId>(clusterId),
    removed: removedAt !== undefined,
  };
}

/** The identity in a data folder; undefined when no node has joined with it. Throws `identity-damaged`. */
export function knownIdentity(dataDir: string): KnownIdentity | undefined {
  const known = readIdentity(identityFile(dataDir));
  return known === undefined ? undefined : knownOf(known);
}

/** Whether a token is one that the identity did not come by; an identity that does not tell needs none while it holds. */
function isNewToken({ joinedWith, removedAt }: StoredIdentity, token: string | undefined): boolean {
  if (token === undefined) return false;
  return joinedWith === undefined ? removedAt !== undefined : joinedWith !== hashOf(token);
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
  const joinedWith = hashOf(token);
  return {
    version: 1,
    agentId,
    clusterId,
    caPem,
    certPem,
    keyPem,
    host,
    port,
    managerUrl: manager,
    joinedWith,
  };
}

export type IdentityOptions = {
  readonly config: AgentConfig;
  readonly clock: Clock;
  readonly log: Logger;
  /** Clears what an identity left on the node that a new one is about to follow; throws when it must stay. */
  readonly retire: (old: KnownIdentity) => Promise<void>;
};

/** Joins the cluster that made a new token, in place of the identity that the node has. */
async function joinAnew(known: StoredIdentity, options: IdentityOptions): Promise<StoredIdentity> {
  const { config, clock, log, retire } = options;
  // What cannot work must not clear the node first.
  parseJoinToken(config.token ?? "");
  log.info({ agent: known.agentId }, "a new join token was given: the node joins anew with it");
  await retire(knownOf(known));
  return joinNow({ ...config, manager: config.manager ?? known.managerUrl }, clock, log);
}

/** The identity on disk, or a new one when there is none or a new token asks for it. */
async function settle(file: string, options: IdentityOptions): Promise<StoredIdentity> {
  const { config, clock, log } = options;
  const known = readIdentity(file);
  if (known !== undefined && !isNewToken(known, config.token)) {
    if (known.removedAt !== undefined) log.error({ agent: known.agentId }, REMOVED);
    else if (config.token !== undefined)
      log.info("the node has joined with this token before: it is not used");
    return known;
  }
  const joined = known === undefined ? await joinNow(config, clock, log) : await joinAnew(known, options);
  saveIdentity(file, joined);
  log.info({ agent: joined.agentId, cluster: joined.clusterId }, "the node has joined the cluster");
  return joined;
}

function saveIdentity(file: string, identity: StoredIdentity): void {
  writeFileAtomicSync(file, JSON.stringify(identity, null, 2));
}

/** The lease that an agent stored; one that an identity before it left behind is none. */
function readLease(file: string, agentId: string): string {
  const [lease = "", owner = agentId] = (readIfThere(file)?.trim() ?? "").split("\n");
  return owner === agentId ? lease : "";
}

/**
 * Opens the identity in the data folder; joins the cluster when there is none, and joins anew when the token is not the
 * one that the identity came by. Throws `not-joined`, `identity-damaged`, why the manager refused, or what `retire` throws.
 */
export async function openIdentity(options: IdentityOptions): Promise<IdentityStore> {
  const { config, clock } = options;
  mkdirSync(config.dataDir, { recursive: true, mode: 0o700 });
  const file = identityFile(config.dataDir);
  const leaseFile = join(config.dataDir, "lease");
  let identity = await settle(file, options);
  let lease = readLease(leaseFile, identity.agentId);
  const clusterId = asId<ClusterId>(identity.clusterId);
  const change = (changed: StoredIdentity) => {
    saveIdentity(file, changed);
    identity = changed;
  };

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
    removed: () => identity.removedAt !== undefined,
    noteRemoved: (removed) => {
      if (removed === (identity.removedAt !== undefined)) return;
      const { removedAt: _, ...rest } = identity;
      change(removed ? { ...rest, removedAt: clock.wall() } : rest);
    },
    renew: (certPem, keyPem) => change({ ...identity, certPem, keyPem }),
    lease: () => lease,
    storeLease: (next) => {
      writeFileAtomicSync(leaseFile, `${next}\n${identity.agentId}\n`);
      lease = next;
    },
  };
}
