import { parseCpu } from "../../kit/cpu.ts";
import { BerthError, messageOf } from "../../kit/errors.ts";
import { parseSize } from "../../kit/size.ts";

/** A port of an app inside an image, as its labels declare it. */
export type ServicePort = {
  readonly name: string;
  readonly protocol: "tcp" | "http" | "preopen" | "vnc" | "rdp";
  /** One port, or several of one service. */
  readonly ports: readonly number[];
};

export type ImageRole = "compute" | "inference" | "system";

/** What the `ai.backend.*` and `berth.*` labels of an image say. */
export type ImageLabels = {
  readonly role: ImageRole;
  /** The least that a session of the image needs, by slot: milli-cores, bytes, units. */
  readonly minimum: Readonly<Record<string, number>>;
  /** The most that a session of the image can use, by slot. */
  readonly maximum: Readonly<Record<string, number>>;
  readonly preferredShm: number | null;
  readonly servicePorts: readonly ServicePort[];
  readonly endpointPorts: readonly string[];
  /** Names of environment variables that are set to the number of cores. */
  readonly corecountNames: readonly string[];
  readonly features: readonly string[];
  readonly accelerators: readonly string[];
  readonly runtimeType: string | null;
  readonly runtimePath: string | null;
  readonly baseDistro: string | null;
  /** Labels that were not understood and therefore ignored, each with the reason. */
  readonly warnings: readonly string[];
};

/** Ports inside a container that the platform, or the runner of Backend.AI's images, keeps for itself. */
export const RESERVED_PORTS: ReadonlySet<number> = new Set([2000, 2001, 2002, 2003, 2200, 7681]);

const PROTOCOLS = ["tcp", "http", "preopen", "vnc", "rdp"] as const;
const SERVICE = /^([A-Za-z0-9_-]+):([A-Za-z]+):(?:(\d+)|\[(\d+(?:,\d+)*)\])$/;

function bad(text: string, why: string): BerthError {
  const form = "Write it as name:protocol:port or name:protocol:[port,port].";
  return new BerthError("invalid-service-ports", `"${text}" is not a service port: ${why}. ${form}`);
}

function checkPort(text: string, port: number, taken: Set<number>): void {
  if (port <= 1024) throw bad(text, `port ${port} must be larger than 1024`);
  if (port >= 65_535) throw bad(text, `port ${port} must be smaller than 65535`);
  if (RESERVED_PORTS.has(port)) throw bad(text, `port ${port} is kept for the platform`);
  if (taken.has(port)) throw bad(text, `port ${port} is given twice`);
  taken.add(port);
}

/**
 * Reads the grammar of the `service-ports` label: `name:protocol:port` or `name:protocol:[p1,p2]`,
 * separated by commas. The obsolete protocol `pty` is left out. Throws `invalid-service-ports`.
 */
export function parseServicePorts(text: string): readonly ServicePort[] {
  const services: ServicePort[] = [];
  const taken = new Set<number>();
  // A comma inside brackets separates ports, any other separates services.
  for (const part of text.split(/,(?![^[]*\])/).map((piece) => piece.trim())) {
    if (part === "") continue;
    const [, name = "", protocolText = "", one, many] = SERVICE.exec(part) ?? [];
    if (name === "") throw bad(part, "it has another form");
    if (protocolText === "pty") continue;
    const protocol = PROTOCOLS.find((known) => known === protocolText);
    if (protocol === undefined) throw bad(part, `the protocol is none of ${PROTOCOLS.join(", ")}`);
    if (services.some((service) => service.name === name)) throw bad(part, `the name ${name} is given twice`);
    const ports = (one ?? many ?? "").split(",").map(Number);
    for (const port of ports) checkPort(part, port, taken);
    services.push({ name, protocol, ports });
  }
  return services;
}

/** The same grammar, written. */
export function formatServicePorts(services: readonly ServicePort[]): string {
  return services
    .map(({ name, protocol, ports }) => {
      const [first, ...more] = ports;
      return `${name}:${protocol}:${more.length === 0 ? first : `[${ports.join(",")}]`}`;
    })
    .join(",");
}

const PREFIXES = ["ai.backend.", "berth."] as const;

/** The labels that concern us without their prefix; `berth.` wins over `ai.backend.`. */
function ownLabels(labels: Readonly<Record<string, string>>): ReadonlyMap<string, string> {
  const own = new Map<string, string>();
  for (const prefix of PREFIXES) {
    for (const [name, value] of Object.entries(labels)) {
      if (name.startsWith(prefix)) own.set(name.slice(prefix.length), value);
    }
  }
  return own;
}

function slotAmount(slot: string, text: string): number {
  if (slot === "cpu") return /^0+(\.0+)?$/.test(text.trim()) ? 0 : parseCpu(text, slot);
  if (slot.includes("mem")) return parseSize(text, slot);
  if (!/^\d{1,9}$/.test(text.trim()))
    throw new BerthError("invalid-slot", `${slot}: "${text}" is not a whole number.`);
  return Number(text);
}

function words(text: string | undefined): readonly string[] {
  return (text ?? "").split(/[\s,]+/).filter((word) => word !== "");
}

function roleOf(text: string | undefined): ImageRole {
  const role = text?.toLowerCase();
  return role === "inference" || role === "system" ? role : "compute";
}

/**
 * Reads the labels of an image. A label that is wrong never makes the image unusable: it is ignored and
 * told in `warnings`.
 */
export function parseImageLabels(labels: Readonly<Record<string, string>>): ImageLabels {
  const own = ownLabels(labels);
  const warnings: string[] = [];
  const attempt = <T>(name: string, fallback: T, read: (text: string) => T): T => {
    const text = own.get(name);
    if (text === undefined) return fallback;
    try {
      return read(text);
    } catch (problem) {
      warnings.push(`The label ${name} is ignored: ${messageOf(problem)}`);
      return fallback;
    }
  };
  const amounts = (prefix: string): Readonly<Record<string, number>> => {
    const slots = [...own.keys()]
      .filter((name) => name.startsWith(prefix))
      .map((n) => n.slice(prefix.length));
    const read = slots.map(
      (slot) => [slot, attempt(prefix + slot, 0, (text) => slotAmount(slot, text))] as const,
    );
    return Object.fromEntries(read.filter(([, amount]) => amount > 0));
  };
  return {
    role: roleOf(own.get("role")),
    minimum: amounts("resource.min."),
    maximum: amounts("resource.max."),
    preferredShm: attempt("resource.preferred.shmem", null, (text): number | null =>
      parseSize(text, "shmem"),
    ),
    servicePorts: attempt("service-ports", [], parseServicePorts),
    endpointPorts: words(own.get("endpoint-ports")),
    corecountNames: words(own.get("envs.corecount")).filter((name) => /^[A-Za-z_][A-Za-z0-9_]*$/.test(name)),
    features: words(own.get("features")),
    accelerators: words(own.get("accelerators")),
    runtimeType: own.get("runtime-type") ?? null,
    runtimePath: own.get("runtime-path") ?? null,
    baseDistro: own.get("base-distro") ?? null,
    warnings,
  };
}
