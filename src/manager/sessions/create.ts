import type { CreateSession } from "../../contract/sessions.ts";
import type { Clock } from "../../kit/clock.ts";
import { BerthError } from "../../kit/errors.ts";
import { type KernelId, newId, type SessionId } from "../../kit/ids.ts";
import { sumSlots } from "../../kit/slots.ts";
import { may, type UserPrincipal } from "../accounts/principal.ts";
import type { AgentService } from "../agents/service.ts";
import type { EventLog } from "../events/log.ts";
import { effectiveDeadlines, readTypes } from "../groups/group.ts";
import type { GroupRow, GroupService } from "../groups/service.ts";
import type { ServicePort } from "../images/labels.ts";
import { type ImageRow, type ImageService, minimumOf } from "../images/service.ts";
import type { ResourcePolicy } from "../policies/limits.ts";
import type { Policies } from "../policies/service.ts";
import type { Store, Tx } from "../store/store.ts";
import { admit, PRIORITY_RIGHT } from "./admission.ts";
import type { AdmissionFacts, AdmissionRequest, Admitted, Refusal } from "./admission-types.ts";
import { readSlots } from "./columns.ts";
import { freshName } from "./names.ts";
import { addHistory, findById, insertSession, liveOfOwner, type SessionRecord } from "./repository.ts";
import { statusEvent } from "./transitions.ts";

/** What a session gets that states nothing: one core, a gibibyte, and 64 MiB of it shared. */
export const DEFAULT_SLOTS = { cpu: 1000, mem: 1024 ** 3, shm: 64 * 1024 ** 2 };

export type CreateDeps = {
  readonly store: Store;
  readonly clock: Clock;
  readonly events: Pick<EventLog, "append">;
  readonly groups: Pick<GroupService, "findFor">;
  readonly images: Pick<ImageService, "find">;
  readonly servicePorts: (image: ImageRow) => readonly ServicePort[];
  readonly agents: Pick<AgentService, "nodes">;
  readonly policies: Pick<Policies, "of">;
  readonly queued: () => void;
};

type Parts = {
  readonly owner: UserPrincipal;
  readonly body: CreateSession;
  readonly image: ImageRow;
  readonly group: GroupRow;
  readonly policy: ResourcePolicy;
};

function requestOf(body: CreateSession): AdmissionRequest {
  return {
    type: body.type,
    name: body.name ?? null,
    count: body.count,
    slots: { cpu: body.slots.cpu, mem: body.slots.mem },
    shm: body.slots.shm ?? null,
    priority: body.priority,
    env: body.environment,
    command: body.command ?? null,
    startsAt: body.startsAt === undefined ? null : Date.parse(body.startsAt),
    timeoutMs: body.timeout ?? null,
    preopenPorts: body.preopenPorts,
  };
}

/** All that was refused, in one error; the first sentence speaks for it. */
export function refusalError(refusals: readonly Refusal[]): BerthError {
  const [first] = refusals;
  const onlyName = refusals.length === 1 && first?.code === "session-name-in-use";
  const more = refusals.length > 1 ? ` (and ${refusals.length - 1} more)` : "";
  return new BerthError(
    onlyName ? "session-name-in-use" : "admission-refused",
    `${first?.sentence ?? "The request was refused."}${more}`,
    {
      ...(first === undefined ? {} : { field: first.field, details: first.details }),
      faults: refusals,
    },
  );
}

