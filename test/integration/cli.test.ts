import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from "bun:test";
import { createHash } from "node:crypto";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { type BerthUp, startUp } from "./support/berth-up.ts";
import { DOCKER_SOCKET, hasEngine } from "./support/engine.ts";
import { openTerminal } from "./support/terminal.ts";

setDefaultTimeout(120_000);

describe.skipIf(!hasEngine)("the client against a real manager and node", () => {
  let up: BerthUp;
  const SMALL = ["--cpu", "0.2", "--mem", "64m", "--shm", "8m"];
  const run = (script: string, options: readonly string[] = []) =>
    up.berth(["run", ...SMALL, ...options, "--", "sh", "-c", script]);
  const json = async (...argv: string[]) => {
    const { stdout, stderr, code } = await up.berth([...argv, "--json"]);
    if (code !== 0) throw new Error(stderr);
    return JSON.parse(stdout);
  };

  beforeAll(async () => {
    up = await startUp();
    mkdirSync(up.home, { recursive: true });
    const login = await up.berth(["login", up.url, "--email", up.admin.email, "--password-stdin"], {
      stdin: up.admin.password,
    });
    if (login.code !== 0) throw new Error(login.stderr);
    const token = await up.berth(["token", "create", "tests"]);
    up.useToken(token.stdout.trim());
  });
  afterAll(async () => {
    // Whatever a failed test left running ends here, so that no container outlives the node.
    const live = up === undefined ? [] : await json("ps").catch(() => []);
    const names = live.map(({ name }: { name: string }) => name);
    if (names.length > 0) await up.berth(["rm", "--force", "--wait", ...names]);
    await up?.stop();
  });

  describe("run", () => {
    test.each<[string, string, number]>([
      ["0", "true", 0],
      ["the command's", "exit 3", 3],
      ["255", "exit 255", 255],
      ["128+n of a signal", "kill -SEGV $$", 139],
    ])("exit code: %s", async (_, script, code) => {
      expect((await run(script)).code).toBe(code);
    });

    test("127 for what is not there and 126 for what cannot be executed", async () => {
      const missing = await up.berth(["run", ...SMALL, "--", "/no/such/command"]);
      expect(missing.code).toBe(127);
      expect(missing.stderr).toContain("not found");
      const plain = await up.berth(["run", ...SMALL, "--", "/etc/passwd"]);
      expect(plain.code).toBe(126);
    });

    test("124 and words when the time is over", async () => {
      const { code, stderr, stdout } = await run("echo begun; sleep 60", ["--timeout", "2s"]);
      expect([code, stdout]).toEqual([124, "begun\n"]);
      expect(stderr).toContain("2s");
    });

    test("137 and words when memory runs out", async () => {
      const { code, stderr } = await run("x=$(head -c 300m /dev/zero | tr '\\0' x); echo done");
      expect(code).toBe(137);
      expect(stderr).toContain("Memory ran out");
      expect(stderr).toContain("64 MiB");
    });

    test("125 and the reason when Berth refuses", async () => {
      const image = await up.berth(["run", "--image", "no/such-image:1", "--", "true"]);
      expect(image.code).toBe(125);
      expect(image.stderr).toMatch(/no\/such-image.*\[[a-z-]+\]/);
      const huge = await up.berth(["run", "--mem", "900t", "--", "true"]);
      expect(huge.code).toBe(125);
      expect(huge.stderr).toMatch(/900 TiB/);
      const name = await up.berth(["run", "--name", "abc", "--", "true"]);
      expect(name.code).toBe(125);
      expect(name.stderr).toContain("4 to 64");
    });

    test("output comes byte for byte, each stream on its own", async () => {
      const child = up.spawn([
        "run",
        ...SMALL,
        "--",
        "sh",
        "-c",
        "head -c 3000000 /dev/urandom | tee /tmp/x; sha256sum </tmp/x >&2",
      ]);
      const [buffer, stderr, code] = await Promise.all([
        new Response(child.stdout).arrayBuffer(),
        new Response(child.stderr).text(),
        child.exited,
      ]);
      expect(code).toBe(0);
      const bytes = new Uint8Array(buffer);
      expect(bytes.length).toBe(3_000_000);
      expect(stderr.split(" ")[0]).toBe(createHash("sha256").update(bytes).digest("hex"));
    });

    test("an argument vector arrives as it is, and --shell is for a shell", async () => {
      const argv = await up.berth([
        "run",
        ...SMALL,
        "--",
        "printf",
        "%s|",
        "a b",
        "$HOME",
        "",
        "--json",
        "*",
      ]);
      expect(argv.stdout).toBe("a b|$HOME||--json|*|");
      const shell = await up.berth(["run", ...SMALL, "--shell", "echo $HOME | tr a-z A-Z"]);
      expect(shell.stdout).toBe("/HOME/WORK\n");
    });

    test("variables come from -e, from the caller and from a file", async () => {
      const file = join(up.home, "env");
      writeFileSync(file, "# comment\nFROM_FILE=1\nBOTH=file\n");
      const argv = ["run", ...SMALL, "-e", "BOTH=word", "-e", "HERE", "--env-file", file, "--", "sh", "-c"];
      const script =
        'echo "$FROM_FILE $BOTH $HERE $BERTH_SESSION_NAME $BACKENDAI_SESSION_NAME $OMP_NUM_THREADS"';
      const { stdout } = await up.berth([...argv, script, "x"], { env: { HERE: "caller's" } });
      const [fromFile, both, here, name, same, threads] = stdout.trim().split(" ");
      expect([fromFile, both, here, threads]).toEqual(["1", "word", "caller's", "1"]);
      expect(name).toMatch(/^[\w.-]{4,64}$/);
      expect(same).toBe(name ?? "");
      const refused = await run("true", ["-e", "BERTH_SESSION_NAME=mine"]);
      expect(refused.code).toBe(125);
      expect(refused.stderr).toContain("BERTH_SESSION_NAME");
    });

    test("--detach prints the name; logs and show have the rest, also after the end", async () => {
      const detached = await run("for i in 1 2 3; do echo line $i; sleep 0.2; done; echo err >&2; exit 5", [
        "--detach",
        "--name",
        "detached-1",
      ]);
      expect(detached).toEqual({ code: 0, stdout: "detached-1\n", stderr: "" });
      const followed = await up.berth(["logs", "-f", "detached-1"]);
      expect(followed).toEqual({ code: 0, stdout: "line 1\nline 2\nline 3\n", stderr: "err\n" });
      const after = await up.berth(["logs", "--tail", "2", "detached-1"]);
      expect(after.stdout + after.stderr).toBe("line 3\nerr\n");
      const session = await json("show", "detached-1");
      expect(session).toMatchObject({
        name: "detached-1",
        type: "batch",
        status: "TERMINATED",
        exitCode: 5,
        result: "FAILURE",
        image: "host",
        group: "default",
        queuePosition: null,
        slots: { cpu: 200, mem: 64 * 2 ** 20, shm: 8 * 2 ** 20 },
      });
      for (const key of ["id", "statusReason", "agent", "createdAt", "startedAt", "endedAt"]) {
        expect([key, typeof session[key]]).toEqual([key, "string"]);
      }
      const history = await json("history", "detached-1");
      expect(history[0]).toMatchObject({ from: null, to: "PENDING", actor: up.admin.email });
      expect(history.at(-1)).toMatchObject({ to: "TERMINATED" });
      for (const entry of history)
        expect(Object.keys(entry)).toEqual(expect.arrayContaining(["at", "from", "to", "reason", "actor"]));
    });

    test("137 when somebody ends the session", async () => {
      const child = up.spawn(["run", ...SMALL, "--name", "to-end", "--", "sh", "-c", "echo up; sleep 100"]);
      const reader = child.stdout.getReader();
      await reader.read();
      expect((await up.berth(["rm", "to-end"])).stdout).toBe("to-end\n");
      expect(await child.exited).toBe(137);
    });

    test("Ctrl-C ends the session: 130", async () => {
      const child = up.spawn(["run", ...SMALL, "--name", "ctrl-c-1", "--", "sh", "-c", "echo up; sleep 100"]);
      await child.stdout.getReader().read();
      child.kill("SIGINT");
      expect(await child.exited).toBe(130);
      expect(await json("show", "ctrl-c-1")).toMatchObject({ status: "TERMINATED", exitCode: 137 });
    });

    test("a second Ctrl-C leaves it", async () => {
      const child = up.spawn([
        "run",
        ...SMALL,
        "--name",
        "ctrl-c-2",
        "--",
        "sh",
        "-c",
        "trap '' TERM; echo up; sleep 100",
      ]);
      await child.stdout.getReader().read();
      const stderr = child.stderr.getReader();
      child.kill("SIGINT");
      await stderr.read();
      child.kill("SIGINT");
      expect(await child.exited).toBe(130);
      await up.berth(["rm", "--force", "ctrl-c-2"]);
    });

    test("a waiting session ends at once: 137, and shows why it waited", async () => {
      const child = up.spawn(["run", ...SMALL, "--start-at", "+1h", "--name", "waiting-1", "--", "true"]);
      for (;;) {
        const { code, stdout } = await up.berth(["show", "waiting-1", "--json"]);
        if (code === 0) {
          expect(JSON.parse(stdout)).toMatchObject({ status: "PENDING", queuePosition: null });
          break;
        }
      }
      await up.berth(["rm", "waiting-1"]);
      expect(await child.exited).toBe(137);
      expect(await json("show", "waiting-1")).toMatchObject({ status: "CANCELLED" });
    });

    test("--count runs all of them", async () => {
      const { code, stdout } = await run("echo hello", ["--count", "3", "--name", "many"]);
      expect(code).toBe(0);
      expect(stdout.trim().split("\n").sort()).toEqual(["many-1: hello", "many-2: hello", "many-3: hello"]);
    });

    test("attach and events show what happens from now on", async () => {
      const events = up.spawn(["events", "--kind", "session.status", "--json"]);
      const script = "until [ -e /tmp/go ]; do echo tick; sleep 0.2; done; echo over; exit 4";
      await run(script, ["--detach", "--name", "watched"]);
      while ((await json("show", "watched")).status !== "RUNNING") await Bun.sleep(100);
      const attached = up.spawn(["attach", "watched"]);
      const reader = attached.stdout.getReader();
      let shown = "";
      for (let part = await reader.read(); !part.done; part = await reader.read()) {
        if (shown === "") await up.berth(["exec", "watched", "--", "touch", "/tmp/go"]);
        shown += Buffer.from(part.value).toString();
      }
      expect(shown).toMatch(/^(tick\n)+over\n$/);
      await attached.exited;
      let seen = "";
      for await (const chunk of events.stdout) {
        seen += new TextDecoder().decode(chunk);
        if (seen.includes('"TERMINATED"')) break;
      }
      events.kill();
      const kinds = seen
        .trim()
        .split("\n")
        .map((line) => JSON.parse(line));
      expect(kinds.map(({ data }) => data.status)).toEqual(expect.arrayContaining(["RUNNING", "TERMINATED"]));
      for (const { seq, kind } of kinds) expect([typeof seq, kind]).toEqual(["number", "session.status"]);
    });

    test("on a terminal the waiting is shown on one line that goes away", async () => {
      const argv = [process.execPath, up.main, "run", ...SMALL, "--start-at", "+2s", "--", "echo", "hello"];
      const terminal = openTerminal(argv, { env: up.clientEnv({ TERM: "xterm" }) });
      await terminal.until("is PENDING");
      await terminal.until("\u001b[2K");
      await terminal.until("hello");
      expect(await terminal.exited).toBe(0);
      expect(terminal.shown().endsWith("\u001b[2Khello\r\n")).toBe(true);
      terminal.close();
    });

    test("a reader that goes away ends the session", async () => {
      const command = `${process.execPath} ${up.main} run ${SMALL.join(" ")} --name piped-1 -- yes | head -c 1000 | wc -c`;
      const child = Bun.spawn(["bash", "-c", command], {
        stdout: "pipe",
        stderr: "pipe",
        env: up.clientEnv(),
      });
      expect((await new Response(child.stdout).text()).trim()).toBe("1000");
      await child.exited;
      expect((await json("show", "piped-1")).status).toMatch(/TERMINATING|TERMINATED/);
      await up.berth(["rm", "--wait", "piped-1"]);
    });
  });

  test("output goes on at the same byte over a crash of the manager", async () => {
    const script = "for i in $(seq 1 40); do echo line $i; sleep 0.25; done; exit 9";
    const child = up.spawn(["run", ...SMALL, "--", "sh", "-c", script]);
    let stdout = "";
    const decoder = new TextDecoder();
    let crashed: Promise<void> | undefined;
    for await (const chunk of child.stdout) {
      stdout += decoder.decode(chunk);
      if (stdout.includes("line 5\n")) crashed ??= up.crash().then(up.start);
    }
    await crashed;
    expect(await child.exited).toBe(9);
    expect(stdout).toBe(Array.from({ length: 40 }, (_, index) => `line ${index + 1}\n`).join(""));
  });

  describe("interactive sessions", () => {
    const NAME = "lab-1";
    beforeAll(async () => {
      const started = await up.berth(["start", ...SMALL, "--name", NAME]);
      expect(started).toEqual({ code: 0, stdout: `${NAME}\n`, stderr: "" });
    });
    afterAll(async () => {
      await up.berth(["rm", "--wait", NAME]);
    });

    test("ps lists it and show has its fields", async () => {
      const list = await json("ps");
      const found = list.find((session: { name: string }) => session.name === NAME);
      expect(found).toMatchObject({
        type: "interactive",
        status: "RUNNING",
        exitCode: null,
        result: "UNDEFINED",
      });
      const table = await up.berth(["ps"]);
      expect(table.stdout).toMatch(/lab-1 +interactive +RUNNING/);
    });

    test.each<[string[], number]>([
      [["true"], 0],
      [["sh", "-c", "exit 7"], 7],
      [["/no/such/command"], 127],
      [["/etc/passwd"], 126],
    ])("exec %p gives %p", async (argv, code) => {
      expect((await up.berth(["exec", NAME, "--", ...argv])).code).toBe(code);
    });

    test("exec keeps streams apart, takes variables and a folder", async () => {
      const argv = [
        "exec",
        "-e",
        "A=b c",
        "-w",
        "/tmp",
        NAME,
        "--",
        "sh",
        "-c",
        'echo "$A $(pwd)"; echo err >&2',
      ];
      expect(await up.berth(argv)).toEqual({ code: 0, stdout: "b c /tmp\n", stderr: "err\n" });
    });

    test("exec passes megabytes through, both ways, and the end of stdin", async () => {
      const input = Buffer.alloc(5_000_000).map((_, index) => (index * 31) % 256);
      const child = up.spawn(["exec", "-i", NAME, "--", "cat"], { stdin: input });
      const bytes = new Uint8Array(await new Response(child.stdout).arrayBuffer());
      expect(await child.exited).toBe(0);
      expect(Buffer.from(bytes).equals(input)).toBe(true);
    });

    test("signals reach the command", async () => {
      const script = "trap 'echo got; exit 3' TERM; echo up; while :; do sleep 0.1; done";
      const child = up.spawn(["exec", NAME, "--", "sh", "-c", script]);
      const reader = child.stdout.getReader();
      await reader.read();
      child.kill("SIGTERM");
      expect(await child.exited).toBe(3);
    });

    test("what does not run cannot be entered: 125", async () => {
      const { code, stderr } = await up.berth(["exec", "no-such-session", "--", "true"]);
      expect(code).toBe(125);
      expect(stderr).toContain("no-such-session");
    });

    test("exec -it is a terminal: size, resize, Ctrl-C, raw input, and the terminal is put back", async () => {
      // The shell around it shows that the terminal is as it was.
      const script = [
        `${process.execPath} ${up.main} exec -it ${NAME} -- sh`,
        "echo code=$?",
        "stty -a | grep -ow -e '-\\?icanon' -e '-\\?echo'",
      ].join("; ");
      const terminal = openTerminal(["bash", "--norc", "-c", script], {
        env: up.clientEnv({ TERM: "xterm" }),
        cols: 91,
        rows: 33,
      });
      await terminal.until("$ ");
      // The engine sets the size a moment after the start.
      terminal.type("until stty size | grep '33 91'; do sleep 0.1; done; tty\r");
      await terminal.until("\n33 91\r\n/dev/pts/");
      terminal.resize(101, 44);
      terminal.type("sleep 0.3; stty size\r");
      await terminal.until("44 101");
      terminal.type("echo wait-$((1+1)); sleep 100\r");
      await terminal.until("wait-2");
      terminal.type("\u0003");
      await terminal.until("$ ");
      terminal.type("echo after-$?\r");
      await terminal.until("after-130");
      terminal.type("exit 6\r");
      await terminal.until("code=6");
      expect(await terminal.exited).toBe(0);
      expect(terminal.shown()).toMatch(/code=6\r\nicanon\r\necho\r\n$/);
      terminal.close();
    });

    test("rename and history", async () => {
      expect((await up.berth(["rename", NAME, "lab-2"])).stdout).toBe("lab-2\n");
      expect((await up.berth(["exec", "lab-2", "--", "true"])).code).toBe(0);
      await up.berth(["rename", "lab-2", NAME]);
    });
  });

  test("a start that cannot succeed fails with the reason", async () => {
    const { code, stderr, stdout } = await up.berth(["start", "--image", "no/such-image:1"]);
    expect([code, stdout]).toEqual([1, ""]);
    expect(stderr).toContain("no/such-image");
  });

  test("root on the machine needs no token for what concerns nodes and locked users", async () => {
    const env = { BERTH_URL: "", BERTH_TOKEN: "", HOME: "/nonexistent" };
    const local = (...argv: string[]) => up.berth([...argv, "--data-dir", up.dataDir], { env });
    expect((await local("user", "unlock", up.admin.email)).code).toBe(0);
    expect((await local("join-token", "create", "--ttl", "10m")).stdout).toMatch(/^bj1\.\S+\n$/);
    expect(JSON.parse((await local("node", "ls", "--json")).stdout)).toMatchObject([
      { status: "ALIVE", ready: true },
    ]);
    expect((await local("run", "--", "true")).code).toBe(125);
  });

  test("signing in, out, and what a signed-out client says", async () => {
    const env = { BERTH_URL: "", BERTH_TOKEN: "" };
    expect((await up.berth(["whoami"], { env })).stdout).toContain(up.admin.email);
    expect((await up.berth(["logout"], { env })).code).toBe(0);
    const out = await up.berth(["whoami"], { env });
    expect(out.code).toBe(1);
    expect(out.stderr).toContain("berth login");
    const argv = ["login", up.url, "--email", up.admin.email, "--password-stdin"];
    expect((await up.berth(argv, { env, stdin: "wrong" })).code).toBe(1);
  });

  test("nodes, groups, images, users, policies and tokens are listed as JSON", async () => {
    for (const family of ["node", "group", "image", "user", "policy", "token", "join-token"]) {
      expect(Array.isArray(await json(family, "ls"))).toBe(true);
      expect((await up.berth([family, "ls"])).code).toBe(0);
    }
    expect(await json("image", "show", "host")).toMatchObject({ reference: "host", kind: "host" });
    expect(await json("version")).toMatchObject({ manager: { apiVersion: 1 } });
  });

  test("no container of an ended session is left behind", async () => {
    const { manager } = await json("version");
    const filters = JSON.stringify({ label: [`berth.cluster=${manager.clusterId}`] });
    const containers = async (): Promise<string> => {
      const url = `http://engine/containers/json?all=1&filters=${encodeURIComponent(filters)}`;
      return (await fetch(url, { unix: DOCKER_SOCKET })).text();
    };
    expect(await json("ps")).toEqual([]);
    while ((await containers()).trim() !== "[]") await Bun.sleep(200);
    const [node] = await json("node", "ls");
    expect(node.used).toEqual({ cpu: 0, mem: 0 });
  });
});
