import type { CommandSpec, Completes, FamilySpec } from "./command.ts";
import { usage } from "./failures.ts";
import { optionsOf, type Tree } from "./program.ts";

/** What can be completed behind the words of one command. */
type Place = {
  /** `run`, `image pull`; empty for `berth` itself. */
  readonly path: string;
  /** Sub-commands with their summaries. */
  readonly commands: readonly (readonly [string, string])[];
  readonly options: readonly {
    readonly words: readonly string[];
    readonly help: string;
    readonly takesValue: boolean;
    readonly values: readonly string[];
    readonly completes: Completes | undefined;
  }[];
  readonly completes: Completes | undefined;
};

const nameOf = (spec: CommandSpec) => spec.usage.split(" ", 1)[0] ?? "";

/** Commands of this executable that are not the client's. */
const ROLES: readonly (readonly [string, string])[] = [
  ["up", "Manager and agent in one process"],
  ["manager", "Run the manager"],
  ["agent", "Run the agent of a node"],
];

function placeOf(spec: CommandSpec, parent?: string): Place {
  return {
    path: [parent, nameOf(spec)].filter(Boolean).join(" "),
    commands: [],
    options: optionsOf(spec).map(({ flags, help, choices, completes }) => ({
      words: flags.split(/[ ,]+/).filter((word) => word.startsWith("-")),
      help,
      takesValue: flags.includes("<"),
      values: choices ?? [],
      completes,
    })),
    completes: spec.completes,
  };
}

const visible = (specs: readonly CommandSpec[]) => specs.filter((spec) => !spec.hidden);
const named = (specs: readonly CommandSpec[]) =>
  visible(specs).map((spec): [string, string] => [nameOf(spec), spec.summary]);

function familyPlaces({ name, commands }: FamilySpec): Place[] {
  const own = { path: name, commands: named(commands), options: [], completes: undefined };
  return [own, ...visible(commands).map((spec) => placeOf(spec, name))];
}

export function placesOf(tree: Tree): readonly Place[] {
  const families = tree.families.map(({ name, summary }): [string, string] => [name, summary]);
  const root = {
    path: "",
    commands: [...named(tree.commands), ...families, ...ROLES],
    options: [],
    completes: undefined,
  };
  return [
    root,
    ...visible(tree.commands).map((spec) => placeOf(spec)),
    ...tree.families.flatMap(familyPlaces),
  ];
}

const quote = (text: string) => `'${text.replaceAll("'", `'\\''`)}'`;

/** Shell lines that give the words of one place, or of an option's value. */
type Dialect = {
  readonly words: (words: readonly string[]) => string;
  readonly names: (kind: Exclude<Completes, "files">) => string;
  readonly files: string;
};

function source(dialect: Dialect, completes: Completes | undefined, values: readonly string[] = []): string {
  if (values.length > 0) return dialect.words(values);
  if (completes === undefined) return ":";
  return completes === "files" ? dialect.files : dialect.names(completes);
}

/** The `case` over (place, word before), shared by bash and zsh. */
function cases(places: readonly Place[], dialect: Dialect): string {
  const lines: string[] = [];
  for (const { path, options } of places) {
    for (const { words, takesValue, values, completes } of options) {
      if (!takesValue) continue;
      const patterns = words.map((word) => quote(`${path}|${word}`)).join("|");
      lines.push(`    ${patterns}) ${source(dialect, completes, values)}; return ;;`);
    }
  }
  return lines.join("\n");
}

function wordCases(places: readonly Place[], dialect: Dialect): string {
  return places
    .map(({ path, commands, options, completes }) => {
      const words = options.flatMap((option) => option.words);
      const rest =
        commands.length > 0 ? dialect.words(commands.map(([name]) => name)) : source(dialect, completes);
      const all = dialect.words([...words, "--help"]);
      return `    ${quote(path)}) if [[ $cur == -* ]]; then ${all}; else ${rest}; fi ;;`;
    })
    .join("\n");
}

/** Finds the place: the words before the cursor that name a command, options and their values skipped. */
function pathFinder(tree: Tree, index: { readonly first: string; readonly last: string }): string {
  const families = tree.families.map(({ name }) => name).join("|");
  return `  local place= found= word i
  for ((i = ${index.first}; i < ${index.last}; i++)); do
    word=\${words[i]}
    [[ $word == -- ]] && return
    [[ $word == -* || -n $found ]] && continue
    if [[ -z $place ]]; then place=$word; else place="$place $word"; fi
    case $place in ${families}) ;; *) found=1 ;; esac
  done`;
}

function bash(tree: Tree): string {
  const dialect: Dialect = {
    words: (words) => `COMPREPLY=($(compgen -W ${quote(words.join(" "))} -- "$cur"))`,
    names: (kind) => `COMPREPLY=($(compgen -W "$(berth __complete ${kind} 2>/dev/null)" -- "$cur"))`,
    files: `COMPREPLY=($(compgen -f -- "$cur"))`,
  };
  const places = placesOf(tree);
  return `# bash completion for berth: source <(berth completion bash)
