import type { ContainerCreateOptions, MountSettings } from "dockerode";
import { BerthError } from "../../kit/errors.ts";
import { type KernelSpec, MainProcess } from "../../wire/generated/berth.ts";
import type { Ownership } from "./engine.ts";
import { KEEP_ALIVE_PATH } from "./keep-alive.ts";
import { containerName, kernelLabels } from "./names.ts";
import type { ScratchPaths } from "./scratch.ts";
import type { Ulimit } from "./ulimits.ts";
import { USER_HOME, USER_NAME } from "./users.ts";

const DEFAULT_PIDS = 4096;
const DEFAULT_SHM_BYTES = 64 * 2 ** 20;
/** Sessions go before the engine, the agent and the node's own services when the whole node runs out of memory. */
const OOM_SCORE = 500;

/**
 * What root inside may do in a session whose owner has uid 0: own files of others, become others (package managers and
 * `su`), low ports, chroot. Of the engine's default set NET_RAW (forged packets to neighbours), MKNOD, SETPCAP and
 * AUDIT_WRITE are left out.
 */
const ROOT_CAPABILITIES = [
  "CHOWN",
  "DAC_OVERRIDE",
  "FOWNER",
  "FSETID",
  "KILL",
  "NET_BIND_SERVICE",
  "SETFCAP",
  "SETGID",
  "SETUID",
  "SYS_CHROOT",
];

const HOST_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

export type ContainerParts = {
  /** Reference of the image to run; for the host environment the imported one. */
  readonly image: string;
  /** Name of the network to join. */
  readonly network: string;
  readonly scratch: ScratchPaths;
  /** Path of the keep-alive program on the node. */
  readonly keepAlive: string;
  /** The node's own folders, for the host environment. */
  readonly hostMounts: readonly MountSettings[];
  readonly ulimits: readonly Ulimit[];
};

function bind(source: string, target: string, readOnly: boolean): MountSettings {
  return {
    Type: "bind",
    Source: source,
    Target: target,
    ReadOnly: readOnly,
    BindOptions: { Propagation: "rprivate" },
  };
}

/** The container's ENTRYPOINT and CMD. An undefined entrypoint means the image's own. */
export function mainCommand(spec: KernelSpec): { readonly entrypoint?: string[]; readonly cmd: string[] } {
  const argv = argvOf(spec);
  return spec.useEntrypoint ? { cmd: argv } : { entrypoint: argv, cmd: [] };
}

function argvOf(spec: KernelSpec): string[] {
  if (spec.main === MainProcess.KEEP_ALIVE) return [KEEP_ALIVE_PATH];
  const [first] = spec.argv;
  if (spec.main === MainProcess.SHELL && first !== undefined) return ["/bin/sh", "-c", first];
  if (spec.main === MainProcess.ARGV && (first !== undefined || spec.useEntrypoint)) return [...spec.argv];
  throw new BerthError("engine-refused", "The session has no command to run.", { field: "command" });
}

/**
 * Environment of the main process. Home and user are only advice, which the manager or the owner may have other words
 * for; what opens devices is the platform's alone.
 */
export function containerEnvironment(spec: KernelSpec): string[] {
  const name = spec.uid === 0 ? "root" : USER_NAME;
  const defaults = {
    ...(spec.imageIsHost ? { PATH: HOST_PATH, LANG: "C.UTF-8" } : {}),
    HOME: USER_HOME,
    USER: name,
    LOGNAME: name,
  };
  // A default runtime of the engine would otherwise show every GPU to whoever asks for it.
  const forced = { NVIDIA_VISIBLE_DEVICES: "void" };
  const merged = { ...defaults, ...spec.environment, ...forced };
  return Object.entries(merged).map(([key, value]) => `${key}=${value}`);
}

/**
 * How the engine is to make a kernel's container. Pure: everything that must exist on the node is in `parts`.
 * Throws `engine-refused` when there is no command.
 */
export function containerOptions(
  spec: KernelSpec,
  owner: Ownership,
  parts: ContainerParts,
): ContainerCreateOptions & { readonly name: string } {
  const { entrypoint, cmd } = mainCommand(spec);
  const keepAlive = spec.main === MainProcess.KEEP_ALIVE;
  return {
    name: containerName(owner, spec),
    Image: parts.image,
    Labels: kernelLabels(owner, spec, keepAlive),
    Hostname: spec.hostname,
    // Only the number: group and supplementary groups come from the account files, at each start and exec.
    User: String(spec.uid),
    WorkingDir: USER_HOME,
    Env: containerEnvironment(spec),
    ...(entrypoint === undefined ? {} : { Entrypoint: entrypoint }),
    Cmd: cmd,
    Tty: false,
    OpenStdin: false,
    AttachStdin: false,
    AttachStdout: true,
    AttachStderr: true,
    StopSignal: "SIGTERM",
    Healthcheck: { Test: ["NONE"] },
    HostConfig: {
      Init: true,
      NetworkMode: parts.network,
      RestartPolicy: { Name: "no" },
      Privileged: false,
      // Without the right to gain privileges a user can hold none, so only root needs the list.
      SecurityOpt: ["no-new-privileges"],
      CapDrop: ["ALL"],
      CapAdd: spec.uid === 0 ? ROOT_CAPABILITIES : [],
      ...resources(spec),
      Ulimits: parts.ulimits.map((one) => ({ ...one })),
      // The engine's log only bridges a restart of the agent; this driver keeps bytes that are no UTF-8.
      LogConfig: { Type: "local", Config: { "max-size": "32m", "max-file": "2", compress: "false" } },
      Mounts: [
        ...parts.hostMounts,
        bind(parts.scratch.home, USER_HOME, false),
        bind(parts.scratch.tmp, "/tmp", false),
        ...(keepAlive ? [bind(parts.keepAlive, KEEP_ALIVE_PATH, true)] : []),
      ],
    },
  };
}

function resources(spec: KernelSpec) {
  return {
    NanoCpus: spec.cpuMilli * 1_000_000,
    CpuShares: Math.max(2, Math.round((spec.cpuMilli * 1024) / 1000)),
    Memory: spec.memBytes,
    MemorySwap: spec.memBytes,
    ShmSize: spec.shmBytes > 0 ? spec.shmBytes : DEFAULT_SHM_BYTES,
    PidsLimit: spec.pidsLimit > 0 ? spec.pidsLimit : DEFAULT_PIDS,
    OomScoreAdj: OOM_SCORE,
  };
}
