import type { Permission } from "../../contract/permissions.ts";
import type { CreateSession, HistoryEntry, Session, SessionDetail } from "../../contract/sessions.ts";
import type { SessionStatus, SessionType } from "../../contract/states.ts";
import { isFinal } from "../../contract/states.ts";
import type { Clock } from "../../kit/clock.ts";
import { BerthError } from "../../kit/errors.ts";
import { asId, isId, type SessionId, type UserId } from "../../kit/ids.ts";
import { actorOf, may, ownerOf, type Principal } from "../accounts/principal.ts";
import type { AgentHub } from "../agents/hub.ts";
import type { AgentService } from "../agents/service.ts";
import type { EventLog } from "../events/log.ts";
import type { GroupService } from "../groups/service.ts";
import { pageOf, parseCursor } from "../http/cursor.ts";
import type { Policies } from "../policies/service.ts";
import { joinWords } from "../scheduling/words.ts";
import type { Db, Store, Tx } from "../store/store.ts";
import { checkPriority, PRIORITY_RIGHT } from "./admission.ts";
import { type createEnqueue, refusalError } from "./create.ts";
import type { Progress } from "./progress.ts";
import type { Reconciler } from "./reconciler.ts";
import * as repository from "./repository.ts";
import { forceSession, stopSession } from "./stop.ts";
import { statusEvent } from "./transitions.ts";
import { detailView, historyView, sessionView, type WaitView } from "./view.ts";

/** How many sessions of one name are told by owner and id. */
const MAX_TOLD = 5;

export type SessionServiceDeps = {
  readonly store: Store;
  readonly clock: Clock;
  readonly events: Pick<EventLog, "append">;
  readonly enqueue: ReturnType<typeof createEnqueue>;
  readonly reconciler: Reconciler;
  readonly progress: Progress;
  readonly hub: Pick<AgentHub, "kernelUsage">;
  readonly agents: Pick<AgentService, "find">;
  readonly groups: Pick<GroupService, "findFor">;
  readonly policies: Pick<Policies, "of">;
  readonly findUser: (db: Db, reference: string) => Promise<UserId>;
  readonly waitOf: (session: SessionId) => WaitView | undefined;
  readonly wakeScheduler: () => void;
};

export type ListQuery = {
  readonly cursor?: string | undefined;
  readonly limit: number;
  readonly state: "live" | "ended" | "all";
  readonly status?: SessionStatus | undefined;
  readonly type?: SessionType | undefined;
  readonly group?: string | undefined;
  readonly agent?: string | undefined;
  readonly tag?: string | undefined;
  readonly q?: string | undefined;
  readonly owner?: string | undefined;
  readonly sort: repository.SessionSort;
};

export type SessionChange = {
  readonly name?: string | undefined;
  readonly tags?: readonly string[] | undefined;
  readonly priority?: number | undefined;
};

export interface SessionService {
  create(principal: Principal, body: CreateSession): Promise<{ items: SessionDetail[] }>;
  list(principal: Principal, query: ListQuery): Promise<{ items: Session[]; next: string | null }>;
  get(principal: Principal, reference: string): Promise<SessionDetail>;
  history(principal: Principal, reference: string): Promise<{ items: HistoryEntry[] }>;
  update(principal: Principal, reference: string, change: SessionChange): Promise<SessionDetail>;
  /** Asks for the end; with `force` the session is over at once. Again it changes nothing. */
  terminate(principal: Principal, reference: string, force: boolean): Promise<Session>;
  /**
   * The session that a reference means to a principal, within what they may reach: their own, or with the right
   * `any` everybody's. One's own comes first. Throws `session-not-found`, also for what they may not even see,
   * `not-permitted` for what they may only see, and `conflict` for a name that live sessions of several people have.
   */
  reach(db: Db, principal: Principal, reference: string, any: Permission): Promise<repository.SessionRecord>;
}

/** A session of that name, whoever's it is. A name is unique only among the live sessions of one person. */
async function findAnybodys(db: Db, name: string): Promise<repository.SessionRecord | undefined> {
  const live = await repository.liveByName(db, name, MAX_TOLD + 1);
  if (live.length <= 1) return live[0] ?? (await repository.findByName(db, name, null));
  const told = live.slice(0, MAX_TOLD).map((row) => `${row.owner_email} (${row.id})`);
  if (live.length > MAX_TOLD) told.push("others");
  throw new BerthError(
    "conflict",
    `Several people have a session named "${name}": ${joinWords(told)}. Give the id of the one that is meant.`,
    { field: "session", details: { sessions: live.map((row) => row.id) } },
  );
}

