import type { Clock } from "../../kit/clock.ts";
import { isBerthError, messageOf } from "../../kit/errors.ts";
import type { AgentId, SessionId } from "../../kit/ids.ts";
import type { Logger } from "../../kit/log.ts";
import type { LogKey } from "../logs/files.ts";
import type { KernelRow } from "./repository.ts";

/** Stores a kernel's whole output on the manager; gives the bytes that were kept. */
export type StoreLog = (agent: AgentId, key: LogKey, signal: AbortSignal) => Promise<number>;

export type LogOutcome =
  | { readonly kind: "stored"; readonly bytes: number }
  /** The agent has none and never will. */
  | { readonly kind: "nothing" }
  /** Enough logs are being fetched from that agent already. */
  | { readonly kind: "busy" }
  | { readonly kind: "failed"; readonly attempts: number; readonly sinceMs: number };

/** How long one attempt to fetch a log may take. */
const FETCH_LIMIT_MS = 60_000;
/** Logs fetched at once from one agent: one that hangs must not keep the others' sessions from ending. */
const PER_AGENT = 4;
/** Answers of an agent that has no log to give. */
const NO_LOG: ReadonlySet<string> = new Set(["log-not-found", "kernel-not-found", "no-log"]);

export interface LogSettler {
  /** Tries once to store the log. Failures are counted by session until it works. */
  attempt(session: SessionId, kernel: KernelRow, agent: AgentId, signal: AbortSignal): Promise<LogOutcome>;
  /** The agent is away: counts as a failure that is no attempt. */
  unreachable(session: SessionId): LogOutcome;
  forget(session: SessionId): void;
}

export function createLogSettler(deps: {
  readonly clock: Clock;
  readonly log: Logger;
  readonly storeLog: StoreLog;
}): LogSettler {
  const { clock, log, storeLog } = deps;
  const failures = new Map<SessionId, { attempts: number; since: number }>();

  const fetching = new Map<AgentId, number>();
  const shift = (agent: AgentId, by: number) => {
    const now = (fetching.get(agent) ?? 0) + by;
    if (now > 0) fetching.set(agent, now);
    else fetching.delete(agent);
  };
  const count = (session: SessionId, more: number) => {
    const before = failures.get(session);
    const attempts = (before?.attempts ?? 0) + more;
    const since = before?.since ?? clock.mono();
    failures.set(session, { attempts, since });
    return { kind: "failed" as const, attempts, sinceMs: clock.mono() - since };
  };

  return {
    attempt: async (session, kernel, agent, signal) => {
      if ((fetching.get(agent) ?? 0) >= PER_AGENT) return { kind: "busy" };
      shift(agent, 1);
      const limit = new AbortController();
      const cancel = clock.after(FETCH_LIMIT_MS, () => limit.abort(new Error("the log took too long")));
      try {
        const key = { kernelId: kernel.id, generation: kernel.generation };
        const bytes = await storeLog(agent, key, AbortSignal.any([signal, limit.signal]));
        failures.delete(session);
        return { kind: "stored", bytes };
      } catch (err) {
        if (isBerthError(err) && NO_LOG.has(err.code)) {
          failures.delete(session);
          return { kind: "nothing" };
        }
        const now = count(session, 1);
        log.warn(
          { session, kernel: kernel.id, attempt: now.attempts, cause: messageOf(err) },
          "the output of a session could not be fetched yet",
        );
        return now;
      } finally {
        cancel();
        shift(agent, -1);
      }
    },
    unreachable: (session) => count(session, 0),
    forget: (session) => failures.delete(session),
  };
}
