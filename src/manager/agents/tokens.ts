import { createHash, timingSafeEqual } from "node:crypto";
import type { Clock, WallMs } from "../../kit/clock.ts";
import { formatDuration } from "../../kit/duration.ts";
import { BerthError } from "../../kit/errors.ts";
import { type AgentId, type JoinTokenId, newId } from "../../kit/ids.ts";
import type { Logger } from "../../kit/log.ts";
import { VERSION } from "../../kit/version.ts";
import type { Ca } from "../../wire/ca.ts";
import { certificateInfo, fingerprint } from "../../wire/certificates.ts";
import { signAgentCsr } from "../../wire/csr.ts";
import type { JoinRequest, JoinResult } from "../../wire/join-server.ts";
import { formatJoinToken, newJoinSecret } from "../../wire/join-token.ts";
import { checkSkew } from "../../wire/version.ts";
import type { EventLog } from "../events/log.ts";
import type { GroupService } from "../groups/service.ts";
import { pageOf, parseCursor } from "../http/cursor.ts";
import type { Store, Tx } from "../store/store.ts";
import { nameForNode } from "./agent.ts";
import { agentEvent } from "./link.ts";
import * as repository from "./repository.ts";

export type JoinTokenView = {
  readonly id: string;
  readonly createdAt: string;
  readonly expiresAt: string;
  readonly usesLeft: number;
  readonly createdBy: string;
};

export interface JoinTokens {
  /** A token and its text, which is shown this once. `ttl` in ms, at most 30 days. */
  create(input: {
    readonly ttl: number | undefined;
    readonly uses: number;
    readonly group: string | null;
    readonly actor: string;
  }): Promise<{ joinToken: JoinTokenView; secret: string }>;
  list(query: {
    cursor?: string | undefined;
    limit: number;
  }): Promise<{ items: JoinTokenView[]; next: string | null }>;
  remove(id: JoinTokenId): Promise<void>;
  /** A node asks to join. Throws `join-refused` or `agent-too-new` and the like. */
  join(request: JoinRequest): Promise<JoinResult>;
}

export type JoinTokenDeps = {
  readonly store: Store;
  readonly clock: Clock;
  readonly log: Logger;
  readonly events: Pick<EventLog, "append">;
  readonly ca: Ca;
  readonly groups: Pick<GroupService, "find">;
  /** The port on which agents reach the manager. */
  readonly agentPort: () => number;
};

const HOUR_MS = 3_600_000;
const MAX_TTL_MS = 30 * 24 * HOUR_MS;
const SCOPE = "join-tokens";
const hashOf = (secret: string) => createHash("sha256").update(secret).digest("hex");

function viewOf(row: repository.JoinTokenRow): JoinTokenView {
  return {
    id: row.id,
    createdAt: new Date(row.created_at).toISOString(),
    expiresAt: new Date(row.expires_at).toISOString(),
    usesLeft: row.uses_left,
    createdBy: row.created_by,
  };
}

function sameHash(a: string, b: string): boolean {
  const [left, right] = [Buffer.from(a, "hex"), Buffer.from(b, "hex")];
  return left.length === right.length && timingSafeEqual(left, right);
}