export function createSessionService(deps: SessionServiceDeps): SessionService {
  const { store, clock, events, reconciler } = deps;

  async function reach(
    db: Db,
    principal: Principal,
    reference: string,
    any: Permission,
  ): Promise<repository.SessionRecord> {
    const own = principal.kind === "user" ? principal.userId : null;
    const sees = may(principal, "session.read-any") || may(principal, any);
    const found = isId(reference)
      ? await repository.findById(db, asId<SessionId>(reference))
      : ((own === null ? undefined : await repository.findByName(db, reference, own)) ??
        (sees ? await findAnybodys(db, reference) : undefined));
    if (found === undefined || (found.owner_id !== own && !sees)) {
      throw new BerthError("session-not-found", `There is no session "${reference}".`, { field: "session" });
    }
    if (found.owner_id === own || may(principal, any)) return found;
    const lacks = `this needs the right ${any}, which your role does not have`;
    throw new BerthError("not-permitted", `${found.name} belongs to ${found.owner_email}: ${lacks}.`, {
      field: "session",
      details: { permission: any },
    });
  }

  async function detail(db: Db, principal: Principal, row: repository.SessionRecord): Promise<SessionDetail> {
    return detailView(row, deps.waitOf(row.id), {
      kernels: await repository.kernelsOf(db, row.id),
      usage: (kernel) =>
        kernel.agent_id === null ? undefined : deps.hub.kernelUsage(kernel.agent_id, kernel.id),
      pull: deps.progress.of(row.id),
      viewer: principal.kind === "user" ? principal.userId : null,
    });
  }

  async function filterOf(db: Db, principal: Principal, query: ListQuery): Promise<repository.SessionFilter> {
    const own = principal.kind === "user" ? principal.userId : undefined;
    const owner = query.owner ?? (own === undefined ? "all" : "me");
    let ownerId = own;
    if (owner !== "me") {
      if (!may(principal, "session.read-any")) {
        const asked = owner === "all" ? null : await deps.findUser(db, owner).catch(() => null);
        if (asked === null || asked !== own) {
          throw new BerthError("not-permitted", "You may list your own sessions only.", { field: "owner" });
        }
      } else ownerId = owner === "all" ? undefined : await deps.findUser(db, owner);
    }
    return {
      state:
        query.status !== undefined && isFinal(query.status) && query.state === "live" ? "all" : query.state,
      status: query.status,
      type: query.type,
      groupId:
        query.group === undefined ? undefined : (await deps.groups.findFor(db, principal, query.group)).id,
      agentId: query.agent === undefined ? undefined : (await deps.agents.find(db, query.agent)).id,
      tag: query.tag,
      q: query.q,
      ownerId,
    };
  }

  async function rename(tx: Tx, row: repository.SessionRecord, name: string): Promise<void> {
    if (name === row.name || isFinal(row.status)) return;
    const live = await repository.liveOfOwner(tx, row.owner_id);
    if (!live.some((other) => other.name === name)) return;
    throw new BerthError(
      "session-name-in-use",
      `A session named "${name}" of the same owner has not ended yet. Choose another name.`,
      { field: "name" },
    );
  }

  async function refusePriority(
    tx: Tx,
    principal: Principal,
    row: repository.SessionRecord,
    priority: number,
  ): Promise<void> {
    if (row.status !== "PENDING") {
      throw new BerthError(
        "conflict",
        `${row.name} does not wait any more: its priority means nothing now.`,
        {
          field: "priority",
        },
      );
    }
    if (principal.kind === "local") return;
    const policy = await deps.policies.of(tx, principal.policyId);
    const rights = new Set(may(principal, PRIORITY_RIGHT) ? [PRIORITY_RIGHT] : []);
    const refusals = checkPriority(priority, { policy, rights });
    if (refusals.length > 0) throw refusalError(refusals);
  }

  return {
    reach,
    create: async (principal, body) => {
      const rows = await deps.enqueue(ownerOf(principal), body);
      return store.read(async (db) => ({
        items: await Promise.all(rows.map((row) => detail(db, principal, row))),
      }));
    },
    list: (principal, query) =>
      store.read(async (db) => {
        const filter = await filterOf(db, principal, query);
        const scope = `sessions:${query.sort}`;
        const [key, seq] = query.cursor === undefined ? [null, null] : parseCursor(scope, query.cursor, 2);
        const after = key === null || key === undefined ? null : { key, seq: Number(seq) };
        const rows = await repository.listSessions(db, filter, query.sort, { after, limit: query.limit + 1 });
        return pageOf(
          rows,
          query.limit,
          scope,
          (row) => [repository.sortKey(row, query.sort), row.seq],
          (row) => sessionView(row, deps.waitOf(row.id)),
        );
      }),
    get: (principal, reference) =>
      store.read(async (db) =>
        detail(db, principal, await reach(db, principal, reference, "session.read-any")),
      ),
    history: (principal, reference) =>
      store.read(async (db) => {
        const row = await reach(db, principal, reference, "session.read-any");
        return { items: (await repository.historyOf(db, row.id)).map(historyView) };
      }),
    update: async (principal, reference, change) => {
      const id = await store.write(async (tx) => {
        const row = await reach(tx, principal, reference, "session.write-any");
        const { name, tags, priority } = change;
        if (name !== undefined) await rename(tx, row, name);
        if (priority !== undefined) await refusePriority(tx, principal, row, priority);
        const patch = {
          name: name ?? row.name,
          tags: tags === undefined ? row.tags : JSON.stringify([...new Set(tags)]),
          priority: priority ?? row.priority,
        };
        await repository.updateSession(tx, row.id, [row.status], patch);
        const told = { reason: "changed", message: null, actor: actorOf(principal), at: clock.wall() };
        const event = statusEvent({ ...row, ...patch }, row.status, told);
        await events.append(tx, { ...event, kind: "session.updated" });
        if (priority !== undefined) tx.afterCommit(deps.wakeScheduler);
        return row.id;
      });
      return store.read(async (db) =>
        detail(db, principal, await reach(db, principal, id, "session.write-any")),
      );
    },
    terminate: async (principal, reference, force) => {
      const row = await store.write(async (tx) => {
        const session = await reach(tx, principal, reference, "session.write-any");
        const own = principal.kind === "user" && principal.userId === session.owner_id;
        const stop = {
          reason: force ? "force-terminated" : own ? "user-requested" : "admin-requested",
          actor: actorOf(principal),
          now: clock.wall(),
        };
        const next = force
          ? await forceSession(tx, events, session, stop)
          : await stopSession(tx, events, session, stop);
        tx.afterCommit(() => {
          reconciler.add(session.id);
          deps.wakeScheduler();
        });
        return next;
      });
      return sessionView(row, undefined);
    },
  };
}
