import { backoffMs } from "../../kit/backoff.ts";
import type { Cancel, Clock } from "../../kit/clock.ts";
import { BerthError, messageOf } from "../../kit/errors.ts";
import type { Logger } from "../../kit/log.ts";
import { VERSION } from "../../kit/version.ts";
import { needsRenewal } from "../../wire/certificates.ts";
import { createAgentCsr } from "../../wire/csr.ts";
import type { ManagerMessage, NodeInfo, Welcome } from "../../wire/generated/berth.ts";
import { type AgentLink, openLink } from "../../wire/link-client.ts";
import { type IdentityStore, REMOVED } from "../identity.ts";
import type { Body, Outbox } from "./outbox.ts";

type ManagerBody = NonNullable<ManagerMessage["body"]>;

export type ManagerLinkOptions = {
  readonly identity: IdentityStore;
  readonly bootId: string;
  readonly outbox: Outbox;
  readonly clock: Clock;
  readonly log: Logger;
  readonly node: () => Promise<NodeInfo>;
  readonly fullReport: (seq: number) => Body;
  readonly usage: () => Promise<Body>;
  readonly health: () => Body;
  /** What the manager wants; must not throw and not wait for the work itself. */
  readonly onCommand: (body: ManagerBody) => void;
  readonly onUp: (welcome: Welcome, skewMs: number) => void;
  readonly onDown: () => void;
  /** How the agent stands with the manager, and why, whenever that may have changed. */
  readonly onState?: (state: LinkState, message: string) => void;
};

export type LinkState = "connecting" | "connected" | "refused" | "stopped";

export interface ManagerLink {
  start(): void;
  /** Tells the manager everything anew. */
  report(): void;
  state(): LinkState;
  /** Resolves when the manager has welcomed the agent for the first time; rejects when it refuses for good. */
  readonly ready: Promise<void>;
  stop(): Promise<void>;
}

const BACKOFF = { firstMs: 250, maxMs: 10_000, jitter: Math.random };
/** After a refusal that may pass, such as an upgrade that is under way. */
const REFUSED_RETRY_MS = 30_000;
const WELCOME_TIMEOUT_MS = 15_000;
/** A manager that answers nothing sensible must not make us busy. */
const LEAST_PERIOD_MS = 500;

class Refusal extends Error {
  constructor(
    readonly code: string,
    sentence: string,
    readonly retry: boolean,
  ) {
    super(sentence);
  }
}

