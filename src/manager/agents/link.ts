import { randomBytes } from "node:crypto";
import type { Clock } from "../../kit/clock.ts";
import { BerthError, messageOf } from "../../kit/errors.ts";
import { type AgentId, asId, type ClusterId, isId } from "../../kit/ids.ts";
import type { Logger } from "../../kit/log.ts";
import { VERSION } from "../../kit/version.ts";
import type { Ca } from "../../wire/ca.ts";
import { certificateInfo } from "../../wire/certificates.ts";
import { signAgentCsr } from "../../wire/csr.ts";
import type { DataBroker } from "../../wire/data-broker.ts";
import type { AgentMessage, FullReport, Hello, ManagerMessage } from "../../wire/generated/berth.ts";
import { acknowledgeLease, evaluateLease } from "../../wire/lease.ts";
import type { ServerLink } from "../../wire/link-server.ts";
import { checkSkew } from "../../wire/version.ts";
import type { EventLog } from "../events/log.ts";
import type { ImageService } from "../images/service.ts";
import type { Store, Tx } from "../store/store.ts";
import { healthFromWire, nodeColumns } from "./agent.ts";
import type { AgentHub } from "./hub.ts";
import type { KernelSink } from "./ports.ts";
import * as repository from "./repository.ts";

export type LinkTimes = {
  readonly heartbeatMs: number;
  readonly reportMs: number;
  readonly usageMs: number;
};

export type LinkDeps = {
  readonly store: Store;
  readonly clock: Clock;
  readonly log: Logger;
  readonly events: Pick<EventLog, "append">;
  readonly hub: AgentHub;
  readonly broker: DataBroker;
  readonly ca: Ca;
  readonly times: LinkTimes;
  readonly kernels: KernelSink;
  readonly images: Pick<ImageService, "onReport" | "onProgress" | "onRemoved" | "onDisconnected">;
};

type Body = ManagerMessage["body"] & {};
type Refusal = { readonly code: string; readonly message: string; readonly retry: boolean };

const HELLO_TIMEOUT_MS = 10_000;
const newLease = () => randomBytes(24).toString("base64url");

/** Tells of an agent's new status or facts. */
export function agentEvent(
  row: repository.AgentRow,
  kind: "agent.status" | "agent.updated",
  more: Readonly<Record<string, unknown>> = {},
) {
  const data = { name: row.name, status: row.status, ...more };
  return { kind, subject: row.id, ownerId: null, everyone: true, data };
}

