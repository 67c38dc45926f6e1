import { mkdirSync, readFileSync, rmSync } from "node:fs";
import { dirname, join } from "node:path";
import { z } from "zod";
import { writeFileAtomicSync } from "../kit/atomic-file.ts";
import { BerthError, messageOf } from "../kit/errors.ts";

const stored = z.object({
  url: z.string(),
  token: z.string(),
  email: z.string(),
  /** Id of the token at the manager, so that signing out and signing in anew can end it. */
  tokenId: z.string().optional(),
  trust: z
    .discriminatedUnion("kind", [
      z.object({ kind: z.literal("system") }),
      z.object({ kind: z.literal("ca"), pem: z.string() }),
      z.object({ kind: z.literal("pinned"), pem: z.string() }),
    ])
    .default({ kind: "system" }),
});
export type Credentials = z.infer<typeof stored>;

/** Where `berth login` keeps what it got: `credentials.json` in the user's configuration folder. */
export function credentialsPath(env: Readonly<Record<string, string | undefined>>): string {
  const home = env.HOME ?? "/root";
  return join(env.XDG_CONFIG_HOME || join(home, ".config"), "berth", "credentials.json");
}

/** The kept credentials, or undefined when there are none. Throws `invalid-credentials` on a damaged file. */
export function readCredentials(path: string): Credentials | undefined {
  let text: string;
  try {
    text = readFileSync(path, "utf8");
  } catch (error) {
    if (error instanceof Error && "code" in error && error.code === "ENOENT") return undefined;
    throw new BerthError("invalid-credentials", `${path} cannot be read: ${messageOf(error)}.`);
  }
  try {
    return stored.parse(JSON.parse(text));
  } catch (cause) {
    const sentence = `${path} is damaged. Remove it and sign in again with "berth login".`;
    throw new BerthError("invalid-credentials", sentence, { cause });
  }
}

/** Writes the file whole or not at all; only its owner can read it. */
export function writeCredentials(path: string, credentials: Credentials): void {
  try {
    mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
    writeFileAtomicSync(path, `${JSON.stringify(credentials, null, 2)}\n`);
  } catch (error) {
    throw new BerthError("not-saved", `${path} cannot be written: ${messageOf(error)}.`);
  }
}

export function removeCredentials(path: string): void {
  rmSync(path, { force: true });
}
