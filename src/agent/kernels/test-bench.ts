import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { manualClock } from "../../kit/clock.ts";
import { silentLogger } from "../../kit/log.ts";
import { type KernelSpec, type KernelStatus, MainProcess } from "../../wire/generated/berth.ts";
import { createImages } from "../images/images.ts";
import { createLogStore } from "../logs/store.ts";
import { createEngineWatch } from "./engine-watch.ts";
import { createFakeEngine } from "./fake-engine.ts";
import { createRecordStore, type KernelKey, keyOf } from "./record.ts";
import { createSupervisor } from "./supervisor.ts";

/** A batch kernel's spec for tests; number `n` makes its id. */
export function specOf(n: number, change: Partial<KernelSpec> = {}): KernelSpec {
  return {
    kernelId: `00000000-0000-7000-8000-${String(n).padStart(12, "0")}`,
    sessionId: `10000000-0000-7000-8000-${String(n).padStart(12, "0")}`,
    generation: 1,
    epoch: 1,
    sessionName: `s${n}`,
    image: "host",
    imageIsHost: true,
    main: MainProcess.ARGV,
    argv: ["true"],
    useEntrypoint: false,
    environment: {},
    cpuMilli: 100,
    memBytes: 2 ** 26,
    shmBytes: 2 ** 20,
    scratchBytes: 2 ** 24,
    uid: 1000,
    gid: 1000,
    supplementaryGids: [],
    hostname: "main1",
    timeoutMs: 0,
    logLimitBytes: 2 ** 20,
    pidsLimit: 0,
    ownerId: "",
    ...change,
  };
}

/** A node for tests: one fake engine and one data folder, on which supervisors come and go. */
export function createBench() {
  const dir = mkdtempSync(join(tmpdir(), "berth-kernels-"));
  const clock = manualClock();
  const engine = createFakeEngine({ now: () => clock.wall() });
  let bootId = "boot-1";
  const ending: Promise<void>[] = [];

  /** A new agent process on the same node. */
  async function boot() {
    const log = silentLogger;
    const statuses: KernelStatus[] = [];
    const engineWatch = createEngineWatch({ engine, clock, log });
    const images = createImages({ engine, clock, log, onProgress: () => {} });
    const logs = createLogStore({ dir: join(dir, "logs"), defaultLimitBytes: 2 ** 20, log });
    const records = createRecordStore({ dir: join(dir, "kernels"), clock, log });
    const supervisor = createSupervisor({
      engine,
      engineWatch,
      images,
      logs,
      records,
      clock,
      log,
      bootId,
      ageOf: () => undefined,
      onStatus: (status) => statuses.push(status),
    });
    await supervisor.start();
    engineWatch.start({
      onEvent: supervisor.onEvent,
      onBack: () => void supervisor.lookAtAll().catch(() => {}),
      onLost: () => {},
    });
    const last = (key: KernelKey) => statuses.findLast((status) => keyOf(status) === key);
    /** What a full report would say of the kernel. */
    const now = (key: KernelKey) => supervisor.statuses().find((status) => keyOf(status) === key);
    async function text(key: KernelKey): Promise<string> {
      const log = await logs.find(key);
      let out = "";
      if (log === undefined) return out;
      for await (const event of log.read({ offset: 0, follow: false })) {
        if (event.kind === "output") out += String(event.bytes);
      }
      return out;
    }
    /** Ends this agent process; `kill` leaves everything as it stands. */
    async function down(kill = false): Promise<void> {
      const ends = [engineWatch.stop(), supervisor.close()];
      ending.push(...ends);
      if (!kill) await Promise.all(ends);
      await logs.close();
    }
    return { supervisor, statuses, logs, last, now, text, down };
  }

  return {
    dir,
    clock,
    engine,
    boot,
    reboot: () => {
      bootId = "boot-2";
    },
    remove: async () => {
      // A killed process of a test goes on for a moment, and may write.
      await Promise.allSettled(ending);
      rmSync(dir, { recursive: true, force: true });
    },
  };
}

/** Polls for something that real file I/O must bring about first; `each` may move a clock on. */
export async function until(
  what: string,
  condition: () => boolean,
  each: () => void = () => {},
): Promise<void> {
  for (let tries = 0; tries < 3000; tries += 1) {
    if (condition()) return;
    each();
    await new Promise<void>((resolve) => setImmediate(resolve));
    if (tries > 200) await Bun.sleep(1);
  }
  throw new Error(`it never came to this: ${what}`);
}
