import { formatSize } from "../../kit/size.ts";
import type { Refusal } from "./admission-types.ts";

/** One argument, in bytes of UTF-8: Linux takes 128 KiB with the NUL that ends it. */
export const MAX_ARGUMENT_BYTES = 128 * 1024 - 1;
/**
 * All arguments together, in bytes. Linux takes 2 MiB for arguments and environment with a pointer for each; the
 * environment (of the person, the platform and the image) has the other half.
 */
export const MAX_ARGUMENTS_BYTES = 1024 * 1024;
const POINTER_BYTES = 8;

const bytesOf = (text: string) => Buffer.byteLength(text, "utf8");

/**
 * What is wrong with the size of a command, an argv or one string for the shell, for which the system would refuse to
 * execute it; empty when nothing is. `field` is where the command stands in the request.
 */
export function checkArgumentSizes(command: readonly string[] | string, field: string): readonly Refusal[] {
  const argv = typeof command === "string" ? [command] : command;
  const sizes = argv.map(bytesOf);
  const refuse = (sentence: string, limit: number, bytes: number): Refusal => ({
    code: "command-too-long",
    field,
    sentence: `${sentence} Put it into a file or pass it on standard input.`,
    details: { limit, bytes },
  });
  const longest = Math.max(0, ...sizes);
  if (longest > MAX_ARGUMENT_BYTES) {
    const what = typeof command === "string" ? "The command" : `Argument ${sizes.indexOf(longest)}`;
    const told = `has ${longest} bytes in UTF-8; the system takes ${MAX_ARGUMENT_BYTES}.`;
    return [refuse(`${what} ${told}`, MAX_ARGUMENT_BYTES, longest)];
  }
  const total = sizes.reduce((sum, bytes) => sum + bytes + 1 + POINTER_BYTES, 0);
  if (total <= MAX_ARGUMENTS_BYTES) return [];
  const limit = formatSize(MAX_ARGUMENTS_BYTES);
  const sentence = `The arguments take ${formatSize(total)} together; the limit is ${limit}.`;
  return [refuse(sentence, MAX_ARGUMENTS_BYTES, total)];
}
