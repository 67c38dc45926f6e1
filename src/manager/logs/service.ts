import type { Clock } from "../../kit/clock.ts";
import { BerthError, isBerthError } from "../../kit/errors.ts";
import type { AgentId, SessionId } from "../../kit/ids.ts";
import type { Logger } from "../../kit/log.ts";
import type { AgentPort } from "../agents/ports.ts";
import type { EventLog } from "../events/log.ts";
import type { GapFrame, LogFrame } from "./collect.ts";
import { createLogFiles, type LogKey } from "./files.ts";
import { readFromAgent, type SourceFrame } from "./source.ts";
import { createTail } from "./tail.ts";

/** What is known of a kernel whose output somebody reads; asked for anew whenever the source may have changed. */
export type LogSubject = {
  readonly key: LogKey;
  /** Id of the session, about which events tell when something changes. */
  readonly session: SessionId;
  readonly agent: AgentId | null;
  /** The manager has the whole output. */
  readonly stored: boolean;
  /** Bytes of output that the kernel wrote, as far as known. */
  readonly bytes: number;
  /** Nothing more will ever come. */
  readonly ended: boolean;
};

export type ReadLogOptions = {
  readonly offset: number;
  readonly tail: number | undefined;
  readonly follow: boolean;
  readonly signal: AbortSignal;
};

export interface LogService {
  /** Fetches the whole output of an ended kernel and stores it; gives the bytes kept. */
  store(agent: AgentId, key: LogKey, signal: AbortSignal): Promise<number>;
  /**
   * The output of a kernel as frames, `log-end` last. A follower stays over restarts of the agent and over its
   * absence, and before the start; while nothing comes, an empty `log` frame goes out every 15 s.
   */
  read(subject: () => Promise<LogSubject>, options: ReadLogOptions): AsyncIterable<SourceFrame>;
  /** Deletes what is older or more than is kept; gives the number of logs. */
  prune(): Promise<number>;
}

export type LogServiceDeps = {
  readonly dir: string;
  readonly clock: Clock;
  readonly log: Logger;
  readonly agents: AgentPort;
  /** The most bytes of output that are kept of one kernel. */
  readonly limitBytes: number;
  /** How long logs are kept, in ms, and how much they may take together, in bytes. */
  readonly keepMs: number;
  readonly keepBytes: number;
  readonly events: Pick<EventLog, "subscribe">;
};

const HEAD_SHARE = 4;
const BEAT_MS = 15_000;
/** A follower looks again at least this often. */
const RETRY_MS = 2_000;

/** The part of a frame from `offset` on; null when nothing of it is left. */
function cutBefore<F extends LogFrame | GapFrame>(frame: F, offset: number): F | null {
  const skip = offset - frame.offset;
  if (skip <= 0) return frame;
  if (frame.type === "log") {
    return skip >= frame.bytes.length ? null : { ...frame, offset, bytes: frame.bytes.subarray(skip) };
  }
  return skip >= frame.dropped ? null : { ...frame, offset, dropped: frame.dropped - skip };
}

const lengthOf = (frame: LogFrame | GapFrame) => (frame.type === "log" ? frame.bytes.length : frame.dropped);

/** Adds an empty frame whenever the source says nothing for a while, so that no link between takes it for dead. */
export async function* withBeats(
  source: AsyncGenerator<SourceFrame>,
  clock: Clock,
  signal: AbortSignal,
): AsyncGenerator<SourceFrame> {
  let at = 0;
  let next = source.next();
  try {
    for (;;) {
      const beat = new AbortController();
      const idle = clock.sleep(BEAT_MS, AbortSignal.any([beat.signal, signal])).then(
        () => "idle" as const,
        () => "over" as const,
      );
      const first = await Promise.race([next, idle]);
      beat.abort();
      if (first === "over") return;
      if (first === "idle") {
        yield { type: "log", offset: at, stream: "stdout", bytes: new Uint8Array(0) };
        continue;
      }
      if (first.done === true) return;
      yield first.value;
      if (first.value.type !== "log-end") at = first.value.offset + lengthOf(first.value);
      next = source.next();
    }
  } finally {
    // Not awaited: a source that waits for its agent ends only when the signal tells it to.
    next.catch(() => {});
    void source.return(undefined).catch(() => {});
  }
}

