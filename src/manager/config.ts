import { isIP } from "node:net";
import { z } from "zod";
import { type LoadedConfig, loadConfig } from "../kit/config.ts";
import { booleanField, durationField, listField, sizeField } from "../kit/config-fields.ts";
import { BerthError } from "../kit/errors.ts";
import { readNetwork } from "./network.ts";
import { readTlsFiles } from "./tls-files.ts";

const LAST_PORT = 65_535;

export type Address = { readonly host: string; readonly port: number };

/** `host:port`, `[v6]:port` or `:port` for every address. */
const addressField = () =>
  z
    .string("must be an address such as 127.0.0.1:7410")
    .trim()
    .transform((text, ctx): Address => {
      const match = /^(?:\[([0-9a-fA-F:.]+)\]|([^:[\]\s]*)):(\d{1,5})$/.exec(text);
      const port = Number(match?.[3]);
      if (match === null || port > LAST_PORT) {
        ctx.addIssue({
          code: "custom",
          message: `"${text}" is no address such as 127.0.0.1:7410 or 0.0.0.0:7410`,
        });
        return z.NEVER;
      }
      return { host: match[1] ?? (match[2] === "" ? "0.0.0.0" : (match[2] ?? "")), port };
    });

const text = (about: string) => z.string("must be text").trim().min(1, "must not be empty").describe(about);

const LEVELS = ["trace", "debug", "info", "warn", "error", "silent"] as const;

const SHORTEST_MS = 1_000;
const LONGEST_MS = 24 * 3_600_000;

/** How often something is done. */
const periodField = () =>
  durationField().refine((ms) => ms >= SHORTEST_MS && ms <= LONGEST_MS, {
    error: "must be between 1s and 1d",
  });

const networksField = () =>
  listField().superRefine((networks, ctx) => {
    const wrong = networks.find((network) => readNetwork(network) === undefined);
    if (wrong === undefined) return;
    ctx.addIssue({
      code: "custom",
      message: `"${wrong}" is no address or network such as 10.0.0.0/8`,
    });
  });

/** Every key of the manager's configuration. */
export const managerConfig = z.object({
  listen: addressField()
    .default({ host: "127.0.0.1", port: 7410 })
    .describe("Address of the API; HTTPS unless it is a loopback address"),
  agentListen: addressField()
    .optional()
    .describe("Address for agents; the next port on the same host by default"),
  dataDir: text("Folder of database, keys and logs").default("/var/lib/berth/manager"),
  publicUrl: z
    .string()
    .trim()
    .refine((value) => URL.canParse(value) && /^https?:$/.test(new URL(value).protocol), {
      error: "must be a URL such as https://berth.example.org",
    })
    .optional()
    .describe("Where people reach the manager, when it differs from the address"),
  tlsCert: text("Certificate chain (PEM) for HTTPS").optional(),
  tlsKey: text("Private key (PEM) of the certificate").optional(),
  behindProxy: booleanField()
    .default(false)
    .describe("Plain HTTP behind a proxy that ends TLS and sets X-Forwarded-For and -Proto"),
  trustedProxies: networksField()
    .default([])
    .describe("Addresses or networks of proxies; loopback and private networks by default"),
  logLevel: z
    .enum(LEVELS, `must be one of ${LEVELS.join(", ")}`)
    .default("info")
    .describe("What is logged"),
  logLimit: sizeField()
    .default(16 * 1024 * 1024)
    .describe("Output kept of one ended session"),
  logRetention: durationField()
    .default(30 * 24 * 3_600_000)
    .describe("How long output of ended sessions is kept"),
  logTotal: sizeField()
    .default(20 * 1024 * 1024 * 1024)
    .describe("Output kept of all ended sessions together"),
  agentHeartbeat: periodField().default(5_000).describe("How often agents say that they live"),
  agentLostAfter: durationField().default(40_000).describe("Silence after which an agent counts as lost"),
  agentReport: periodField().default(30_000).describe("How often agents report everything that they have"),
  agentUsage: periodField().default(10_000).describe("How often agents report what is used"),
});
export type ManagerConfig = z.output<typeof managerConfig>;

export const MANAGER_FILE = "/etc/berth/manager.toml";

/** Whether only this machine can reach the host. */
export function isLoopback(host: string): boolean {
  return host === "localhost" || host === "::1" || (isIP(host) === 4 && host.startsWith("127."));
}

/** Where agents are awaited: the next port of the same host by default; port 0 lets the system choose both. */
export function agentAddress({
  listen,
  agentListen,
}: Pick<ManagerConfig, "listen" | "agentListen">): Address {
  return agentListen ?? { host: listen.host, port: listen.port === 0 ? 0 : listen.port + 1 };
}

/** What the schema of one key alone cannot say. Throws `invalid-config`. */
export function checkTogether(config: ManagerConfig): void {
  const { tlsCert, tlsKey, behindProxy, agentHeartbeat, agentLostAfter } = config;
  const refuse = (field: string, sentence: string) => new BerthError("invalid-config", sentence, { field });
  if ((tlsCert === undefined) !== (tlsKey === undefined)) {
    throw refuse("tlsKey", "tls-cert and tls-key go together: give both or neither.");
  }
  if (tlsCert !== undefined && behindProxy) {
    throw refuse("behindProxy", "behind-proxy means plain HTTP: it does not go with tls-cert.");
  }
  if (config.agentListen === undefined && config.listen.port === LAST_PORT) {
    const sentence = `listen has the last port, ${LAST_PORT}, so none is behind it for agents: give agent-listen, or a lower port.`;
    throw refuse("listen", sentence);
  }
  if (agentLostAfter < 2 * agentHeartbeat) {
    throw refuse("agentLostAfter", "agent-lost-after must be at least twice agent-heartbeat.");
  }
}

export type ConfigSource = {
  readonly argv: readonly string[];
  readonly env?: Readonly<Record<string, string | undefined>>;
  /** Read when it is there and no other is named. */
  readonly file?: string | undefined;
};

/** The manager's configuration: flags, `BERTH_MANAGER_*` and `BERTH_*` variables, the file. Throws `invalid-config`. */
export function loadManagerConfig({
  argv,
  env = process.env,
  file,
}: ConfigSource): LoadedConfig<ManagerConfig> {
  const loaded = loadConfig({
    schema: managerConfig,
    argv,
    env,
    file,
    booleans: ["behindProxy"],
    envPrefixes: ["BERTH_MANAGER_", "BERTH_"],
  });
  checkTogether(loaded.value);
  return loaded;
}

/** What only the files say that a configuration names. Throws `invalid-config`. */
export async function checkFiles({ tlsCert, tlsKey }: ManagerConfig): Promise<void> {
  if (tlsCert !== undefined && tlsKey !== undefined) await readTlsFiles(tlsCert, tlsKey);
}

/** A configuration with what follows from its other keys, as a person is shown it. */
export function withDerived<T extends ManagerConfig>(loaded: LoadedConfig<T>): LoadedConfig<T> {
  return { ...loaded, value: { ...loaded.value, agentListen: agentAddress(loaded.value) } };
}

/** For `berth config check manager`: what holds, from the installed file unless another is named. */
export async function checkManagerConfig(argv: readonly string[]): Promise<LoadedConfig<ManagerConfig>> {
  const loaded = loadManagerConfig({ argv, file: MANAGER_FILE });
  await checkFiles(loaded.value);
  return withDerived(loaded);
}
