import { BerthError } from "../kit/errors.ts";

export async function runAgent(_argv: readonly string[]): Promise<number> {
  throw new BerthError("not-built", "The agent is not in this build yet.");
}
