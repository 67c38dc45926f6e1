import type { KernelId, SessionId, UserId } from "../../kit/ids.ts";
import { formatSize } from "../../kit/size.ts";
import type { ResourceSlots } from "../../kit/slots.ts";
import { formatServicePorts, type ServicePort } from "../images/labels.ts";
import type { Refusal } from "./admission-types.ts";

/** Where a session's files live inside its container. */
export const HOME = "/home/work";

/** All names and values together, in bytes: the rest of the system's limit is left to the arguments. */
export const MAX_ENVIRONMENT_BYTES = 256 * 1024;
/** One `NAME=value`, in bytes: Linux refuses to execute anything with a longer one. */
export const MAX_VARIABLE_BYTES = 128 * 1024 - 1;

const NAME = /^[A-Za-z_][A-Za-z0-9_]*$/;
const RESERVED_PREFIXES = ["BACKENDAI_", "BERTH_"] as const;
const RESERVED_NAMES: ReadonlySet<string> = new Set(["NVIDIA_VISIBLE_DEVICES"]);

/**
 * Whether only the platform sets the variable. LD_PRELOAD and its kind are left to people: inside the
 * container they reach nothing that the person does not already control.
 */
export function isReservedVariable(name: string): boolean {
  return RESERVED_NAMES.has(name) || RESERVED_PREFIXES.some((prefix) => name.startsWith(prefix));
}

const bytesOf = (text: string) => Buffer.byteLength(text, "utf8");

// Values may be secrets: no sentence and no detail ever repeats one.
function checkVariable(name: string, value: string): Refusal | null {
  const refuse = (code: string, sentence: string): Refusal => ({
    code,
    field: `environment.${name.slice(0, 100)}`,
    sentence,
    details: {},
  });
  if (!NAME.test(name)) {
    const shown = JSON.stringify(name.slice(0, 100));
    const rule = "a name has letters, digits and `_`, and does not start with a digit";
    return refuse("invalid-env-name", `${shown} cannot name an environment variable: ${rule}.`);
  }
  if (isReservedVariable(name)) {
    const rule = "BACKENDAI_*, BERTH_* and NVIDIA_VISIBLE_DEVICES are set by the platform alone";
    return refuse("reserved-env", `The environment variable ${name} is reserved: ${rule}.`);
  }
  if (value.includes("\0") || !value.isWellFormed()) {
    return refuse("invalid-env-value", `The value of ${name} holds a NUL or text that is not valid Unicode.`);
  }
  if (bytesOf(name) + 1 + bytesOf(value) > MAX_VARIABLE_BYTES) {
    const limit = formatSize(MAX_VARIABLE_BYTES + 1);
    return refuse(
      "env-too-large",
      `The environment variable ${name} is too long: the system takes less than ${limit}.`,
    );
  }
  return null;
}

/** What is wrong with the variables that a person gives; empty when nothing is. */
export function checkEnvironment(env: Readonly<Record<string, string>>): readonly Refusal[] {
  const refusals = Object.entries(env).flatMap(([name, value]) => checkVariable(name, value) ?? []);
  const total = Object.entries(env).reduce(
    (sum, [name, value]) => sum + bytesOf(name) + bytesOf(value) + 2,
    0,
  );
  if (total > MAX_ENVIRONMENT_BYTES) {
    const limit = formatSize(MAX_ENVIRONMENT_BYTES);
    const sentence = `The environment variables take ${formatSize(total)} together; the limit is ${limit}.`;
    const details = { limit: MAX_ENVIRONMENT_BYTES, bytes: total };
    refusals.push({ code: "env-too-large", field: "environment", sentence, details });
  }
  return refusals;
}

export type EnvironmentFacts = {
  readonly sessionId: SessionId;
  readonly sessionName: string;
  readonly kernelId: KernelId;
  readonly image: string;
  readonly owner: { readonly id: UserId; readonly email: string; readonly name: string };
  readonly slots: ResourceSlots;
  readonly preopenPorts: readonly number[];
  readonly servicePorts: readonly ServicePort[];
  /** Further names to set to the core count, from the image's labels. */
  readonly corecountNames: readonly string[];
  /** Names that the image's own configuration sets; null where that is not known. */
  readonly imageNames: ReadonlySet<string> | null;
  readonly imageIsHost: boolean;
  /** UUIDs of the NVIDIA devices that were allocated. */
  readonly nvidiaDevices: readonly string[];
  /** User id of the processes; 0 is root. */
  readonly uid: number;
  readonly user: Readonly<Record<string, string>>;
};

const THREAD_NAMES = [
  "OMP_NUM_THREADS",
  "OPENBLAS_NUM_THREADS",
  "MKL_NUM_THREADS",
  "NUMEXPR_NUM_THREADS",
  "VECLIB_MAXIMUM_THREADS",
] as const;

/** The thread count of numeric libraries: whole cores, at least one. */
export function coreCount(cpuMilli: number): number {
  return Math.max(1, Math.floor(cpuMilli / 1000));
}

/** What the platform tells a session of itself, without the prefix; a cluster of one container. */
function told(facts: EnvironmentFacts): Readonly<Record<string, string>> {
  return {
    SESSION_ID: facts.sessionId,
    SESSION_NAME: facts.sessionName,
    KERNEL_ID: facts.kernelId,
    KERNEL_IMAGE: facts.image,
    USER_UUID: facts.owner.id,
    USER_EMAIL: facts.owner.email,
    USER_NAME: facts.owner.name,
    PREOPEN_PORTS: facts.preopenPorts.join(","),
    SERVICE_PORTS: formatServicePorts(facts.servicePorts),
    CLUSTER_SIZE: "1",
    CLUSTER_REPLICAS: "main:1",
    CLUSTER_HOSTS: "main1",
    CLUSTER_HOST: "main1",
    CLUSTER_ROLE: "main",
    CLUSTER_IDX: "1",
    CLUSTER_LOCAL_RANK: "0",
  };
}

function forced(facts: EnvironmentFacts): Record<string, string> {
  const out: Record<string, string> = {};
  for (const [name, value] of Object.entries(told(facts))) {
    for (const prefix of RESERVED_PREFIXES) out[prefix + name] = value;
  }
  // An empty value would mean "all devices" to the NVIDIA runtime; `void` hides them.
  out.NVIDIA_VISIBLE_DEVICES = facts.nvidiaDevices.length > 0 ? facts.nvidiaDevices.join(",") : "void";
  return out;
}

/**
 * The variables a kernel is given, which go over those of its image. Defaults give way to the image,
 * the image to the platform's advice (home, user, thread counts), that to the person, and all of them
 * to what is forced. The image's own variables are not among the result: the engine adds them.
 */
export function kernelEnvironment(facts: EnvironmentFacts): Readonly<Record<string, string>> {
  const cores = String(coreCount(facts.slots.cpu));
  const account = facts.uid === 0 ? "root" : "work";
  const corecountNames = facts.corecountNames.filter((name) => NAME.test(name));
  // Where it is not known what the image sets, its own language is left to it.
  const setLang = facts.imageIsHost || facts.imageNames?.has("LANG") === false;
  const user = Object.entries(facts.user).filter(([name]) => NAME.test(name));
  return {
    ...(setLang ? { LANG: "C.UTF-8" } : {}),
    ...Object.fromEntries([...THREAD_NAMES, ...corecountNames].map((name) => [name, cores])),
    HOME,
    USER: account,
    LOGNAME: account,
    ...Object.fromEntries(user),
    ...forced(facts),
  };
}
