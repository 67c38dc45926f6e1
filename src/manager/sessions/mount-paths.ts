import type { Refusal } from "./admission-types.ts";
import { HOME } from "./environment.ts";

/** Nothing is mounted on these nor below them. */
const SYSTEM = [
  "/bin",
  "/boot",
  "/dev",
  "/etc",
  "/lib",
  "/lib32",
  "/lib64",
  "/proc",
  "/root",
  "/run",
  "/sbin",
  "/sys",
  "/usr",
  "/var",
] as const;
/** Nothing is mounted on these themselves. */
const TAKEN: ReadonlySet<string> = new Set(["/", "/home", HOME, "/media", "/mnt", "/opt", "/srv", "/tmp"]);

const OWN_NAMES: ReadonlySet<string> = new Set([".terminfo", ".jupyter", ".tmux.conf", ".ssh"]);
const OWN_PATTERNS = [/^\.[a-z0-9]+rc$/, /^\.[a-z0-9]+_profile$/];

function problemOf(path: string): { code: string; why: string } | null {
  const invalid = (why: string) => ({ code: "invalid-mount-path", why });
  const reserved = (why: string) => ({ code: "reserved-mount-path", why });
  if (!/^[\x21-\x7e]+$/.test(path)) return invalid("it has to be plain ASCII without spaces");
  if (!path.startsWith("/")) return invalid("it has to begin with /");
  const parts = path.slice(1).split("/");
  if (path !== "/" && parts.some((part) => part === "" || part === "." || part === "..")) {
    return invalid("it has an empty part, `.` or `..` in it");
  }
  if (parts.some((part) => part.length > 64)) return invalid("a part of it is longer than 64 characters");
  if (TAKEN.has(path)) return reserved(`${path} itself is taken; mount below it`);
  const system = SYSTEM.find((dir) => path === dir || path.startsWith(`${dir}/`));
  if (system !== undefined) return reserved(`${system} belongs to the system`);
  const inHome = path.startsWith(`${HOME}/`) ? (path.slice(HOME.length + 1).split("/")[0] ?? "") : "";
  const own = OWN_NAMES.has(inHome) || OWN_PATTERNS.some((pattern) => pattern.test(inHome));
  return own ? reserved(`${inHome} is kept for the session's own files`) : null;
}

/** What is wrong with the paths at which folders are to be mounted; empty when nothing is. */
export function checkMountPaths(paths: readonly string[]): readonly Refusal[] {
  return paths.flatMap((path, i) => {
    const shown = JSON.stringify(path.slice(0, 200));
    const refuse = (code: string, sentence: string): Refusal => ({
      code,
      field: "mounts",
      sentence,
      details: {},
    });
    if (paths.indexOf(path) < i)
      return refuse("duplicate-mount-path", `Two folders are to be mounted at ${shown}.`);
    const problem = problemOf(path);
    return problem === null
      ? []
      : refuse(problem.code, `A folder cannot be mounted at ${shown}: ${problem.why}.`);
  });
}
