import { type KernelSpec, MainProcess } from "../../wire/generated/berth.ts";
import { readCommand, readPorts, readServicePorts, readSlots, readTextMap } from "./columns.ts";
import { kernelEnvironment } from "./environment.ts";
import type { KernelRow, SessionRecord } from "./repository.ts";

/** The most processes and threads of one kernel. */
const PIDS_LIMIT = 8192;
/** How the first kernel of a session calls itself. */
export const MAIN_HOST = "main1";

function mainOf(session: SessionRecord): Pick<KernelSpec, "main" | "argv"> {
  if (session.type !== "batch" || session.command === null) return { main: MainProcess.KEEP_ALIVE, argv: [] };
  const command = readCommand(session.command);
  if (typeof command === "string") return { main: MainProcess.SHELL, argv: [command] };
  return { main: MainProcess.ARGV, argv: command };
}

/** What the agent is told to make; the same for the same generation, however often it is sent. */
export function kernelSpec(
  session: SessionRecord,
  kernel: KernelRow,
  corecountNames: readonly string[],
): KernelSpec {
  return {
    kernelId: kernel.id,
    sessionId: session.id,
    generation: kernel.generation,
    epoch: kernel.epoch,
    sessionName: session.name,
    image: session.image_reference,
    imageIsHost: session.image_kind === "host",
    ...mainOf(session),
    useEntrypoint: session.use_entrypoint === 1,
    environment: kernelEnvironment({
      sessionId: session.id,
      sessionName: session.name,
      kernelId: kernel.id,
      image: session.image_reference,
      owner: { id: session.owner_id, email: session.owner_email, name: session.owner_name },
      slots: readSlots(session.slots),
      preopenPorts: readPorts(session.preopen_ports),
      servicePorts: readServicePorts(session.service_ports),
      corecountNames,
      imageNames: null,
      imageIsHost: session.image_kind === "host",
      nvidiaDevices: [],
      uid: session.owner_uid,
      user: readTextMap(session.environment),
    }),
    cpuMilli: kernel.cpu,
    memBytes: kernel.mem,
    shmBytes: kernel.shm,
    // 0: the agent's own default.
    scratchBytes: 0,
    uid: session.owner_uid,
    gid: session.owner_gid,
    supplementaryGids: [],
    hostname: MAIN_HOST,
    timeoutMs: session.timeout_ms ?? 0,
    logLimitBytes: 0,
    pidsLimit: PIDS_LIMIT,
    ownerId: session.owner_id,
  };
}
