import { BerthError, isBerthError } from "../../kit/errors.ts";
import { writeFrame } from "../../kit/frames.ts";
import type { ByteStream } from "../../wire/byte-stream.ts";
import type { OpenStream } from "../../wire/generated/berth.ts";
import { failureOf } from "../images/images.ts";
import type { GatewayDeps } from "./deps.ts";
import { serveExec } from "./exec.ts";
import { serveAttach, serveLogs } from "./logs.ts";

export interface Gateway {
  /** Dials back the stream that the manager asked for and serves it. Rejects when it cannot be opened. */
  serve(request: OpenStream): Promise<void>;
  /** Cuts all streams and ends their commands. */
  close(): Promise<void>;
}

/** How long the other side has to take the last frames and end the stream, in ms. */
const LINGER_MS = 10_000;

/** What data streams reach: commands in containers, and output. */
export function createGateway(
  options: GatewayDeps & {
    /** Opens the data stream with this id. */
    readonly open: (streamId: string) => Promise<ByteStream>;
  },
): Gateway {
  const { open, clock, log } = options;
  const serving = new Map<ByteStream, Promise<void>>();

  async function reach(stream: ByteStream, target: OpenStream["target"]): Promise<void> {
    switch (target?.$case) {
      case "exec":
        return serveExec(options, stream, target.value);
      case "logs":
        return serveLogs(options, stream, target.value);
      case "attach":
        return serveAttach(options, stream, target.value);
      default:
        throw new BerthError("unknown-stream", "This agent does not know what this stream is for.");
    }
  }

  async function handle(stream: ByteStream, target: OpenStream["target"]): Promise<void> {
    try {
      await reach(stream, target);
    } catch (err) {
      if (!isBerthError(err)) log.debug({ err, target: target?.$case }, "a data stream ended with a fault");
      await writeFrame(stream, { type: "error", ...failureOf(err) }).catch(() => {});
    }
    stream.end();
    const cancel = clock.after(LINGER_MS, () => stream.destroy());
    await stream.closed;
    cancel();
  }

  return {
    serve: async ({ streamId, target }) => {
      const stream = await open(streamId);
      const served = handle(stream, target).finally(() => serving.delete(stream));
      serving.set(stream, served);
    },
    close: async () => {
      for (const stream of serving.keys()) stream.destroy();
      await Promise.all(serving.values());
    },
  };
}
