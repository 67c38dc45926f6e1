import { api } from "../contract/api.ts";
import type { SessionDetail } from "../contract/sessions.ts";
import { isFinal } from "../contract/states.ts";
import { backoffMs } from "../kit/backoff.ts";
import type { Clock } from "../kit/clock.ts";
import { parseDuration } from "../kit/duration.ts";
import { BerthError } from "../kit/errors.ts";
import { createFrameDecoder, type Frame } from "../kit/frames.ts";
import type { Client } from "./client.ts";
import { isTransient } from "./failures.ts";
import type { Io } from "./io.ts";

export type LogSink = {
  write(stream: "stdout" | "stderr", bytes: Uint8Array, offset: number): Promise<void>;
  /** `dropped` bytes are not there any more. */
  gap(dropped: number, offset: number): Promise<void>;
};

export type FollowOptions = {
  readonly client: Client;
  readonly clock: Clock;
  readonly session: string;
  readonly sink: LogSink;
  readonly signal: AbortSignal;
  readonly follow: boolean;
  readonly tail?: number | undefined;
  readonly kernel?: string | undefined;
  /** For how long the manager may be gone, in ms. */
  readonly patienceMs: number;
  /** Called when the connection was lost and is tried again in vain. */
  readonly onLost?: () => void;
};

const WAITS = { firstMs: 250, maxMs: 5000 };
/** A stream without a byte for so long is dead, in ms: the manager sends signs of life. */
const SILENT_MS = 60_000;
const DEFAULT_PATIENCE_MS = 600_000;

/** For how long a command waits for a manager that is gone: BERTH_PATIENCE, or ten minutes. */
export function patienceOf(io: Io): number {
  const text = io.env.BERTH_PATIENCE;
  return text ? parseDuration(text, "BERTH_PATIENCE") : DEFAULT_PATIENCE_MS;
}

function isSilence(error: unknown): boolean {
  return error instanceof DOMException && error.name === "TimeoutError";
}

/** Passes the chunks on, and gives up when none comes for `SILENT_MS`. */
async function* watched(
  clock: Clock,
  open: (signal: AbortSignal) => Promise<AsyncIterable<Uint8Array>>,
  signal: AbortSignal,
): AsyncGenerator<Uint8Array> {
  const silence = new AbortController();
  const both = AbortSignal.any([signal, silence.signal]);
  const arm = () => clock.after(SILENT_MS, () => silence.abort(new DOMException("silent", "TimeoutError")));
  let cancel = () => {};
  try {
    const chunks = (await open(both))[Symbol.asyncIterator]();
    for (;;) {
      cancel = arm();
      const { value, done } = await chunks.next();
      cancel();
      if (done) return;
      yield value;
    }
  } finally {
    cancel();
    // A reader that stops early leaves no connection behind.
    silence.abort();
  }
}

/**
 * Writes a session's output to the sink, byte for byte, and goes on at the same place after the connection or
 * the manager was gone. With `follow` it returns when the session has ended; otherwise when what is there is
 * written. Throws when the manager refuses, when it is gone for longer than `patienceMs`, or on `signal`.
 */
export async function followLogs(options: FollowOptions): Promise<void> {
  const { client, clock, session, sink, signal, follow, kernel } = options;
  let { tail } = options;
  let offset = 0;
  let ended = false;

  const take = async (frame: Frame): Promise<void> => {
    if (frame.type === "log") {
      tail = undefined;
      const known = Math.max(0, offset - frame.offset);
      if (known >= frame.bytes.length) return;
      await sink.write(frame.stream, frame.bytes.subarray(known), frame.offset + known);
      offset = frame.offset + frame.bytes.length;
    } else if (frame.type === "log-gap") {
      tail = undefined;
      const dropped = frame.offset + frame.dropped - Math.max(offset, frame.offset);
      if (dropped > 0) await sink.gap(dropped, offset);
      offset = Math.max(offset, frame.offset + frame.dropped);
    } else if (frame.type === "log-end") {
      ended = frame.final || !follow;
    } else if (frame.type === "error") {
      throw new BerthError(frame.code, frame.message);
    }
  };

  const readOnce = async (onByte: () => void): Promise<void> => {
    const place = tail === undefined ? { offset } : { tail };
    const query = { follow: follow ? "true" : "false", ...place, ...(kernel && { kernel }) } as const;
    const decoder = createFrameDecoder();
    const open = (both: AbortSignal) =>
      client.stream(api.sessions.logs, { params: { session }, query }, { signal: both });
    for await (const chunk of watched(clock, open, signal)) {
      onByte();
      for (const frame of decoder.push(chunk)) await take(frame);
      if (ended) return;
    }
  };

  let failures = 0;
  let lostSince: number | undefined;
  while (!ended) {
    try {
      await readOnce(() => {
        failures = 0;
        lostSince = undefined;
      });
      // The answer ended without its last frame: nothing more comes, or it was cut in order.
      if (!follow || ended) return;
      const now = await client.call(api.sessions.get, { params: { session } }, { signal });
      if (isFinal(now.status) && ++failures > 2) return;
    } catch (error) {
      if (signal.aborted) throw signal.reason;
      if (!isTransient(error) && !isSilence(error)) throw error;
      failures++;
      lostSince ??= clock.mono();
      if (clock.mono() - lostSince > options.patienceMs) throw goneFor(error, session);
      if (failures === 2) options.onLost?.();
    }
    if (!ended)
      await clock.sleep(backoffMs(Math.max(failures, 1), { ...WAITS, jitter: Math.random }), signal);
  }
}

function goneFor(error: unknown, session: string): BerthError {
  const why = error instanceof Error ? error.message : "The connection was lost.";
  const sentence = `${why} The session may still run; "berth show ${session}" tells when it is back.`;
  return new BerthError("unreachable", sentence, { cause: error });
}

/** Waits until the session has a final status and returns it. Bears a manager that is gone for a while. */
export async function waitForEnd(
  options: Pick<FollowOptions, "client" | "clock" | "session" | "signal" | "patienceMs">,
): Promise<SessionDetail> {
  const { client, clock, session, signal } = options;
  let failedSince: number | undefined;
  for (let tried = 1; ; tried++) {
    try {
      const now = await client.call(api.sessions.get, { params: { session } }, { signal });
      if (isFinal(now.status)) return now;
      failedSince = undefined;
    } catch (error) {
      if (signal.aborted || !isTransient(error)) throw error;
      failedSince ??= clock.mono();
      if (clock.mono() - failedSince > options.patienceMs) throw goneFor(error, session);
    }
    await clock.sleep(backoffMs(tried, { firstMs: 50, maxMs: 1000 }), signal);
  }
}
