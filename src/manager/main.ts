import { systemClock } from "../kit/clock.ts";
import { describeConfig } from "../kit/config.ts";
import { createLogger } from "../kit/log.ts";
import { endSignal, surviveFaults } from "../kit/process.ts";
import { loadManagerConfig, managerConfig } from "./config.ts";
import { type RunningManager, startManager } from "./manager.ts";

const HELP = `berth manager: API, dashboard and scheduler of a cluster

Options, as flags, variables, or keys of the file that --config names:
${describeConfig(managerConfig)}
`;

/** Tells the first administrator's password, the one time that it is known. */
export function tellFirstAdmin({ firstAdmin }: RunningManager, dataDir: string): void {
  if (firstAdmin === undefined) return;
  const { email, password } = firstAdmin;
  console.log(`First administrator: ${email}, password ${password} (kept in ${dataDir}/initial-admin.json)`);
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
