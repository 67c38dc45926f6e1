import { describe, expect, test } from "bun:test";
import { completionScript } from "./completion.ts";
import { cli, fakeManager, SESSION } from "./testing.ts";
import { treeOf } from "./tree.ts";

const tree = treeOf();

/** What bash offers for a line, with `berth __complete KIND` answering `name-of-KIND`. */
function offered(line: string): string[] {
  const words = line.split(" ");
  const script = `
berth() { [[ $1 == __complete ]] && echo "name-of-$2 other:$2"; }
${completionScript("bash", tree)}
COMP_WORDS=(${words.map((word) => `'${word}'`).join(" ")})
COMP_CWORD=${words.length - 1}
_berth
printf '%s\\n' "\${COMPREPLY[@]}"`;
  const { stdout, stderr } = Bun.spawnSync(["bash", "--norc", "-c", script]);
  expect(stderr.toString()).toBe("");
  return stdout.toString().split("\n").filter(Boolean);
}

describe("completion in bash", () => {
  test("commands, families and roles", () => {
    expect(offered("berth ")).toEqual(expect.arrayContaining(["run", "image", "up", "join-token"]));
    expect(offered("berth ")).not.toContain("__complete");
    expect(offered("berth re")).toEqual(["rename"]);
    expect(offered("berth image p")).toEqual(["pull"]);
  });

  test("options of the command that is written", () => {
    expect(offered("berth run --de")).toEqual(["--detach"]);
    expect(offered("berth node set x --sch")).toEqual(["--schedulable"]);
    expect(offered("berth node set x --schedulable ")).toEqual(["on", "off"]);
  });

  test("names come from the manager", () => {
    expect(offered("berth show ")).toEqual(["name-of-sessions", "other:sessions"]);
    expect(offered("berth exec -it n")).toEqual(["name-of-running"]);
    expect(offered("berth run --image ")).toContain("name-of-images");
    expect(offered("berth node rm ")).toContain("name-of-nodes");
  });

  test("the command behind -- is left to the shell", () => {
    expect(offered("berth run -- --de")).toEqual([]);
  });
});

test.skipIf(Bun.which("zsh") === null)("zsh offers the same", () => {
  const offer = (line: string) => {
    const words = line.split(" ");
    const script = `
compdef() { : }
compadd() { shift; print -l -- "$@" }
berth() { print "name-of-$2" }
${completionScript("zsh", tree)}
words=(${words.map((word) => `'${word}'`).join(" ")})
CURRENT=${words.length}
_berth
whence -p ls >/dev/null || print "PATH is gone"`;
    const { stdout, stderr } = Bun.spawnSync(["zsh", "-f", "-c", script]);
    expect(stderr.toString()).toBe("");
    return stdout.toString().split("\n").filter(Boolean);
  };
  expect(offer("berth image ")).toEqual(["ls", "show", "add", "rm", "pull"]);
  expect(offer("berth show ")).toEqual(["name-of-sessions"]);
  expect(offer("berth node set x --schedulable ")).toEqual(["on", "off"]);
  expect(offer("berth run -- -")).toEqual([]);
});

test.each(["zsh", "fish"])("the script for %s names every command", (shell) => {
  const script = completionScript(shell, tree);
  for (const { name, commands } of tree.families) {
    for (const { usage } of commands) expect(script).toContain(`${name} ${usage.split(" ", 1)[0]}`);
  }
  const check = shell === "zsh" ? Bun.which("zsh") : Bun.which("fish");
  if (check !== null) {
    expect(Bun.spawnSync([check, "-n"], { stdin: Buffer.from(script) }).stderr.toString()).toBe("");
  }
});

test("an unknown shell is a usage fault that names the known ones", async () => {
  const { code, stderr } = await cli("http://127.0.0.1:1", ["completion", "tcsh"]);
  expect(code).toBe(2);
  expect(stderr).toContain("bash, zsh, fish");
});

test("names for completion are one on a line, and silence when the manager is not there", async () => {
  const manager = fakeManager({
    "sessions.list": () => ({ items: [SESSION, { ...SESSION, name: "calm-otter-2" }, SESSION], next: null }),
  });
  try {
    expect((await cli(manager.url, ["__complete", "sessions"])).stdout).toBe("calm-otter-1\ncalm-otter-2\n");
  } finally {
    await manager.stop();
  }
  const env = { BERTH_URL: "", BERTH_TOKEN: "" };
  const silent = await cli("", ["__complete", "sessions"], { env });
  expect([silent.code, silent.stdout, silent.stderr]).toEqual([0, "", ""]);
});

test("every command has a summary and, unless hidden, examples that parse as its own", () => {
  const all = [
    ...tree.commands.map((spec) => ({ spec, prefix: "berth" })),
    ...tree.families.flatMap(({ name, commands }) =>
      commands.map((spec) => ({ spec, prefix: `berth ${name}` })),
    ),
  ];
  for (const { spec, prefix } of all) {
    expect(spec.summary).not.toBe("");
    if (spec.hidden) continue;
    const own = spec.examples.some((example) => example.includes(`${prefix} ${spec.usage.split(" ", 1)[0]}`));
    expect([spec.usage, own]).toEqual([spec.usage, true]);
  }
});
