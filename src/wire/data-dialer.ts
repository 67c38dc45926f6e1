import type { Cancel, Clock } from "../kit/clock.ts";
import { BerthError, isBerthError, messageOf } from "../kit/errors.ts";
import { writeFrame } from "../kit/frames.ts";
import type { Logger } from "../kit/log.ts";
import { type ByteStream, createByteStream } from "./byte-stream.ts";
import { readFirstFrame } from "./data-header.ts";
import { type AgentCredentials, DATA_PROTOCOL, dialManager, type ManagerAddress } from "./dial.ts";

/** The agent's side of data streams: dials one connection for each, from a few dialled ahead. */
export interface DataDialer {
  /** Opens the stream that the manager asked for. Throws `unknown-stream` or as `dialManager`. */
  open(streamId: string): Promise<ByteStream>;
  /** The link is up: keep spare connections ready. */
  warm(): void;
  /** The link is down: let the spare connections go. Streams in use stay. */
  cool(): void;
  /** Ends every connection, those in use too. */
  close(): void;
}

export type DataDialerOptions = ManagerAddress & {
  /** Asked at each dial, so that a renewed certificate is used from then on. */
  readonly credentials: () => AgentCredentials;
  readonly clock: Clock;
  readonly log: Logger;
  /** Connections kept ready. */
  readonly spares?: number;
};

const SPARES = 2;
/** A spare connection is replaced after this time: routers forget idle connections silently. */
const SPARE_LIFE_MS = 60_000;
const RETRY_MS = 5_000;
const CLAIM_TIMEOUT_MS = 5_000;

export function createDataDialer(options: DataDialerOptions): DataDialer {
  const { host, port, clock, log } = options;
  const wanted = options.spares ?? SPARES;
  const spares = new Map<ByteStream, Cancel>();
  const open = new Set<ByteStream>();
  let dialling = 0;
  let warm = false;
  let closed = false;
  let retry: Cancel = () => {};

  const dial = async (): Promise<ByteStream> => {
    const { caPem, clusterId, certPem, keyPem } = options.credentials();
    const trust = { caPem, clusterId };
    const own = { certPem, keyPem };
    const socket = await dialManager({ host, port, protocol: DATA_PROTOCOL, trust, own, clock });
    socket.setNoDelay(true);
    socket.setKeepAlive(true, 30_000);
    const stream = createByteStream(socket);
    if (closed) {
      stream.destroy();
      throw new BerthError("closed", "The agent is stopping.");
    }
    open.add(stream);
    stream.closed.then(() => open.delete(stream));
    return stream;
  };
  const release = (stream: ByteStream): boolean => {
    spares.get(stream)?.();
    return spares.delete(stream);
  };
  const addSpare = (stream: ByteStream) => {
    if (!warm) return stream.destroy();
    const cancel = clock.after(SPARE_LIFE_MS, () => {
      release(stream);
      stream.destroy();
      fill();
    });
    spares.set(stream, cancel);
    stream.closed.then(() => {
      // One that the manager cut is not replaced at once, or a refused agent would dial without pause.
      if (release(stream)) fillLater();
    });
  };
  const fillLater = () => {
    retry();
    retry = clock.after(RETRY_MS, fill);
  };
  const fill = () => {
    if (!warm) return;
    for (let missing = wanted - spares.size - dialling; missing > 0; missing--) {
      dialling++;
      dial()
        .then(addSpare, (error: unknown) => {
          log.debug({ reason: messageOf(error) }, "A spare data connection could not be dialled");
          fillLater();
        })
        .finally(() => {
          dialling--;
        });
    }
  };
  const claim = async (stream: ByteStream, streamId: string): Promise<ByteStream> => {
    const cancel = clock.after(CLAIM_TIMEOUT_MS, () => stream.destroy());
    try {
      await writeFrame(stream, { type: "open", params: { streamId } });
      const answer = await readFirstFrame(stream);
      if (answer.type === "open") return stream;
      if (answer.type === "error") throw new BerthError(answer.code, answer.message);
      throw new Error("the manager answered with a frame that is no answer");
    } catch (error) {
      stream.destroy();
      throw error;
    } finally {
      cancel();
    }
  };
  const openStream = async (streamId: string): Promise<ByteStream> => {
    const [spare] = spares.keys();
    if (spare !== undefined) {
      release(spare);
      fill();
      try {
        return await claim(spare, streamId);
      } catch (error) {
        if (isBerthError(error)) throw error;
        // A spare connection may have died unnoticed: a fresh one tells.
      }
    }
    const stream = await dial();
    return claim(stream, streamId).catch((error: unknown) => {
      if (isBerthError(error)) throw error;
      throw new BerthError("stream-cut", "The manager cut the stream while it was opened.", { cause: error });
    });
  };
  const cool = () => {
    warm = false;
    retry();
    for (const stream of [...spares.keys()]) {
      release(stream);
      stream.destroy();
    }
  };
  return {
    open: openStream,
    warm: () => {
      if (closed) return;
      warm = true;
      fill();
    },
    cool,
    close: () => {
      closed = true;
      cool();
      for (const stream of [...open]) stream.destroy();
    },
  };
}
