/**
 * Which part may import which: `bun test/boundaries.ts [root]` prints each forbidden import and each cycle and
 * exits with 1 when there is one. The rules are those of docs/architecture.md.
 */
import { existsSync, readFileSync } from "node:fs";
import { builtinModules } from "node:module";
import { dirname, join, resolve } from "node:path";
import { findImports, type Import } from "./imports.ts";

export type Violation = { readonly file: string; readonly line: number; readonly sentence: string };

/** What each part may import besides itself. */
const MAY_IMPORT: Readonly<Record<string, readonly string[]>> = {
  kit: [],
  contract: ["kit"],
  wire: ["kit"],
  manager: ["wire", "contract", "kit"],
  agent: ["wire", "kit"],
  cli: ["contract", "kit"],
  web: ["contract"],
  up: ["manager", "agent", "kit"],
  main: ["up", "manager", "agent", "cli", "kit"],
};

/** Packages that one part keeps to itself, so that it can be replaced there. */
const ONLY_IN: readonly { readonly packages: readonly string[]; readonly folder: string }[] = [
  { packages: ["dockerode"], folder: "src/agent/engine/" },
  { packages: ["better-sqlite3", "kysely"], folder: "src/manager/" },
];

const PURE_PARTS = ["kit", "contract"];
// What manager and agent must do alike with their own files: configuration, whole writes, one process a folder.
const MAY_USE_FILES = [
  "src/kit/config.ts",
  "src/kit/atomic-file.ts",
  "src/kit/file-lock.ts",
  "src/kit/data-dir.ts",
];
const IO_MODULES = [
  "fs",
  "net",
  "tls",
  "http",
  "https",
  "http2",
  "dgram",
  "dns",
  "child_process",
  "worker_threads",
];

type SourceFile = { readonly path: string; readonly part: string; readonly imports: readonly Import[] };

function partOf(path: string): string | undefined {
  if (path.startsWith("web/")) return "web";
  return /^src\/(\w+)(?:\/|\.ts$)/.exec(path)?.[1];
}

function isTest(path: string): boolean {
  return /\.test\.tsx?$/.test(path);
}

function packageOf(specifier: string): string {
  const parts = specifier.split("/");
  return specifier.startsWith("@") ? parts.slice(0, 2).join("/") : (parts[0] ?? specifier);
}

function featureOf(path: string): string | undefined {
  return /^src\/manager\/([^/]+)\//.exec(path)?.[1];
}

function readSources(root: string): SourceFile[] {
  const paths = [...new Bun.Glob("{src,web}/**/*.{ts,tsx}").scanSync({ cwd: root })]
    .filter((path) => !path.includes("node_modules/") && !path.startsWith("web/dist/"))
    .sort();
  return paths.flatMap((path) => {
    const part = partOf(path);
    const imports = findImports(path, readFileSync(join(root, path), "utf8"));
    return part === undefined ? [] : [{ path, part, imports }];
  });
}

/** The path from the root of what a relative import names. */
function targetOf(root: string, file: SourceFile, specifier: string): string {
  return resolve(root, dirname(file.path), specifier).slice(resolve(root).length + 1);
}

function checkRelative(file: SourceFile, target: string): string | undefined {
  // Data at the root, such as package.json for the version.
  if (!target.includes("/") && target.endsWith(".json")) return undefined;
  if (isTest(target) && !isTest(file.path)) return "only tests may import a test";
  if (target.startsWith("test/")) return isTest(file.path) ? undefined : "only tests may import from test/";
  const part = partOf(target);
  if (part === undefined || !Object.hasOwn(MAY_IMPORT, part))
    return `${target} belongs to no part that is known`;
  const allowed = MAY_IMPORT[file.part] ?? [];
  if (part !== file.part && !allowed.includes(part)) {
    return `${file.part} may import ${["itself", ...allowed].join(", ")}; not ${part}`;
  }
  const feature = featureOf(target);
  const from = featureOf(file.path);
  if (/\/([\w-]+[.-])?repository\.ts$/.test(target) && from !== undefined && from !== feature) {
    return `the repository belongs to the feature ${feature}: go through its service`;
  }
  return undefined;
}

