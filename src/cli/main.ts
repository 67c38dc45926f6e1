import { COMMIT, VERSION } from "../kit/version.ts";

export async function runCli(argv: readonly string[]): Promise<number> {
  process.stdout.write(`berth ${VERSION} (${COMMIT})\n`);
  return argv[0] === "version" ? 0 : 2;
}
