import type { CommandSpec, FamilySpec } from "./command.ts";
import { usage } from "./failures.ts";

/** Effective values of a role's configuration, with where each came from. Throws `invalid-config`. */
export type ConfigCheck = (argv: readonly string[]) => Promise<CheckedConfig> | CheckedConfig;
export type CheckedConfig = {
  readonly value: Readonly<Record<string, unknown>>;
  readonly sources: Readonly<Record<string, string>>;
};

const SECRET = /token|password|secret/i;

function shown(key: string, value: unknown): string {
  if (value === undefined || value === null) return "-";
  if (SECRET.test(key)) return "(hidden)";
  return typeof value === "string" ? value : JSON.stringify(value);
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
      const { value, sources } = await run(file === undefined ? [] : ["--config", file]);
      const rows = Object.keys(sources).map(
        (key) => [key, shown(key, value[key]), sources[key] ?? ""] as const,
      );
      if (json) {
        await show.json(
          Object.fromEntries(rows.map(([key, text, source]) => [key, { value: text, source }])),
        );
      } else {
        await show.table(["KEY", "VALUE", "FROM"], rows, "Nothing to configure.");
      }
      return undefined;
    },
  };
  return { name: "config", summary: "The configuration of manager and agent", commands: [check] };
}
