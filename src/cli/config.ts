import { kebab } from "../kit/config.ts";
import type { CommandSpec, FamilySpec } from "./command.ts";
import { usage } from "./failures.ts";

/** Effective values of a role's configuration, with where each came from. Throws `invalid-config`. */
export type ConfigCheck = (argv: readonly string[]) => Promise<CheckedConfig> | CheckedConfig;
export type CheckedConfig = {
  readonly value: Readonly<Record<string, unknown>>;
  readonly sources: Readonly<Record<string, string>>;
  /** Values that have a unit, as flags and files write them. */
  readonly written?: Readonly<Record<string, string>>;
};

const SECRET = /token|password|secret/i;

function hideSecret(key: string, value: unknown): unknown {
  if (value === undefined) return null;
  return SECRET.test(key) && value !== null ? "(hidden)" : value;
}

/** A value as flags and files write it. */
function written(value: unknown): string {
  if (value === null || (Array.isArray(value) && value.length === 0)) return "-";
  if (typeof value !== "object") return String(value);
  if (Array.isArray(value)) return value.join(", ");
  if (!("host" in value) || !("port" in value)) return JSON.stringify(value);
  const host = String(value.host);
  return `${host.includes(":") ? `[${host}]` : host}:${value.port}`;
}

/** `berth config check`, for the roles whose checks the caller knows. */
export function configFamily(checks: Readonly<Record<string, ConfigCheck>>): FamilySpec {
  const roles = Object.keys(checks);
  const check: CommandSpec = {
    usage: "check [role]",
    summary: "Check a role's configuration and print what holds, and from where",
    options: [{ flags: "--config <file>", help: "configuration file", completes: "files" }],
    examples: ["berth config check manager", "berth config check agent --config /etc/berth/agent.toml"],
    run: async ({ args, options, json, show }) => {
      const role = args[0] ?? "manager";
      const run = Object.hasOwn(checks, role) ? checks[role] : undefined;
      if (run === undefined)
        throw usage(`"${role}" is not a role with a configuration: ${roles.join(", ")}.`);
      const file = options.text("config");
      const { value, sources, written: texts = {} } = await run(file === undefined ? [] : ["--config", file]);
      const entries = Object.keys(sources).map((key) => {
        const shown = hideSecret(key, value[key]);
        return { key: kebab(key), value: shown, text: texts[key], source: sources[key] ?? "" };
      });
      if (json) {
        const byKey = entries.map(({ key, value: plain, source }) => [key, { value: plain, source }]);
        await show.json(Object.fromEntries(byKey));
      } else {
        const rows = entries.map((entry) => [entry.key, entry.text ?? written(entry.value), entry.source]);
        await show.table(["KEY", "VALUE", "FROM"], rows, "Nothing to configure.");
      }
      return undefined;
    },
  };
  return { name: "config", summary: "The configuration of manager and agent", commands: [check] };
}
