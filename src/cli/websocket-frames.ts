import { BerthError } from "../kit/errors.ts";

/** RFC 6455 framing, client side. */
export const OPCODE = { continuation: 0, text: 1, binary: 2, close: 8, ping: 9, pong: 10 } as const;

/** The longest message taken, in bytes: a frame of ours and its header, with room to spare. */
const MAX_MESSAGE = 2 * 1024 * 1024;

function bad(sentence: string): BerthError {
  return new BerthError("connection-lost", `The manager's WebSocket answer is not valid: ${sentence}.`);
}

/** One masked frame, as a client must send it. */
export function encodeClientFrame(opcode: number, payload: Uint8Array): Uint8Array {
  const { length } = payload;
  const head = length < 126 ? 2 : length < 65_536 ? 4 : 10;
  const out = new Uint8Array(head + 4 + length);
  const view = new DataView(out.buffer);
  view.setUint8(0, 0x80 | opcode);
  view.setUint8(1, 0x80 | (head === 2 ? length : head === 4 ? 126 : 127));
  if (head === 4) view.setUint16(2, length);
  if (head === 10) view.setBigUint64(2, BigInt(length));
  const mask = crypto.getRandomValues(out.subarray(head, head + 4));
  for (let at = 0; at < length; at++) out[head + 4 + at] = (payload[at] ?? 0) ^ (mask[at & 3] ?? 0);
  return out;
}

type Part = { readonly final: boolean; readonly opcode: number; readonly payload: Uint8Array };
export type Message = { readonly opcode: number; readonly payload: Uint8Array };

/** Takes bytes split anywhere and gives the messages and control frames that they complete. */
export function createServerFrameReader(): (chunk: Uint8Array) => Message[] {
  let held: Uint8Array = new Uint8Array(0);
  let fragments: Uint8Array[] = [];
  let opcodeOfFragments = 0;

  const take = (): Part | undefined => {
    if (held.length < 2) return undefined;
    const view = new DataView(held.buffer, held.byteOffset, held.byteLength);
    const [first, second] = [view.getUint8(0), view.getUint8(1)];
    if ((first & 0x70) !== 0) throw bad("unknown extension bits");
    if ((second & 0x80) !== 0) throw bad("a server's frame must not be masked");
    const short = second & 0x7f;
    const head = short < 126 ? 2 : short === 126 ? 4 : 10;
    if (held.length < head) return undefined;
    const length = short < 126 ? short : short === 126 ? view.getUint16(2) : Number(view.getBigUint64(2));
    if (length > MAX_MESSAGE) throw bad(`a frame of ${length} bytes`);
    if (held.length < head + length) return undefined;
    const payload = held.subarray(head, head + length);
    held = held.subarray(head + length);
    return { final: (first & 0x80) !== 0, opcode: first & 0x0f, payload };
  };
  const join = ({ final, opcode, payload }: Part): Message | undefined => {
    if (opcode >= OPCODE.close) return { opcode, payload };
    if (opcode !== OPCODE.continuation) {
      if (fragments.length > 0) throw bad("a message inside another one");
      opcodeOfFragments = opcode;
    } else if (fragments.length === 0) {
      throw bad("a continuation of nothing");
    }
    fragments.push(payload);
    if (fragments.reduce((sum, part) => sum + part.length, 0) > MAX_MESSAGE) throw bad("a message too long");
    if (!final) return undefined;
    const [only] = fragments;
    const whole = fragments.length === 1 && only !== undefined ? only : Buffer.concat(fragments);
    fragments = [];
    return { opcode: opcodeOfFragments, payload: whole };
  };

  return (chunk) => {
    held = held.length === 0 ? chunk : Buffer.concat([held, chunk]);
    const messages: Message[] = [];
    for (let part = take(); part !== undefined; part = take()) {
      const message = join(part);
      if (message !== undefined) messages.push(message);
    }
    return messages;
  };
}
