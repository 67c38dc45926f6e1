import { BerthError } from "./kit/errors.ts";

export async function runUp(_argv: readonly string[]): Promise<number> {
  throw new BerthError("not-built", "`berth up` is not in this build yet.");
}