export function createJoinTokens(deps: JoinTokenDeps): JoinTokens {
  const { store, clock, log, events, ca, groups } = deps;

  function refuse(why: string): BerthError {
    return new BerthError("join-refused", `${why} Make a new one with: berth join-token create`);
  }

  function checkToken(
    row: repository.JoinTokenRow | undefined,
    secret: string,
    now: WallMs,
  ): repository.JoinTokenRow {
    // One sentence for a wrong id and a wrong secret: it tells nothing about which ids exist.
    if (row === undefined || !sameHash(row.hash, hashOf(secret)))
      throw refuse("The join token is not known here.");
    if (row.expires_at <= now) throw refuse("The join token's time is over.");
    if (row.uses_left <= 0) throw refuse("The join token has been used up.");
    return row;
  }

  async function addAgent(
    tx: Tx,
    token: repository.JoinTokenRow,
    agent: { id: AgentId; hostname: string; version: string; certPem: string },
  ): Promise<repository.AgentRow> {
    const taken = new Set((await repository.all(tx)).map((row) => row.name));
    const group = await groups.find(tx, token.group_id).catch(() => groups.find(tx, null));
    const { serial, notAfter } = certificateInfo(agent.certPem);
    const row: repository.AgentRow = {
      id: agent.id,
      name: nameForNode(agent.hostname, taken),
      group_id: group.id,
      status: "JOINED",
      schedulable: 1,
      lease: "",
      previous_lease: null,
      lease_acknowledged: 0,
      cert_serial: serial,
      cert_expires_at: notAfter,
      version: agent.version,
      boot_id: "",
      node: "{}",
      cap_cpu: 0,
      cap_mem: 0,
      reserved_cpu: 0,
      reserved_mem: 0,
      reserved_by_admin: 0,
      health: "[]",
      joined_at: clock.wall(),
      last_seen_at: null,
      removed_at: null,
    };
    await repository.insert(tx, row);
    await events.append(tx, agentEvent(row, "agent.status"));
    return row;
  }

  return {
    create: async ({ ttl = HOUR_MS, uses, group, actor }) => {
      if (ttl <= 0 || ttl > MAX_TTL_MS) {
        throw new BerthError(
          "invalid-request",
          `A join token lives for more than 0 and at most ${formatDuration(MAX_TTL_MS)}.`,
          { field: "ttl" },
        );
      }
      const secret = newJoinSecret();
      const now = clock.wall();
      const row = await store.write(async (tx) => {
        await repository.pruneTokens(tx, now - MAX_TTL_MS);
        const token: repository.JoinTokenRow = {
          id: newId<JoinTokenId>(clock),
          hash: hashOf(secret),
          group_id: (await groups.find(tx, group)).id,
          created_by: actor,
          created_at: now,
          expires_at: now + ttl,
          uses_left: uses,
        };
        await repository.insertToken(tx, token);
        return token;
      });
      const text = formatJoinToken({
        id: row.id,
        secret,
        caFingerprint: fingerprint(ca.certPem),
        port: deps.agentPort(),
      });
      return { joinToken: viewOf(row), secret: text };
    },
    list: ({ cursor, limit }) =>
      store.read(async (db) => {
        const [at, id] = cursor === undefined ? [null, null] : parseCursor(SCOPE, cursor, 2);
        const after = at === null ? null : ([Number(at), String(id)] as const);
        const rows = await repository.listTokens(db, clock.wall(), { after, limit: limit + 1 });
        return pageOf(rows, limit, SCOPE, (row) => [row.created_at, row.id], viewOf);
      }),
    remove: async (id) => {
      if (await store.write((tx) => repository.deleteToken(tx, id))) return;
      throw new BerthError("join-token-not-found", "There is no such join token, or it has ended.");
    },
    join: async (request) => {
      const { tokenId, secret, csrPem, hostname, version, wallMs, address } = request;
      const skew = checkSkew(VERSION, version);
      if (!skew.ok) throw new BerthError(skew.code, skew.sentence);
      const now = clock.wall();
      const token = checkToken(await store.read((db) => repository.findToken(db, tokenId)), secret, now);
      const agentId = newId<AgentId>(clock);
      // Signed before the transaction, so that it holds nobody up; without the row it is worth nothing.
      const certPem = await signAgentCsr(ca, csrPem, { clusterId: store.clusterId, agentId, clock });
      const row = await store.write(async (tx) => {
        if (!(await repository.useToken(tx, tokenId, clock.wall())))
          throw refuse("The join token has been used up.");
        return addAgent(tx, token, { id: agentId, hostname, version, certPem });
      });
      log.info({ agent: agentId, name: row.name, address, skewMs: wallMs - now }, "a node joined");
      return { agentId, certPem };
    },
  };
}
