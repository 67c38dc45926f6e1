import { type ExecOpen, execOpen } from "../../contract/sessions.ts";
import { BerthError } from "../../kit/errors.ts";
import type { Refusal } from "./admission-types.ts";
import { checkArgumentSizes } from "./arguments.ts";
import { checkEnvironment } from "./environment.ts";

const isText = (text: string) => text.isWellFormed() && !text.includes("\0");

function checkArguments(argv: readonly string[]): readonly Refusal[] {
  const refuse = (code: string, sentence: string) => [{ code, field: "argv", sentence, details: {} }];
  if (argv[0] === "") return refuse("command-missing", "The command's first word, the program, is empty.");
  if (argv.every(isText)) return checkArgumentSizes(argv, "argv");
  return refuse("invalid-command", "The command holds a NUL or text that is not valid Unicode.");
}

function checkWorkdir(workdir: string | undefined): readonly Refusal[] {
  if (workdir === undefined || (workdir.startsWith("/") && isText(workdir))) return [];
  const shown = JSON.stringify(workdir.slice(0, 100));
  const sentence = `${shown} cannot be the folder to run in. Give its whole path, which begins with "/".`;
  return [{ code: "invalid-workdir", field: "workdir", sentence, details: {} }];
}

/** What is wrong with a command to run in a session; empty when nothing is. The same environment as at its start. */
function checkExec({ argv, environment, workdir }: ExecOpen): readonly Refusal[] {
  return [...checkArguments(argv), ...checkEnvironment(environment), ...checkWorkdir(workdir)];
}

/**
 * What a client's OPEN frame asks to run. Throws `invalid-request` where it is no such request, else the code of the
 * first thing that is wrong with it: `invalid-command`, `invalid-workdir`, `reserved-env` and the like.
 */
export function readExecOpen(params: unknown): ExecOpen {
  const parsed = execOpen.safeParse(params);
  if (!parsed.success) {
    const [issue] = parsed.error.issues;
    const field = issue?.path.join(".") ?? "";
    const why = issue === undefined ? "" : `: ${field === "" ? "" : `${field}: `}${issue.message}`;
    const sentence = `The first message must be an OPEN frame with what to run${why}.`;
    throw new BerthError("invalid-request", sentence);
  }
  const [refusal] = checkExec(parsed.data);
  if (refusal === undefined) return parsed.data;
  const { code, sentence, field, details } = refusal;
  throw new BerthError(code, sentence, { field, details });
}
