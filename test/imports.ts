export type Import = { readonly specifier: string; readonly line: number };

// The scanner of Bun knows comments, strings and templates, but leaves out what is imported for types
// alone; so these are first written as imports of values. TypeScript 7 has no parser to call in their place.
function typesAsValues(source: string): string {
  return source
    .replace(/\bimport\s+type\s+(?=[\w{*])/g, "import ")
    .replace(/\bexport\s+type\s+(?=[{*])/g, "export ")
    .replace(
      /\b(import|export)(\s*(?:\w+\s*,\s*)?)\{([^{}]*)\}(\s*from)/g,
      (_all, verb, between, names, from) => {
        return `${verb}${between}{${String(names).replace(/\btype\s+(?=\w)/g, "")}}${from}`;
      },
    );
}

const IN_TYPE = /\bimport\(\s*["']([^"'\n]+)["']\s*\)/g;

/** Every module that a TypeScript source names: static, dynamic, re-exported, and for types alone. */
export function findImports(path: string, source: string): Import[] {
  const loader = path.endsWith("x") ? "tsx" : "ts";
  const scanned = new Bun.Transpiler({ loader }).scanImports(typesAsValues(source)).map(({ path }) => path);
  const inTypes = [...source.matchAll(IN_TYPE)].map((match) => match[1] ?? "");
  return [...new Set([...scanned, ...inTypes])].map((specifier) => {
    const before = source.slice(0, Math.max(source.search(quoted(specifier)), 0));
    return { specifier, line: before.split("\n").length };
  });
}

function quoted(specifier: string): RegExp {
  return new RegExp(`["']${specifier.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")}["']`);
}