/** Keeps the one link to the manager up for as long as the agent lives. */
export function createManagerLink(options: ManagerLinkOptions): ManagerLink {
  const { identity, bootId, outbox, clock, log, node, fullReport, usage, health } = options;
  const { onCommand, onUp, onDown, onState = () => {} } = options;
  const abort = new AbortController();
  const ready = Promise.withResolvers<void>();
  ready.promise.catch(() => {});
  let state: LinkState = "connecting";
  let running: Promise<void> = Promise.resolve();
  let seq = 0;
  let renewalKey: string | undefined;

  const report = () => outbox.put("fullReport", () => fullReport(++seq));

  async function connect(): Promise<AgentLink> {
    const address = identity.address();
    const hello = {
      agentId: identity.agentId,
      clusterId: identity.clusterId,
      lease: identity.lease(),
      version: VERSION,
      bootId,
      wallMs: clock.wall(),
      node: await node(),
    };
    const link = await openLink({ ...address, ...identity.credentials(), clock });
    try {
      await link.send({ body: { $case: "hello", value: hello } });
      return link;
    } catch (err) {
      link.close();
      throw err;
    }
  }

  async function firstAnswer(messages: AsyncIterator<ManagerMessage>): Promise<Welcome> {
    const late = new AbortController();
    const timeout = clock.sleep(WELCOME_TIMEOUT_MS, late.signal).then(
      () => "late" as const,
      () => "late" as const,
    );
    const first = await Promise.race([messages.next(), timeout]);
    late.abort();
    if (first === "late") throw new BerthError("manager-unreachable", "The manager did not answer in time.");
    if (first.done === true) throw new BerthError("manager-unreachable", "The manager ended the link.");
    const { body } = first.value;
    if (body?.$case === "refused") throw new Refusal(body.value.code, body.value.message, body.value.retry);
    if (body?.$case !== "welcome")
      throw new BerthError("manager-unreachable", "The manager gave no welcome.");
    if (body.value.clusterId !== identity.clusterId) {
      throw new Refusal("wrong-cluster", "The manager belongs to another cluster.", false);
    }
    return body.value;
  }

  /** A new key, certified over the link that the old certificate still opens. */
  async function renewIfDue(): Promise<void> {
    if (!needsRenewal(identity.credentials().certPem, clock)) return;
    const { keyPem, csrPem } = await createAgentCsr();
    renewalKey = keyPem;
    outbox.put("certificateRequest", () => ({ $case: "certificateRequest", value: { csrPem } }));
  }

  function takeCertificate(certPem: string, failure: string | undefined): void {
    const keyPem = renewalKey;
    renewalKey = undefined;
    if (failure !== undefined) log.warn({ failure }, "the certificate could not be renewed yet");
    if (failure !== undefined || keyPem === undefined) return;
    try {
      identity.renew(certPem, keyPem);
      log.info("the certificate was renewed");
    } catch (err) {
      log.error({ err }, "the renewed certificate could not be stored");
    }
  }

  function take(body: ManagerBody): void {
    if (body.$case === "refused") {
      // In the middle of a link: the node was removed.
      throw new Refusal(body.value.code, body.value.message, body.value.retry);
    }
    if (body.$case === "certificateIssued") {
      takeCertificate(body.value.certPem, body.value.failure?.message);
    } else if (body.$case === "requestReport") {
      report();
    } else {
      onCommand(body);
    }
  }

  function beginReports({ heartbeatMs, reportMs, usageMs }: Welcome): Cancel {
    const period = (ms: number) => Math.max(ms, LEAST_PERIOD_MS);
    const takeUsage = () => {
      usage()
        .then((body) => outbox.put("usage", () => body))
        .catch((err: unknown) => log.warn({ err }, "usage could not be measured"));
    };
    const renew = () => {
      void renewIfDue().catch((err: unknown) => log.warn({ err }, "no new key could be made"));
    };
    const timers = [
      clock.every(period(heartbeatMs), () =>
        outbox.put("heartbeat", () => ({ $case: "heartbeat", value: { wallMs: clock.wall() } })),
      ),
      clock.every(period(reportMs), () => {
        report();
        renew();
      }),
      clock.every(period(usageMs), takeUsage),
    ];
    takeUsage();
    renew();
    return () => {
      for (const cancel of timers) cancel();
    };
  }

  /** One connection, from Hello to its end. Throws why it could not be made. */
  async function serve(): Promise<string> {
    const sentAt = clock.wall();
    const link = await connect();
    const stop = () => link.close();
    abort.signal.addEventListener("abort", stop, { once: true });
    const over = new AbortController();
    let endReports: Cancel = () => {};
    try {
      const messages = link.messages[Symbol.asyncIterator]();
      const welcome = await firstAnswer(messages);
      // Stored before it is acknowledged: from then on the manager takes no older one.
      identity.storeLease(welcome.lease);
      await link.send({ body: { $case: "leaseStored", value: { lease: welcome.lease } } });
      identity.noteRemoved(false);
      state = "connected";
      onState(state, "");
      seq = 0;
      outbox.dropRepeatable();
      report();
      outbox.put("health", health);
      endReports = beginReports(welcome);
      onUp(welcome, welcome.wallMs - (sentAt + clock.wall()) / 2);
      ready.resolve();
      log.info({ manager: welcome.managerVersion, epoch: welcome.epoch }, "connected to the manager");
      void outbox.drain(link.send, over.signal).catch(() => link.close());
      for (let next = await messages.next(); next.done !== true; next = await messages.next()) {
        if (next.value.body !== undefined) take(next.value.body);
      }
      return (await link.closed).message;
    } finally {
      over.abort();
      endReports();
      abort.signal.removeEventListener("abort", stop);
      link.close();
      if (state === "connected") {
        state = "connecting";
        onDown();
      }
    }
  }

  /** Gives the time until the next try; undefined when there must be none. */
  function afterFailure(err: unknown, failures: number): number | undefined {
    if (err instanceof Refusal) {
      if (err.code === "removed") identity.noteRemoved(true);
      const fields = { code: err.code };
      if (err.retry) {
        log.warn(fields, `the manager refuses this agent for now: ${err.message}`);
        onState(state, err.message);
        return REFUSED_RETRY_MS;
      }
      state = "refused";
      onState(state, err.message);
      ready.reject(new BerthError(err.code, err.message));
      log.error(
        fields,
        `the manager refuses this agent: ${err.message} Its containers run on; start the agent again to try again.`,
      );
      return undefined;
    }
    // A manager that was put back from a copy may know the node again: it is asked, but seldom.
    const removed = identity.removed();
    const waitMs = removed ? REFUSED_RETRY_MS : backoffMs(failures, BACKOFF);
    onState(state, removed ? REMOVED : messageOf(err));
    log.warn({ waitMs, cause: messageOf(err) }, "there is no link to the manager; sessions run on");
    return waitMs;
  }

  async function run(): Promise<void> {
    let failures = 0;
    while (!abort.signal.aborted) {
      let waitMs: number | undefined;
      try {
        const cause = await serve();
        failures = 0;
        if (abort.signal.aborted) break;
        log.warn({ cause }, "the link to the manager is gone; sessions run on");
        onState(state, cause);
        waitMs = backoffMs(1, BACKOFF);
      } catch (err) {
        if (abort.signal.aborted) break;
        failures += 1;
        waitMs = afterFailure(err, failures);
      }
      if (waitMs === undefined) return;
      await clock.sleep(waitMs, abort.signal).catch(() => {});
    }
    state = "stopped";
    onState(state, "");
  }

  return {
    start: () => {
      running = run();
    },
    report,
    state: () => state,
    ready: ready.promise,
    stop: async () => {
      abort.abort();
      await running;
    },
  };
}
