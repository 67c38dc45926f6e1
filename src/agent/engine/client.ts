import Docker from "dockerode";
import type { Clock } from "../../kit/clock.ts";
import { BerthError, isBerthError, messageOf } from "../../kit/errors.ts";

/** Oldest API spoken (Docker 20.10) and the newest one that was tried. */
const OLDEST = 41;
const NEWEST = 47;

export const CALL_MS = 30_000;
/** For calls that copy, unpack or wait for processes inside the engine. */
export const LONG_CALL_MS = 120_000;

export type EngineVersion = { readonly version: string; readonly apiVersion: string; readonly arch: string };

export interface EngineClient {
  /**
   * One call to the engine, given up after `limitMs`. Throws `engine-unreachable` when there is no answer,
   * else `engine-refused` with the engine's words and its HTTP status in the details.
   */
  call<T>(
    what: string,
    op: (docker: Docker, signal: AbortSignal) => Promise<T>,
    limitMs?: number,
  ): Promise<T>;
  version(): Promise<EngineVersion>;
}

/** The API version to speak with an engine that offers `oldest` to `newest` (such as "1.12" and "1.41"). */
export function negotiate(oldest: string, newest: string): string {
  const minor = (text: string) => Number(/^1\.(\d+)$/.exec(text)?.[1] ?? Number.NaN);
  const [from, to] = [minor(oldest), minor(newest)];
  if (Number.isNaN(to) || to < OLDEST) {
    throw new BerthError(
      "engine-refused",
      `The engine's API ${newest} is too old: Docker 20.10 (API 1.${OLDEST}) or newer is needed.`,
    );
  }
  return `v1.${Math.max(Math.min(to, NEWEST), Number.isNaN(from) ? 0 : from)}`;
}

export function createEngineClient({
  socketPath,
  clock,
}: {
  readonly socketPath: string;
  readonly clock: Clock;
}): EngineClient {
  // `host` is set to nothing on purpose: DOCKER_HOST in the environment would win over the socket.
  const open = (version?: string) => new Docker({ socketPath, host: undefined, version });
  let ready: Promise<{ docker: Docker; version: EngineVersion }> | undefined;

  async function bounded<T>(
    what: string,
    limitMs: number,
    op: (signal: AbortSignal) => Promise<T>,
  ): Promise<T> {
    const abort = new AbortController();
    let cancel = () => {};
    const late = new Promise<never>((_, reject) => {
      cancel = clock.after(limitMs, () => {
        const sentence = `The container engine did not answer within ${limitMs / 1000} s (${what}).`;
        reject(new BerthError("engine-unreachable", sentence));
        abort.abort();
      });
    });
    try {
      return await Promise.race([op(abort.signal), late]);
    } catch (cause) {
      throw engineError(cause, what);
    } finally {
      cancel();
    }
  }

  async function connect() {
    const raw = await bounded("version", CALL_MS, async () => open().version());
    const apiVersion = negotiate(raw.MinAPIVersion, raw.ApiVersion);
    const version = { version: raw.Version, apiVersion: apiVersion.slice(1), arch: raw.Arch };
    return { docker: open(apiVersion), version };
  }

  async function connected() {
    ready ??= connect();
    try {
      return await ready;
    } catch (error) {
      ready = undefined;
      throw error;
    }
  }

  return {
    call: async (what, op, limitMs = CALL_MS) => {
      const { docker } = await connected();
      try {
        return await bounded(what, limitMs, (signal) => op(docker, signal));
      } catch (error) {
        // The engine may come back as another version.
        if (isBerthError(error) && error.code === "engine-unreachable") ready = undefined;
        throw error;
      }
    },
    version: async () => (await connected()).version,
  };
}

const GONE = new Set([
  "ECONNREFUSED",
  "ENOENT",
  "EACCES",
  "ECONNRESET",
  "EPIPE",
  "ConnectionRefused",
  "ConnectionClosed",
  "FailedToOpenSocket",
]);

/** An error of a call as a `BerthError`, unless it is one already. */
export function engineError(cause: unknown, what: string): BerthError {
  if (isBerthError(cause)) return cause;
  const status = field(cause, "statusCode");
  if (typeof status === "number") {
    const words = engineWords(cause);
    const options = { cause, details: { status, engine: words } };
    if (/no space left on device/i.test(words)) {
      return new BerthError("disk-full", `The node's disk is full (${what}): ${words}`, options);
    }
    return new BerthError("engine-refused", `The container engine refused (${what}): ${words}`, options);
  }
  const code = field(cause, "code");
  if (
    (typeof code === "string" && GONE.has(code)) ||
    /socket hang up|socket connection/i.test(messageOf(cause))
  ) {
    const sentence = `The container engine cannot be reached (${what}): ${messageOf(cause)}. Is it running?`;
    return new BerthError("engine-unreachable", sentence, { cause });
  }
  return new BerthError("engine-refused", `A call to the engine failed (${what}): ${messageOf(cause)}`, {
    cause,
  });
}

function engineWords(cause: unknown): string {
  const json = field(cause, "json");
  const message = field(json, "message");
  if (typeof message === "string") return message;
  return messageOf(cause)
    .replace(/^\(HTTP code \d+\) [^-]*- /, "")
    .trim();
}

/** A field of what the engine answered, whatever that is. */
export function field(value: unknown, name: string): unknown {
  return typeof value === "object" && value !== null ? Reflect.get(value, name) : undefined;
}

/** Whether a call failed with this HTTP status of the engine. */
export function hasStatus(error: unknown, status: number): boolean {
  return isBerthError(error) && error.details?.status === status;
}

/** The engine's own words of a refusal; empty for other errors. */
export function wordsOf(error: unknown): string {
  const words = isBerthError(error) ? error.details?.engine : undefined;
  return typeof words === "string" ? words : "";
}
