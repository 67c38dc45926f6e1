import { z } from "zod";
import { BerthError } from "../kit/errors.ts";
import { createFrameDecoder, writeFrame } from "../kit/frames.ts";
import { type AgentId, asId, type ClusterId, isId, type JoinTokenId } from "../kit/ids.ts";
import type { ByteStream } from "./byte-stream.ts";

/** The most that one message of the join exchange may take, in bytes. */
const MAX_MESSAGE_BYTES = 64 * 1024;

const id = z.string().refine(isId, "not an id");
const pem = z.string().max(16_384);

/** What a node asks: the CA's certificate first, then to be taken in. */
export const joinQuestion = z.discriminatedUnion("ask", [
  z.object({ ask: z.literal("ca") }),
  z.object({
    ask: z.literal("join"),
    tokenId: id.transform((text) => asId<JoinTokenId>(text)),
    secret: z.string().max(256),
    csrPem: pem,
    hostname: z.string().min(1).max(253),
    version: z.string().max(64),
    wallMs: z.number(),
  }),
]);
export type JoinQuestion = z.infer<typeof joinQuestion>;

export const caAnswer = z.object({ caPem: pem, managerTime: z.number() });

export const joinAnswer = z.discriminatedUnion("ok", [
  z.object({
    ok: z.literal(true),
    agentId: id.transform((text) => asId<AgentId>(text)),
    clusterId: id.transform((text) => asId<ClusterId>(text)),
    certPem: pem,
    caPem: pem,
    managerTime: z.number(),
  }),
  z.object({ ok: z.literal(false), code: z.string().max(64), sentence: z.string().max(2_000) }),
]);
export type JoinAnswer = z.infer<typeof joinAnswer>;

/** Writes one message. */
export function writeMessage(
  stream: ByteStream,
  message: JoinQuestion | JoinAnswer | z.infer<typeof caAnswer>,
) {
  return writeFrame(stream, { type: "open", params: message });
}

function bad(cause?: unknown): BerthError {
  return new BerthError("bad-join-message", "The join exchange was broken off or is of another form.", {
    cause,
  });
}

/** Reads one message. Throws `bad-join-message` for anything that is not one. */
export async function readMessage<T>(stream: ByteStream, schema: z.ZodType<T>): Promise<T> {
  const decoder = createFrameDecoder();
  try {
    for await (const chunk of stream) {
      const first = decoder.pushFirst(chunk);
      if (decoder.pending() > MAX_MESSAGE_BYTES) throw bad();
      if (first === undefined) continue;
      stream.unread(first.rest);
      return schema.parse(first.frame.type === "open" ? first.frame.params : undefined);
    }
  } catch (cause) {
    throw bad(cause);
  }
  throw bad();
}
