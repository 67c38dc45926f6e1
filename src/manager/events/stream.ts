import { EVENT_KINDS, type Event, systemRoutes } from "../../contract/system.ts";
import type { Clock } from "../../kit/clock.ts";
import { BerthError } from "../../kit/errors.ts";
import { may, type Principal } from "../accounts/principal.ts";
import { handleStream, type Mounted } from "../http/handle.ts";
import { type EventFilter, type EventLog, type StoredEvent, takes } from "./log.ts";

/** Proxies cut what is silent for longer. */
const HEARTBEAT_MS = 15_000;
const PAGE = 200;
/** What may wait in memory for one reader; a slower one reads on from the table. */
const QUEUE = 500;

const RETRY = "retry: 2000\n\n";
const HEARTBEAT = ": still here\n\n";

function shown(event: StoredEvent): Event {
  const kind = EVENT_KINDS.find((known) => known === event.kind);
  if (kind === undefined) throw new TypeError(`event ${event.seq} has the unknown kind ${event.kind}`);
  const { seq, subject, data } = event;
  return { seq, at: new Date(event.at).toISOString(), kind, subject, data };
}

function frame(event: StoredEvent): string {
  return `id: ${event.seq}\nevent: ${event.kind}\ndata: ${JSON.stringify(shown(event))}\n\n`;
}

/** Told when events before the asked one are gone (or it is of another database): the reader must load its state anew. */
function resetFrame(seq: number): string {
  return `id: ${seq}\nevent: reset\ndata: ${JSON.stringify({ seq })}\n\n`;
}

/** A bounded queue of what is published, for one reader. */
function createEar(log: EventLog, filter: EventFilter) {
  let queue: StoredEvent[] = [];
  let missed = false;
  let bell = Promise.withResolvers<void>();
  const unsubscribe = log.subscribe((event) => {
    if (!takes(filter, event)) return;
    if (queue.length < QUEUE) queue.push(event);
    else missed = true;
    bell.resolve();
  });
  return {
    unsubscribe,
    /** Whether something did not fit in since `clear`. */
    missed: () => missed,
    clear: () => {
      queue = [];
      missed = false;
    },
    take: (): readonly StoredEvent[] => {
      const taken = queue;
      queue = [];
      return taken;
    },
    /** Resolves when something was published, or after `ms`. */
    async wait(clock: Clock, ms: number, signal: AbortSignal): Promise<void> {
      if (queue.length > 0 || missed || signal.aborted) return;
      bell = Promise.withResolvers();
      const limit = new AbortController();
      const stop = () => limit.abort();
      signal.addEventListener("abort", stop, { once: true });
      await Promise.race([bell.promise, clock.sleep(ms, limit.signal).catch(() => {})]);
      signal.removeEventListener("abort", stop);
      limit.abort();
    },
  };
}

export type StreamOptions = {
  readonly log: EventLog;
  readonly clock: Clock;
  readonly filter: EventFilter;
  /** Events after this one; undefined begins with what happens from now on. */
  readonly after: number | undefined;
  readonly signal: AbortSignal;
};

/**
 * The events after a point as text/event-stream: first what the table has, then what happens. A reader that is slower
 * than the events reads on from the table, so it costs a bounded amount of memory and misses nothing.
 */
export async function* streamEvents(options: StreamOptions): AsyncGenerator<string> {
  const { log, clock, filter, signal } = options;
  const ear = createEar(log, filter);
  try {
    yield RETRY;
    const { first, last } = await log.bounds();
    let seq = options.after ?? last;
    if (seq > last || (options.after !== undefined && seq < first - 1)) {
      seq = seq > last ? last : first - 1;
      yield resetFrame(seq);
    }
    let behind = true;
    while (!signal.aborted) {
      if (behind || ear.missed()) {
        ear.clear();
        const page = await log.after(seq, filter, PAGE);
        for (const event of page) yield frame(event);
        seq = page.at(-1)?.seq ?? seq;
        behind = page.length === PAGE;
        continue;
      }
      const fresh = ear.take().filter((event) => event.seq > seq);
      for (const event of fresh) {
        yield frame(event);
        seq = event.seq;
      }
      if (fresh.length > 0) continue;
      const since = clock.mono();
      await ear.wait(clock, HEARTBEAT_MS, signal);
      if (clock.mono() - since >= HEARTBEAT_MS) yield HEARTBEAT;
    }
  } finally {
    ear.unsubscribe();
  }
}

/** What a person may see: everything for those who may read all sessions, else what is theirs or for everyone. */
function ownerFilter(principal: Principal): Pick<EventFilter, "ownerId"> {
  return principal.kind === "local" || may(principal, "session.read-any")
    ? {}
    : { ownerId: principal.userId };
}

function lastEventId(header: string | undefined): number | undefined {
  if (header === undefined) return undefined;
  const seq = /^\d+$/.test(header) ? Number(header) : Number.NaN;
  if (Number.isSafeInteger(seq)) return seq;
  throw new BerthError("invalid-request", "Last-Event-ID must be the number of an event.", {
    field: "Last-Event-ID",
  });
}

export function eventApi(deps: {
  readonly log: EventLog;
  readonly clock: Clock;
  /** Finds the id of a session that the person may see by id or name. */
  readonly sessionId: (principal: Principal, key: string) => Promise<string>;
}): readonly Mounted[] {
  const { log, clock } = deps;
  return [
    handleStream(systemRoutes.events, async ({ principal, query, header, alive }) => {
      const { session } = query;
      const filter: EventFilter = {
        ...ownerFilter(principal),
        subject: session === undefined ? undefined : await deps.sessionId(principal, session),
        kinds: query.kind?.split(",").filter((kind) => kind !== ""),
      };
      const after = lastEventId(header("last-event-id")) ?? query.after;
      return { body: streamEvents({ log, clock, filter, after, signal: alive }) };
    }),
  ];
}
