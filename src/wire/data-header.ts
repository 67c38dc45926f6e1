import { z } from "zod";
import { createFrameDecoder, type Frame } from "../kit/frames.ts";
import type { ByteStream } from "./byte-stream.ts";

/** What an agent says first on a data stream; the manager answers with an `open` or an `error` frame. */
export const dataHeader = z.object({ streamId: z.string().min(1).max(128) });

/** The first frame of a stream; what follows it stays to be read. Throws when the stream ends before. */
export async function readFirstFrame(stream: ByteStream): Promise<Frame> {
  const decoder = createFrameDecoder();
  for await (const chunk of stream) {
    const first = decoder.pushFirst(chunk);
    if (first === undefined) continue;
    stream.unread(first.rest);
    return first.frame;
  }
  throw new Error("the stream ended before its first frame");
}
