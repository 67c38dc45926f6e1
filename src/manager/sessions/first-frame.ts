import type { Clock } from "../../kit/clock.ts";
import { BerthError } from "../../kit/errors.ts";
import type { Frame } from "../../kit/frames.ts";

/** How long a client may take to say what it wants, once its socket is open. */
export const OPEN_MS = 15_000;

/**
 * The first frame of a client, undefined when it left without one. Throws `request-stalled` when none comes in
 * `OPEN_MS`: a socket that asks for nothing would stay for as long as its client answers pings.
 */
export async function firstFrame(frames: AsyncIterator<Frame>, clock: Clock): Promise<Frame | undefined> {
  const late = Promise.withResolvers<never>();
  const sentence = `No OPEN frame came within ${OPEN_MS / 1000} s: send it as the first message.`;
  const cancel = clock.after(OPEN_MS, () => late.reject(new BerthError("request-stalled", sentence)));
  try {
    const first = await Promise.race([frames.next(), late.promise]);
    return first.done === true ? undefined : first.value;
  } finally {
    cancel();
  }
}