type Packages = { readonly shipped: readonly string[]; readonly tools: readonly string[] };

function readPackages(root: string): Packages {
  const read = (path: string): Record<string, Record<string, string> | undefined> =>
    existsSync(join(root, path)) ? JSON.parse(readFileSync(join(root, path), "utf8")) : {};
  const all = [read("package.json"), read("web/package.json")];
  return {
    shipped: all.flatMap((manifest) => Object.keys(manifest.dependencies ?? {})),
    tools: all.flatMap((manifest) => Object.keys(manifest.devDependencies ?? {})),
  };
}

function checkBuiltin(file: SourceFile, specifier: string): string | undefined {
  const name = specifier.replace(/^node:/, "").split("/")[0] ?? "";
  if (!PURE_PARTS.includes(file.part) || isTest(file.path) || MAY_USE_FILES.includes(file.path))
    return undefined;
  if (!IO_MODULES.includes(name) && !specifier.startsWith("bun:")) return undefined;
  return `${file.part} does no input or output`;
}

function checkPackage(file: SourceFile, specifier: string, packages: Packages): string | undefined {
  if (/^(node|bun):|^bun$/.test(specifier) || builtinModules.includes(specifier))
    return checkBuiltin(file, specifier);
  const name = packageOf(specifier);
  const kept = ONLY_IN.find((rule) => rule.packages.includes(name) && !file.path.startsWith(rule.folder));
  if (kept !== undefined) return `only ${kept.folder} may import ${name}`;
  if (packages.shipped.includes(name)) return undefined;
  if (!packages.tools.includes(name)) return `${name} is not in package.json`;
  // The web's tools build it; what they import does not run with the program.
  if (isTest(file.path) || file.part === "web") return undefined;
  return `${name} is a tool of development (devDependencies), not a part of the program`;
}

function checkImports(root: string, file: SourceFile, packages: Packages): Violation[] {
  return file.imports.flatMap(({ specifier, line }) => {
    const sentence = specifier.startsWith(".")
      ? checkRelative(file, targetOf(root, file, specifier))
      : checkPackage(file, specifier, packages);
    return sentence === undefined
      ? []
      : [{ file: file.path, line, sentence: `imports "${specifier}": ${sentence}` }];
  });
}

/** One violation for each cycle that a walk in depth meets, at the import that closes it. */
function findCycles(root: string, files: readonly SourceFile[]): Violation[] {
  const byPath = new Map(files.map((file) => [file.path, file]));
  const done = new Set<string>();
  const trail: string[] = [];
  const found: Violation[] = [];

  function walk(file: SourceFile): void {
    trail.push(file.path);
    for (const { specifier, line } of file.imports) {
      if (!specifier.startsWith(".")) continue;
      const target = targetOf(root, file, specifier);
      const at = trail.indexOf(target);
      if (at >= 0) {
        const cycle = [...trail.slice(at), target].join(" → ");
        found.push({ file: file.path, line, sentence: `imports "${specifier}": closes the cycle ${cycle}` });
        continue;
      }
      const next = byPath.get(target);
      if (next !== undefined && !done.has(target)) walk(next);
    }
    trail.pop();
    done.add(file.path);
  }

  for (const file of files) if (!done.has(file.path)) walk(file);
  return found;
}

/** Every forbidden import and every cycle among the sources under `root`. */
export function checkBoundaries(root: string): { readonly files: number; readonly violations: Violation[] } {
  const files = readSources(root);
  const packages = readPackages(root);
  const violations = files.flatMap((file) => checkImports(root, file, packages));
  return { files: files.length, violations: [...violations, ...findCycles(root, files)] };
}

if (import.meta.main) {
  const { files, violations } = checkBoundaries(resolve(process.argv[2] ?? join(import.meta.dir, "..")));
  for (const { file, line, sentence } of violations) console.error(`${file}:${line}: ${sentence}`);
  console.log(`boundaries: ${files} files, ${violations.length} forbidden imports or cycles`);
  // Finding no source at all means that it looked in the wrong place.
  process.exit(violations.length > 0 || files === 0 ? 1 : 0);
}