/** Queues sessions: all that were asked for, or none with every reason against it. */
export function createEnqueue(deps: CreateDeps) {
  const { store, clock, events } = deps;

  async function factsOf(tx: Tx, { owner, image, group, policy }: Parts): Promise<AdmissionFacts> {
    const live = await liveOfOwner(tx, owner.userId);
    const pending = live.filter((session) => session.status === "PENDING");
    const nodes = await deps.agents.nodes(tx);
    return {
      now: clock.wall(),
      group: { name: group.name, active: group.active === 1, allowedTypes: readTypes(group.allowed_types) },
      nodes: nodes.filter((node) => node.groupId === group.id),
      image: {
        reference: image.reference,
        arch: image.arch,
        needsHost: image.kind === "host",
        minimum: minimumOf(image),
        servicePorts: deps.servicePorts(image),
      },
      policy,
      usage: {
        sessions: live.length,
        pendingSessions: pending.length,
        slots: sumSlots(live.map((session) => readSlots(session.slots))),
        pendingSlots: sumSlots(pending.map((session) => readSlots(session.slots))),
      },
      liveNames: new Set(live.map((session) => session.name)),
      rights: new Set(may(owner, PRIORITY_RIGHT) ? [PRIORITY_RIGHT] : []),
      defaults: DEFAULT_SLOTS,
    };
  }

  async function insertOne(tx: Tx, parts: Parts, admitted: Admitted, name: string): Promise<SessionId> {
    const { owner, body, image, group } = parts;
    const now = clock.wall();
    const id = newId<SessionId>(clock);
    const slots = JSON.stringify(admitted.slots);
    const amounts = { cpu: admitted.slots.cpu, mem: admitted.slots.mem, shm: admitted.shm, slots };
    await insertSession(
      tx,
      {
        id,
        name,
        type: body.type,
        status: "PENDING",
        status_reason: null,
        status_message: null,
        status_since: now,
        desired: "run",
        stop_reason: null,
        stop_actor: null,
        owner_id: owner.userId,
        group_id: group.id,
        image_id: image.id,
        image_reference: image.reference,
        image_kind: image.kind,
        agent_id: null,
        priority: admitted.priority,
        ...amounts,
        environment: JSON.stringify(body.environment),
        command: body.command === undefined ? null : JSON.stringify(body.command),
        use_entrypoint: body.useEntrypoint ? 1 : 0,
        tags: JSON.stringify([...new Set(body.tags)]),
        preopen_ports: JSON.stringify(body.preopenPorts),
        service_ports: JSON.stringify(deps.servicePorts(image)),
        notices: JSON.stringify(admitted.adjusted.map((change) => change.sentence)),
        deadlines: JSON.stringify(effectiveDeadlines(group)),
        pending_timeout_ms: group.pending_timeout_ms,
        timeout_ms: admitted.lifetimeMs,
        starts_at: body.startsAt === undefined ? null : Date.parse(body.startsAt),
        exit_code: null,
        result: "UNDEFINED",
        created_at: now,
        started_at: null,
        ended_at: null,
      },
      {
        id: newId<KernelId>(clock),
        session_id: id,
        role: "main",
        idx: 1,
        generation: 1,
        status: "PENDING",
        agent_id: null,
        ...amounts,
        container_id: null,
        epoch: store.epoch,
        exit_code: null,
        oom_killed: 0,
        timed_out: 0,
        failure_code: null,
        failure_message: null,
        end_reason: null,
        gone: 0,
        log_stored: 0,
        log_bytes: 0,
        started_at: null,
        ended_at: null,
      },
    );
    await addHistory(tx, {
      session_id: id,
      at: now,
      from_status: null,
      to_status: "PENDING",
      reason: "queued",
      message: null,
      actor: owner.email,
    });
    return id;
  }

  return async (owner: UserPrincipal, body: CreateSession): Promise<readonly SessionRecord[]> =>
    store.write(async (tx) => {
      const image = await deps.images.find(tx, body.image);
      const group = await deps.groups.findFor(tx, owner, body.group ?? null);
      const parts = { owner, body, image, group, policy: await deps.policies.of(tx, owner.policyId) };
      const facts = await factsOf(tx, parts);
      const admission = admit(requestOf(body), facts);
      if (!admission.ok) throw refusalError(admission.refusals);
      const taken = new Set(facts.liveNames);
      const rows: SessionRecord[] = [];
      for (const wanted of admission.names) {
        const id = await insertOne(tx, parts, admission, wanted ?? freshName(taken));
        const row = await findById(tx, id);
        if (row === undefined) throw new Error(`session ${id} was not stored`);
        const told = { reason: "queued", message: null, actor: owner.email, at: row.created_at };
        await events.append(tx, statusEvent(row, null, told));
        rows.push(row);
      }
      tx.afterCommit(deps.queued);
      return rows;
    });
}
