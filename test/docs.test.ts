import { expect, test } from "bun:test";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import manifest from "../package.json";
import { agentConfig } from "../src/agent/config.ts";
import { kebab } from "../src/kit/config.ts";
import { managerConfig } from "../src/manager/config.ts";

const root = join(import.meta.dir, "..");
const read = (path: string) => readFileSync(join(root, path), "utf8");

test("every package has a line that says what it is for", () => {
  const text = read("docs/dependencies.md");
  const names = [...Object.keys(manifest.dependencies), ...Object.keys(manifest.devDependencies)];
  const told = (name: string) => text.includes(`\`${name}\``) || name.startsWith("@types/");
  expect(names.filter((name) => !told(name))).toEqual([]);
});

test("every key of the configuration is told", () => {
  const text = read("docs/configuration.md");
  const keys = [managerConfig, agentConfig].flatMap((schema) => Object.keys(schema.shape).map(kebab));
  expect(keys.filter((key) => !text.includes(`\`${key}\``))).toEqual([]);
});

test("links between the documents lead somewhere", () => {
  const pages = ["README.md", ...readdirSync(join(root, "docs")).map((name) => `docs/${name}`)];
  const broken = pages
    .filter((page) => page.endsWith(".md"))
    .flatMap((page) =>
      [...read(page).matchAll(/\]\((?!https?:|#)([^)#]+)/g)]
        .map((match) => match[1] ?? "")
        .filter((target) => !existsSync(join(root, dirname(page), target)))
        .map((target) => `${page}: ${target}`),
    );
  expect(broken).toEqual([]);
});