export function createLogService(deps: LogServiceDeps): LogService {
  const { clock, agents, limitBytes, log } = deps;
  const files = createLogFiles(deps.dir);
  const limits = { totalBytes: limitBytes, headBytes: Math.floor(limitBytes / HEAD_SHARE) };

  async function* wholeOf(agent: AgentId, key: LogKey, signal: AbortSignal) {
    for await (const frame of readFromAgent(agents, agent, key, { offset: 0, follow: true, signal })) {
      if (frame.type !== "log-end") yield frame;
    }
  }

  async function* fromStore(subject: LogSubject, offset: number): AsyncGenerator<SourceFrame> {
    const stored = await files.open(subject.key);
    let at = offset;
    if (stored === null && subject.bytes > offset) {
      yield { type: "log-gap", offset, dropped: subject.bytes - offset };
      at = subject.bytes;
    }
    for await (const frame of stored ?? []) {
      const rest = cutBefore(frame, at);
      if (rest === null) continue;
      yield rest;
      at = rest.offset + lengthOf(rest);
    }
    yield { type: "log-end", offset: at, final: true };
  }

  /** Resolves when the session has changed, and after a while in any case. Rejects when the reader has left. */
  async function changed(session: SessionId, signal: AbortSignal): Promise<void> {
    const news = new AbortController();
    const unsubscribe = deps.events.subscribe((event) => {
      if (event.subject === session) news.abort();
    });
    try {
      await clock.sleep(RETRY_MS, AbortSignal.any([news.signal, signal])).catch(() => {});
      signal.throwIfAborted();
    } finally {
      unsubscribe();
    }
  }

  /** One pass over what there is now, or until the end when following; true when nothing more will come. */
  async function* once(
    subject: LogSubject,
    offset: number,
    follow: boolean,
    signal: AbortSignal,
  ): AsyncGenerator<SourceFrame> {
    if (subject.stored) return yield* fromStore(subject, offset);
    if (subject.agent === null) return yield { type: "log-end", offset, final: subject.ended };
    yield* readFromAgent(agents, subject.agent, subject.key, { offset, follow, signal });
  }

  async function* followed(
    ask: () => Promise<LogSubject>,
    from: number,
    signal: AbortSignal,
  ): AsyncGenerator<SourceFrame> {
    let at = from;
    for (;;) {
      const subject = await ask();
      try {
        for await (const frame of once(subject, at, true, signal)) {
          if (frame.type === "log-end") {
            if (frame.final) return yield frame;
            break;
          }
          yield frame;
          at = frame.offset + lengthOf(frame);
        }
      } catch (err) {
        signal.throwIfAborted();
        if (!isBerthError(err)) log.debug({ err, kernel: subject.key.kernelId }, "a followed log was cut");
      }
      const now = await ask();
      if (now.ended && !now.stored && subject.ended && (now.agent === null || !agents.ready(now.agent))) {
        // Over, and its output is on a node that is away: it does not come by waiting here.
        return yield { type: "log-end", offset: at, final: false };
      }
      if (!now.stored) await changed(subject.session, signal);
    }
  }

  async function* read(
    ask: () => Promise<LogSubject>,
    { offset, tail, follow, signal }: ReadLogOptions,
  ): AsyncGenerator<SourceFrame> {
    if (tail === undefined) {
      if (follow) return yield* followed(ask, offset, signal);
      return yield* once(await ask(), offset, false, signal);
    }
    const last = createTail(tail);
    let end: SourceFrame = { type: "log-end", offset: 0, final: false };
    const subject = await ask();
    for await (const frame of once(subject, 0, false, signal)) {
      if (frame.type === "log-end") end = frame;
      else last.put(frame);
    }
    yield* last.frames();
    if (follow && !end.final) yield* followed(ask, end.offset, signal);
    else yield end;
  }

  return {
    store: (agent, key, signal) => files.store(key, wholeOf(agent, key, signal), limits),
    read: (ask, options) => {
      const source = read(ask, options);
      return options.follow ? withBeats(source, clock, options.signal) : source;
    },
    prune: () => files.prune(clock.wall() - deps.keepMs, deps.keepBytes),
  };
}

/** The error for a session that has no output that could be read now. */
export function outputAway(node: string): BerthError {
  return new BerthError(
    "agent-lost",
    `The output is on the node ${node}, which does not answer now. Try again when it is back.`,
  );
}
