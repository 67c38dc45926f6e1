import { BerthError } from "../kit/errors.ts";

export async function runManager(_argv: readonly string[]): Promise<number> {
  throw new BerthError("not-built", "The manager is not in this build yet.");
}
