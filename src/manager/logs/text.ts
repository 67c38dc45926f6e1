import { encodeFrame } from "../../kit/frames.ts";
import type { SourceFrame } from "./source.ts";

/** The frames as they go over the wire. */
export async function* asFrames(frames: AsyncIterable<SourceFrame>): AsyncGenerator<Uint8Array> {
  for await (const frame of frames) yield encodeFrame(frame);
}

/** The plain bytes of both streams; what is missing is marked by a line of its own. */
export async function* asText(frames: AsyncIterable<SourceFrame>): AsyncGenerator<Uint8Array | string> {
  let atLineStart = true;
  for await (const frame of frames) {
    if (frame.type === "log" && frame.bytes.length > 0) {
      yield frame.bytes;
      atLineStart = frame.bytes.at(-1) === 10;
    }
    if (frame.type === "log-gap") {
      yield `${atLineStart ? "" : "\n"}[${frame.dropped} bytes of output are missing here]\n`;
      atLineStart = true;
    }
  }
}
