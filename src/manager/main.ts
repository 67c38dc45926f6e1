import { join } from "node:path";
import { systemClock } from "../kit/clock.ts";
import { describeConfig } from "../kit/config.ts";
import { createLogger } from "../kit/log.ts";
import { endSignal, surviveFaults } from "../kit/process.ts";
import { FIRST_ADMIN_FILE, type FirstAdmin } from "./accounts/first-admin.ts";
import { loadManagerConfig, managerConfig } from "./config.ts";
import { type RunningManager, startManager } from "./manager.ts";

const HELP = `berth manager: API and scheduler of a cluster

Options, as flags, variables, or keys of the file that --config names:
${describeConfig(managerConfig)}
`;

/**
 * What is said of the first administrator. Output that is no terminal may end up in a journal that others read, so there
 * only the file is named that has the password.
 */
export function firstAdminWords(admin: FirstAdmin, dataDir: string, terminal: boolean): string {
  const file = join(dataDir, FIRST_ADMIN_FILE);
  return terminal
    ? `First administrator: ${admin.email}, password ${admin.password} (kept in ${file})`
    : `First administrator: ${admin.email}, password in ${file}`;
}

/** Tells of the first administrator, on the start that made it. */
export function tellFirstAdmin({ firstAdmin }: RunningManager, dataDir: string): void {
  if (firstAdmin !== undefined) {
    console.log(firstAdminWords(firstAdmin, dataDir, process.stdout.isTTY === true));
  }
}

/** The role `berth manager`: runs until a signal; returns the exit code. */
export async function runManager(argv: readonly string[]): Promise<number> {
  if (argv.includes("--help") || argv.includes("-h")) {
    console.log(HELP);
    return 0;
  }
  const { value: config } = loadManagerConfig({ argv });
  const log = createLogger({ level: config.logLevel, name: "manager" });
  const ended = endSignal();
  const manager = await startManager({ config, clock: systemClock, log });
  surviveFaults(log);
  tellFirstAdmin(manager, config.dataDir);
  console.log(`Berth is ready at ${manager.url}`);
  log.info({ signal: await ended }, "the manager stops; sessions run on");
  await manager.stop();
  return 0;
}
