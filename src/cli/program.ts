import { Command, CommanderError, Option } from "commander";
import { COMMIT, VERSION } from "../kit/version.ts";
import type { CommandSpec, FamilySpec, OptionSpec } from "./command.ts";

export type Handler = (
  spec: CommandSpec,
  args: readonly string[],
  options: Record<string, unknown>,
) => Promise<void>;

export type Output = { readonly out: (text: string) => void; readonly err: (text: string) => void };

const COMMON: readonly OptionSpec[] = [
  { flags: "--json", help: "print JSON" },
  { flags: "--utc", help: "print times as they are, not relative to now" },
  {
    flags: "--data-dir <dir>",
    help: "as root on the manager's machine: use the manager with this data folder",
    completes: "files",
  },
];

/** The options of a command, those that every command has included. */
export function optionsOf(spec: CommandSpec): readonly OptionSpec[] {
  return [...(spec.options ?? []), ...COMMON];
}

function optionFor({ flags, help, many, choices }: OptionSpec): Option {
  const option = new Option(flags, help);
  if (choices !== undefined) option.choices([...choices]);
  if (many) option.argParser((value: string, before: string[] | undefined) => [...(before ?? []), value]);
  return option;
}

/** A sub-command in a list: its name and arguments, without the options that each of them has. */
function subcommandTerm(command: Command): string {
  return `${command.name()} ${command.usage().replace("[options] ", "").replace("[options]", "")}`
    .replace("[command]", "…")
    .trim();
}

function addCommand(parent: Command, spec: CommandSpec, handler: Handler, passThrough: boolean): void {
  const name = spec.usage.split(" ", 1)[0] ?? "";
  const command = parent.command(spec.usage, { hidden: spec.hidden === true }).description(spec.summary);
  for (const option of optionsOf(spec)) command.addOption(optionFor(option));
  if (spec.tail)
    command.usage(
      `[options] ${spec.usage.slice(name.length + 1).replace(/\[command\.\.\.\]/, "-- COMMAND…")}`,
    );
  command.passThroughOptions(spec.tail === true && passThrough);
  if (spec.examples.length > 0) {
    command.addHelpText(
      "after",
      `\nExamples:\n${spec.examples.map((example) => `  $ ${example}\n`).join("")}`,
    );
  }
  command.action(() => handler(spec, command.args, command.opts()));
}

export type Tree = { readonly commands: readonly CommandSpec[]; readonly families: readonly FamilySpec[] };

/**
 * The command line as commander takes it. `passThrough` lets `run` and `exec` take what follows their last
 * argument as the command; it is off when a `--` marks the command's beginning.
 */
export function buildProgram(tree: Tree, handler: Handler, output: Output, passThrough: boolean): Command {
  const program = new Command("berth");
  const settle = (command: Command) => {
    command.exitOverride().configureOutput({
      writeOut: output.out,
      writeErr: output.err,
      outputError: () => {},
    });
    command.helpCommand(command === program);
  };
  settle(program);
  program
    .description("Run containers on a lab's servers.")
    .version(`berth ${VERSION} (${COMMIT})`)
    .enablePositionalOptions()
    .configureHelp({ subcommandTerm })
    .addHelpText(
      "after",
      "\nRoles: berth up (manager and agent in one), berth manager, berth agent.\n" +
        "Sign in with `berth login URL`, or set BERTH_URL and BERTH_TOKEN.\n",
    );
  for (const spec of tree.commands) addCommand(program, spec, handler, passThrough);
  for (const family of tree.families) {
    const command = program.command(family.name).description(family.summary);
    for (const spec of family.commands) addCommand(command, spec, handler, passThrough);
    for (const sub of command.commands) settle(sub);
    settle(command);
  }
  for (const command of program.commands) settle(command);
  return program;
}

/** The exit code and sentence of what commander threw; undefined for anything else. */
export function usageFault(
  error: unknown,
): { readonly help: boolean; readonly sentence: string } | undefined {
  if (!(error instanceof CommanderError)) return undefined;
  const help = ["commander.help", "commander.helpDisplayed", "commander.version"].includes(error.code);
  const text = error.message
    .replace(/^error: /, "")
    .replace(/\s*\n\s*/g, " ")
    .trim();
  return { help, sentence: `${text.charAt(0).toUpperCase()}${text.slice(1)}` };
}
