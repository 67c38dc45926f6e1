import { afterAll, describe, expect, test } from "bun:test";
import { copyFileSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const here = import.meta.dir;
const folderOfPids = mkdtempSync(join(tmpdir(), "berth-pids-"));
afterAll(() => rmSync(folderOfPids, { recursive: true, force: true }));

async function script(name: string, ...argv: string[]) {
  const child = Bun.spawn([join(here, name), ...argv], { stdin: "ignore", stdout: "pipe", stderr: "pipe" });
  const [out, err] = await Promise.all([
    new Response(child.stdout).text(),
    new Response(child.stderr).text(),
  ]);
  return { code: await child.exited, out, err };
}

describe("install.sh refuses before it does anything", () => {
  test.each([
    [["--frobnicate"], "unknown option --frobnicate"],
    [["--binary"], "--binary needs a value"],
    [["--agent"], "--agent needs --manager URL"],
    [["--agent", "--manager", "https://lab:7410"], "--agent needs --token"],
    [["--agent", "--manager", "lab", "--token", "t"], "such as https://lab-server:7410"],
    [
      ["--agent", "--manager", "https://lab", "--token", "t", "--listen", "0.0.0.0:1"],
      "an agent listens on nothing",
    ],
    [["--token", "t"], "go with --agent"],
    [["--listen", "7410"], "--listen takes ADDR:PORT"],
    [["--data-dir", "relative"], "must be an absolute path"],
    [["--data-dir", "/"], "cannot be the data folder"],
    [["--data-dir", "/srv/../etc"], "may not climb"],
    [["--data-dir", '/srv/a"b'], "may hold letters"],
    [["--listen", '0.0.0.0:1"'], "may hold letters"],
  ])("%j", async (argv, sentence) => {
    const { code, out, err } = await script("install.sh", ...argv);
    expect(err).toContain(sentence);
    expect([code, out]).toEqual([1, ""]);
  });

  test("uninstall.sh too", async () => {
    expect(await script("uninstall.sh", "--purgee")).toMatchObject({ code: 1, out: "" });
    expect(await script("uninstall.sh", "--data-dir", "/")).toMatchObject({ code: 1, out: "" });
  });

  test("--help tells every option", async () => {
    for (const name of ["install.sh", "uninstall.sh"]) {
      const { code, out } = await script(name, "--help");
      const options = readFileSync(join(here, name), "utf8").matchAll(/^ {6}(--[\w-]+)(?: \| -h)?\)/gm);
      expect(code).toBe(0);
      for (const option of options)
        expect(out + (option[1] === "--help" ? "--help" : "")).toContain(option[1] ?? "?");
    }
  });
});

test("a stale pid file is no process of ours, and nothing is said of it", async () => {
  const child = Bun.spawn(
    [
      "bash",
      "-c",
      `. "${here}/lib.sh"; mkdir -p "$data_dir/agent"; echo 4194305 >"$(pid_file agent)"; running_pid agent`,
    ],
    { env: { ...process.env, here, prefix: "/x", data_dir: folderOfPids }, stdout: "pipe", stderr: "pipe" },
  );
  const said = (await new Response(child.stdout).text()) + (await new Response(child.stderr).text());
  expect([await child.exited, said]).toEqual([1, ""]);
});

test("--find of the toolchain fetches nothing", async () => {
  const checkout = mkdtempSync(join(tmpdir(), "berth-toolchain-"));
  mkdirSync(join(checkout, "installer"));
  for (const name of ["package.json", "installer/toolchain.sh"])
    copyFileSync(join(here, "..", name), join(checkout, name));
  const child = Bun.spawn([join(checkout, "installer/toolchain.sh"), "--find"], { stdout: "pipe" });
  expect([await child.exited, (await new Response(child.stdout).text()).trim()]).toEqual([0, ""]);
  expect(readdirSync(checkout).sort()).toEqual(["installer", "package.json"]);
  rmSync(checkout, { recursive: true });
});

describe("units", () => {
  const folder = join(here, "../systemd");
  const units = readdirSync(folder).filter((name) => name.endsWith(".service"));
  const settings = (name: string) =>
    readFileSync(join(folder, name), "utf8")
      .split("\n")
      .filter((line) => /^\w+=/.test(line));

  test("are those of the manager and the agent", () => {
    expect(units.sort()).toEqual(["berth-agent.service", "berth-manager.service"]);
  });

  test("the agent shares the engine's mounts: nothing gives its unit a mount namespace", () => {
    const own =
      /^(Private\w+|Protect\w+|ReadOnlyPaths|ReadWritePaths|InaccessiblePaths|ExecPaths|NoExecPaths|BindPaths|BindReadOnlyPaths|TemporaryFileSystem|Root\w+|MountFlags|MountAPIVFS|MountImages|DynamicUser|RestrictNamespaces|LogNamespace)=/;
    expect(settings("berth-agent.service").filter((line) => own.test(line))).toEqual([]);
  });

  test.each(["berth-agent.service", "berth-manager.service"])(
    "%s keeps the JIT, our TMPDIR and a clean start",
    (name) => {
      const lines = settings(name);
      const scrubbed = lines.filter((line) => line.startsWith("UnsetEnvironment=")).join(" ");
      expect(lines.some((line) => line.startsWith("MemoryDenyWriteExecute="))).toBe(false);
      expect(lines.some((line) => /^Environment=TMPDIR=\/var\/lib\/berth\/\w+\/tmp$/.test(line))).toBe(true);
      for (const variable of ["BUN_OPTIONS", "BUN_BE_BUN", "NODE_OPTIONS"])
        expect(scrubbed).toContain(variable);
      expect(lines).toContain("Restart=always");
      expect(lines).toContain("NoNewPrivileges=yes");
    },
  );
});