_berth() {
  local cur=\${COMP_WORDS[COMP_CWORD]} prev=\${COMP_WORDS[COMP_CWORD-1]}
  local -a words=("\${COMP_WORDS[@]}")
  COMPREPLY=()
${pathFinder(tree, { first: "1", last: "COMP_CWORD" })}
  case "$place|$prev" in
${cases(places, dialect)}
  esac
  case "$place" in
${wordCases(places, dialect)}
  esac
  # A name with a colon is more than one word to bash.
  if declare -F __ltrim_colon_completions >/dev/null; then __ltrim_colon_completions "$cur"; fi
}
complete -o default -F _berth berth
`;
}

function zsh(tree: Tree): string {
  const dialect: Dialect = {
    words: (words) => `compadd -- ${words.map(quote).join(" ")}`,
    names: (kind) => `compadd -- \${(f)"$(berth __complete ${kind} 2>/dev/null)"}`,
    files: "_files",
  };
  const places = placesOf(tree);
  return `#compdef berth
# zsh completion for berth: source <(berth completion zsh), or as _berth in a folder of $fpath
_berth() {
  local cur=\${words[CURRENT]} prev=\${words[CURRENT-1]}
${pathFinder(tree, { first: "2", last: "CURRENT" })}
  case "$place|$prev" in
${cases(places, dialect)}
  esac
  case "$place" in
${wordCases(places, dialect)}
  esac
}
compdef _berth berth
`;
}

function fish(tree: Tree): string {
  const families = tree.families.map(({ name }) => name).join(" ");
  const lines: string[] = [];
  for (const place of placesOf(tree)) {
    const on = `complete -c berth -n ${quote(`__berth_at ${quote(place.path)}`)}`;
    for (const [name, summary] of place.commands)
      lines.push(`${on} -f -a ${quote(name)} -d ${quote(summary)}`);
    if (place.completes !== undefined && place.completes !== "files") {
      lines.push(`${on} -f -a ${quote(`(berth __complete ${place.completes} 2>/dev/null)`)}`);
    }
    for (const { words, help, takesValue, values, completes } of place.options) {
      const names = words.map((word) =>
        word.startsWith("--") ? `-l ${word.slice(2)}` : `-s ${word.slice(1)}`,
      );
      const dynamic = completes !== undefined && completes !== "files";
      const from =
        values.length > 0 ? values.join(" ") : dynamic ? `(berth __complete ${completes} 2>/dev/null)` : "";
      const value = !takesValue
        ? ""
        : completes === "files"
          ? " -r"
          : ` -x${from === "" ? "" : ` -a ${quote(from)}`}`;
      lines.push(`${on} ${names.join(" ")}${value} -d ${quote(help)}`);
    }
  }
  return `# fish completion for berth: berth completion fish | source
function __berth_at
  set -l path
  for word in (commandline -opc)[2..]
    test "$word" = --; and return 1
    string match -q -- '-*' $word; and continue
    set -a path $word
    contains -- "$path" ${families}; or break
  end
  test "$path" = "$argv[1]"
end
complete -c berth -f
${lines.join("\n")}
`;
}

const SHELLS: Readonly<Record<string, (tree: Tree) => string>> = { bash, zsh, fish };

/** The completion script for a shell. Throws `usage` for one that is not known. */
export function completionScript(shell: string, tree: Tree): string {
  const make = Object.hasOwn(SHELLS, shell) ? SHELLS[shell] : undefined;
  if (make === undefined) throw usage(`"${shell}" is not one of ${Object.keys(SHELLS).join(", ")}.`);
  return make(tree);
}

export function completionCommand(tree: () => Tree): CommandSpec {
  return {
    usage: "completion <shell>",
    summary: "Print the completion script for bash, zsh or fish",
    examples: ["source <(berth completion bash)", "berth completion fish | source"],
    run: async ({ args, io }) => {
      await io.out(completionScript(args[0] ?? "", tree()));
      return undefined;
    },
  };
}
