import { createHash, randomBytes } from "node:crypto";
import { BerthError } from "../kit/errors.ts";
import { asId, isId, type JoinTokenId } from "../kit/ids.ts";

/** What a join token tells the node that holds it. */
export type JoinToken = {
  readonly id: JoinTokenId;
  /** base64url, 16 to 64 bytes; the manager stores its hash alone. */
  readonly secret: string;
  /** base64url SHA-256 of the CA certificate, so that the first contact is verified. */
  readonly caFingerprint: string;
  /** The manager's port for agents. */
  readonly port: number;
};

const PREFIX = "bj1.";
const CHECKSUM_BYTES = 4;
const HEAD_BYTES = 16 + 32 + 2;

/** A fresh secret for a join token. */
export function newJoinSecret(): string {
  return randomBytes(24).toString("base64url");
}

function checksum(body: Uint8Array): Buffer {
  return createHash("sha256").update(PREFIX).update(body).digest().subarray(0, CHECKSUM_BYTES);
}

/** The token as one word that survives copying: `bj1.` and base64url with a checksum. */
export function formatJoinToken(token: JoinToken): string {
  const id = Buffer.from(token.id.replaceAll("-", ""), "hex");
  const fingerprint = Buffer.from(token.caFingerprint, "base64url");
  const secret = Buffer.from(token.secret, "base64url");
  if (fingerprint.length !== 32) throw new TypeError("a CA fingerprint has 32 bytes");
  if (secret.length < 16 || secret.length > 64) throw new TypeError("a join secret has 16 to 64 bytes");
  if (!Number.isInteger(token.port) || token.port < 1 || token.port > 65535) throw new TypeError("bad port");
  const port = Buffer.alloc(2);
  port.writeUInt16BE(token.port);
  const body = Buffer.concat([id, fingerprint, port, secret]);
  return PREFIX + Buffer.concat([body, checksum(body)]).toString("base64url");
}

function invalid(sentence: string): BerthError {
  return new BerthError("invalid-join-token", sentence, { field: "token" });
}

function uuidOf(bytes: Buffer): string {
  return bytes.toString("hex").replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5");
}

/** Reads a token; white space around it is ignored. Throws `invalid-join-token`, saying what is wrong. */
export function parseJoinToken(text: string): JoinToken {
  const word = text.trim();
  if (word === "") throw invalid("The join token is empty. Make one with: berth join-token create");
  if (/^bj\d+\./.test(word) && !word.startsWith(PREFIX)) {
    throw invalid("The join token is of another version. Use the same version of berth on both machines.");
  }
  if (!word.startsWith(PREFIX)) {
    throw invalid(
      `A join token begins with "${PREFIX}". Copy the whole line that join-token create printed.`,
    );
  }
  const encoded = word.slice(PREFIX.length);
  if (!/^[A-Za-z0-9_-]+$/.test(encoded)) {
    throw invalid("The join token holds characters that no token has. Copy it again as one word.");
  }
  const all = Buffer.from(encoded, "base64url");
  const body = all.subarray(0, Math.max(0, all.length - CHECKSUM_BYTES));
  if (!checksum(body).equals(all.subarray(body.length)) || all.toString("base64url") !== encoded) {
    throw invalid("The join token is damaged: its checksum is wrong. Copy it again as a whole.");
  }
  const id = uuidOf(body.subarray(0, 16));
  const secret = body.subarray(HEAD_BYTES);
  if (!isId(id) || secret.length < 16) throw invalid("The join token is incomplete.");
  return {
    id: asId<JoinTokenId>(id),
    secret: secret.toString("base64url"),
    caFingerprint: body.subarray(16, 48).toString("base64url"),
    port: body.readUInt16BE(48),
  };
}
