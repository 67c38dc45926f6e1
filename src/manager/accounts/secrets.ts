import { createHash, randomBytes } from "node:crypto";

/** A secret of 256 random bits. Its beginning lets scanners of leaked secrets recognise it. */
export function newSecret(kind: "api" | "login"): string {
  return `${kind === "api" ? "berth_" : "berthlogin_"}${randomBytes(32).toString("base64url")}`;
}

/** What is stored of a secret. It has 256 random bits, so a fast hash is as good as a slow one. */
export function hashSecret(secret: string): string {
  return createHash("sha256").update(secret).digest("hex");
}
