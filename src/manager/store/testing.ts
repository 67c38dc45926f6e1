import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type Clock, manualClock } from "../../kit/clock.ts";
import { silentLogger } from "../../kit/log.ts";
import { openStore, type Store } from "./store.ts";

/** A store in a temporary folder for tests; `close` removes the folder too. */
export async function openTestStore(clock: Clock = manualClock()): Promise<Store & { readonly dir: string }> {
  const dir = mkdtempSync(join(tmpdir(), "berth-store-"));
  const store = await openStore({
    path: join(dir, "berth.sqlite"),
    backupDir: join(dir, "backups"),
    clock,
    log: silentLogger,
    synchronous: "OFF",
  });
  const close = async () => {
    await store.close();
    rmSync(dir, { recursive: true, force: true });
  };
  return { ...store, dir, close };
}
