import type { Brand } from "./brand.ts";
import type { Clock } from "./clock.ts";

export type SessionId = Brand<string, "SessionId">;
export type KernelId = Brand<string, "KernelId">;
export type AgentId = Brand<string, "AgentId">;
export type UserId = Brand<string, "UserId">;
export type ImageId = Brand<string, "ImageId">;
export type GroupId = Brand<string, "GroupId">;
export type PolicyId = Brand<string, "PolicyId">;
export type TokenId = Brand<string, "TokenId">;
export type JoinTokenId = Brand<string, "JoinTokenId">;
export type ClusterId = Brand<string, "ClusterId">;

type AnyId =
  | SessionId
  | KernelId
  | AgentId
  | UserId
  | ImageId
  | GroupId
  | PolicyId
  | TokenId
  | JoinTokenId
  | ClusterId;

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/;

/** Whether the text has the form of an id (lower-case UUID). */
export function isId(text: string): boolean {
  return UUID.test(text);
}

/** Takes a text that is known to be an id, such as one read from our own store, as an id of that kind. */
export function asId<Id extends AnyId>(text: string): Id {
  if (!isId(text)) throw new TypeError(`not an id: ${text}`);
  return text as Id;
}

/** A new UUIDv7 (RFC 9562): ids sort by the millisecond of their making. */
export function newId<Id extends AnyId>(clock: Clock): Id {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  new DataView(bytes.buffer).setUint32(0, Math.floor(clock.wall() / 65536));
  new DataView(bytes.buffer).setUint16(4, clock.wall() % 65536);
  bytes[6] = ((bytes[6] ?? 0) & 0x0f) | 0x70;
  bytes[8] = ((bytes[8] ?? 0) & 0x3f) | 0x80;
  const hex = Buffer.from(bytes).toString("hex");
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-${hex.slice(12, 16)}-${hex.slice(16, 20)}-${hex.slice(20)}` as Id;
}