/** Serves the links of agents: who they are, then everything they say, one message after the other. */
export function createLinkHandler(deps: LinkDeps): (link: ServerLink) => void {
  const { store, clock, log, events, hub, kernels, images } = deps;

  /** The first message, when it comes in time and is what it must be. */
  async function readHello(messages: AsyncIterator<AgentMessage>): Promise<Hello | undefined> {
    const over = new AbortController();
    const late = clock.sleep(HELLO_TIMEOUT_MS, over.signal).then(
      () => undefined,
      () => undefined,
    );
    const first = await Promise.race([messages.next(), late]);
    over.abort();
    const body = first?.done === false ? first.value.body : undefined;
    return body?.$case === "hello" ? body.value : undefined;
  }

  function judgeHello(hello: Hello, identity: { agentId: AgentId; clusterId: ClusterId }): Refusal | null {
    if (hello.agentId !== identity.agentId || hello.clusterId !== identity.clusterId) {
      const message = "The agent calls itself other than its certificate does. Join the node again.";
      return { code: "wrong-identity", message, retry: false };
    }
    const skew = checkSkew(VERSION, hello.version);
    return skew.ok ? null : { code: skew.code, message: skew.sentence, retry: true };
  }

  /** Rotates the lease and takes in what the node says of itself; a refusal changes nothing. */
  async function welcome(tx: Tx, link: ServerLink, hello: Hello): Promise<string | Refusal> {
    const { agentId } = link.identity;
    const row = await repository.findAny(tx, agentId);
    if (row === undefined || row.removed_at !== null) {
      const message = "This node is not part of the cluster any more. Join it again with a new token.";
      return { code: "removed", message, retry: false };
    }
    const verdict = evaluateLease({
      stored: row.lease === "" ? null : row.lease,
      previous: row.previous_lease,
      offered: hello.lease,
      hasLiveStream: hub.connected(agentId),
      otherBoot: row.boot_id !== "" && hello.bootId !== "" && row.boot_id !== hello.bootId,
      newLease: newLease(),
    });
    if (verdict.kind === "refuse") {
      return { code: verdict.code, message: verdict.sentence, retry: verdict.retry };
    }
    const { stored, previous } = verdict.state;
    await repository.update(tx, agentId, {
      lease: stored ?? "",
      previous_lease: previous,
      lease_acknowledged: 0,
      version: hello.version,
      boot_id: hello.bootId,
      last_seen_at: clock.wall(),
      ...nodeColumns(hello.node, row),
    });
    // Before the next transaction: a copy that connects now must find this stream alive.
    tx.afterCommit(() => hub.attach(agentId, link));
    return stored ?? "";
  }

  async function acknowledge(agentId: AgentId, lease: string): Promise<void> {
    await store.write(async (tx) => {
      const row = await repository.findAny(tx, agentId);
      if (row === undefined) return;
      const before = { stored: row.lease === "" ? null : row.lease, previous: row.previous_lease };
      const state = acknowledgeLease(before, lease);
      if (state.previous !== null) return;
      await repository.update(tx, agentId, { previous_lease: null, lease_acknowledged: 1 });
    });
  }

  async function onReport(agentId: AgentId, link: ServerLink, report: FullReport): Promise<void> {
    // Without its engine an agent tells what it remembers, which may not be all.
    await kernels.report(agentId, report.kernels, report.engineReachable);
    if (report.engineReachable) await images.onReport(agentId, report.images);
    const engineChanged = hub.noteEngine(agentId, report.engineReachable);
    const first = !hub.ready(agentId) && hub.isCurrent(agentId, link);
    const changed = await store.write(async (tx) => {
      const row = await repository.findAny(tx, agentId);
      if (row === undefined || row.removed_at !== null) return false;
      const columns = nodeColumns(report.node, row);
      const same = Object.entries(columns).every(([name, value]) => Reflect.get(row, name) === value);
      const alive = row.status === "ALIVE";
      if (same && alive && !first) return false;
      await repository.update(tx, agentId, { ...columns, status: "ALIVE", last_seen_at: clock.wall() });
      const next = { ...row, ...columns, status: "ALIVE" as const };
      if (!alive || first) await events.append(tx, agentEvent(next, "agent.status", { ready: true }));
      else await events.append(tx, agentEvent(next, "agent.updated"));
      return true;
    });
    if (first) {
      hub.setReady(agentId);
      await kernels.ready(agentId);
    } else if (changed || engineChanged) await kernels.ready(agentId);
  }

  async function onHealth(agentId: AgentId, items: Parameters<typeof healthFromWire>[0]): Promise<void> {
    await store.write(async (tx) => {
      const row = await repository.findAny(tx, agentId);
      if (row === undefined) return;
      const health = JSON.stringify(healthFromWire(items, clock.wall()));
      if (health === row.health) return;
      await repository.update(tx, agentId, { health });
      await events.append(tx, agentEvent(row, "agent.updated", { health: items.map((item) => item.code) }));
    });
  }

  async function renew(agentId: AgentId, clusterId: ClusterId, csrPem: string): Promise<Body> {
    try {
      const certPem = await signAgentCsr(deps.ca, csrPem, { clusterId, agentId, clock });
      const { serial, notAfter } = certificateInfo(certPem);
      const patch = { cert_serial: serial, cert_expires_at: notAfter };
      const kept = await store.write((tx) => repository.update(tx, agentId, patch));
      if (!kept) throw new BerthError("removed", "This node was removed from the cluster.");
      return { $case: "certificateIssued", value: { certPem, failure: undefined } };
    } catch (error) {
      const failure = { code: "not-issued", message: messageOf(error) };
      return { $case: "certificateIssued", value: { certPem: "", failure } };
    }
  }

  async function take(link: ServerLink, message: AgentMessage): Promise<void> {
    const { agentId, clusterId } = link.identity;
    const { body } = message;
    switch (body?.$case) {
      case "leaseStored":
        return acknowledge(agentId, body.value.lease);
      case "heartbeat":
        return hub.noteClock(agentId, body.value.wallMs);
      case "fullReport":
        return onReport(agentId, link, body.value);
      case "kernelStatus":
        return kernels.status(agentId, body.value);
      case "usage":
        return hub.noteUsage(agentId, body.value);
      case "pullProgress":
        return images.onProgress(agentId, body.value);
      case "imageRemoved":
        return images.onRemoved(agentId, body.value);
      case "health":
        return onHealth(agentId, body.value.items);
      case "certificateRequest":
        return link.send({ body: await renew(agentId, clusterId, body.value.csrPem) });
      case "commandFailed": {
        const { kernelId, generation, failure } = body.value;
        const { code = "failed", message: words = "" } = failure ?? {};
        return kernels.commandFailed(agentId, kernelId, generation, code, words);
      }
      case "streamFailed": {
        const { streamId, failure } = body.value;
        const words = failure?.message ?? "The node could not open the stream.";
        return deps.broker.fail(agentId, streamId, new BerthError(failure?.code ?? "stream-failed", words));
      }
      default:
        // What a newer agent says and this manager does not know, or a second Hello.
        return undefined;
    }
  }

  async function refuse(link: ServerLink, refusal: Refusal): Promise<void> {
    log.warn({ agent: link.identity.agentId, ...refusal }, "an agent was refused");
    await link.send({ body: { $case: "refused", value: refusal } }).catch(() => {});
    link.close();
  }

  async function serve(link: ServerLink): Promise<void> {
    const { identity } = link;
    const { agentId } = identity;
    const messages = link.messages[Symbol.asyncIterator]();
    const hello = await readHello(messages);
    if (hello === undefined) return link.close();
    const refusal = judgeHello(hello, identity);
    if (refusal !== null) return refuse(link, refusal);
    const lease = await store.write((tx) => welcome(tx, link, hello));
    if (typeof lease !== "string") return refuse(link, lease);
    hub.touch(agentId);
    hub.noteClock(agentId, hello.wallMs);
    await link.send({
      body: {
        $case: "welcome",
        value: {
          lease,
          clusterId: identity.clusterId,
          epoch: store.epoch,
          managerVersion: VERSION,
          wallMs: clock.wall(),
          ...deps.times,
        },
      },
    });
    for (let next = await messages.next(); next.done !== true; next = await messages.next()) {
      if (!hub.isCurrent(agentId, link)) break;
      hub.touch(agentId);
      try {
        await take(link, next.value);
      } catch (err) {
        // One message that cannot be taken in must not end the link: the next full report repairs it.
        log.error({ err, agent: agentId, message: next.value.body?.$case }, "a message of an agent failed");
      }
    }
  }

  return (link) => {
    const { agentId } = link.identity;
    if (!isId(agentId)) return link.close();
    serve(link)
      .catch((err: unknown) => log.warn({ err, agent: agentId }, "the link of an agent failed"))
      .finally(() => {
        link.close();
        if (hub.detach(asId<AgentId>(agentId), link)) images.onDisconnected(agentId);
      });
  };
}
