import { hostname } from "node:os";
import { resolve } from "node:path";
import { z } from "zod";
import { describeConfig, type LoadedConfig, loadConfig } from "../kit/config.ts";
import { cpuField, sizeField } from "../kit/config-fields.ts";

const MIB = 1024 * 1024;
const LEVELS = ["trace", "debug", "info", "warn", "error", "silent"] as const;

const text = (about: string) => z.string("must be text").trim().min(1, "must not be empty").describe(about);

/** Every key of the agent's configuration. */
export const agentConfig = z.object({
  manager: z
    .string("must be text")
    .trim()
    .refine((value) => URL.canParse(value) && /^https?:$/.test(new URL(value).protocol), {
      error: "must be the manager's URL, such as https://berth.example.org:7410",
    })
    .optional()
    .describe("URL of the manager; needed for joining, remembered afterwards"),
  token: text("Join token; needed once. A new one makes the node join anew").optional(),
  // The engine is told paths below it, which must not depend on where the agent was started.
  dataDir: text("Folder of identity, logs and scratch disks")
    .transform((path) => resolve(path))
    .default("/var/lib/berth/agent")
    .describe("Folder of identity, logs and scratch disks"),
  engineSocket: text("Socket of the container engine").default("/var/run/docker.sock"),
  name: text("Name of the node; its host name by default").default(() => hostname()),
  reservedCpu: cpuField().default(0).describe("CPU kept back from sessions"),
  reservedMem: sizeField()
    .default(512 * MIB)
    .describe("Memory kept back from sessions"),
  scratchSize: sizeField()
    .default(10 * 1024 * MIB)
    .describe("Scratch disk of a session that names no size"),
  scratchMode: z
    .enum(["auto", "loop", "directory"], "must be auto, loop or directory")
    .default("auto")
    .describe("Scratch disks as loop-mounted files of exact size, as plain folders, or what the node can"),
  logLimit: sizeField()
    .default(64 * MIB)
    .describe("Output kept on the node of each session"),
  subnetPool: z
    .cidrv4("must be an IPv4 range such as 10.213.0.0/16")
    .optional()
    .describe("Range from which the sessions' network takes its addresses; one that is free by default"),
  logLevel: z
    .enum(LEVELS, `must be one of ${LEVELS.join(", ")}`)
    .default("info")
    .describe("What is logged"),
});
export type AgentConfig = z.output<typeof agentConfig>;

/** Every key with its flag and variable, for `--help`. */
export const agentOptions = describeConfig(agentConfig, { token: "BERTH_JOIN_TOKEN" });

export const AGENT_FILE = "/etc/berth/agent.toml";

export type AgentConfigSource = {
  readonly argv: readonly string[];
  readonly env?: Readonly<Record<string, string | undefined>>;
  /** Read when it is there and no other is named. */
  readonly file?: string | undefined;
};

/** The agent's configuration: flags, `BERTH_AGENT_*` and `BERTH_*` variables, the file. Throws `invalid-config`. */
export function loadAgentConfig({
  argv,
  env = process.env,
  file,
}: AgentConfigSource): LoadedConfig<AgentConfig> {
  // BERTH_TOKEN is the client's API token, which is no join token.
  const { BERTH_TOKEN: _, ...rest } = env;
  const joinToken = env.BERTH_AGENT_TOKEN ?? env.BERTH_JOIN_TOKEN;
  return loadConfig({
    schema: agentConfig,
    argv,
    env: { ...rest, ...(joinToken !== undefined && { BERTH_AGENT_TOKEN: joinToken }) },
    file,
    aliases: { "manager-url": "manager", "join-token": "token" },
    envPrefixes: ["BERTH_AGENT_", "BERTH_"],
  });
}

/** For `berth config check agent`: what holds, from the installed file unless another is named. */
export function checkAgentConfig(argv: readonly string[]): LoadedConfig<AgentConfig> {
  return loadAgentConfig({ argv, file: AGENT_FILE });
}
