import { describe, expect, test } from "bun:test";
import { z } from "zod";
import { describeConfig, loadConfig } from "./config.ts";
import {
  booleanField,
  cpuField,
  durationField,
  integerField,
  listField,
  sizeField,
} from "./config-fields.ts";
import { isBerthError } from "./errors.ts";

const schema = z.object({
  managerUrl: z.string().describe("Address of the manager."),
  dataDir: z.string().default("/var/lib/x"),
  scratchSize: sizeField().default(10),
  reservedCpu: cpuField().default(0),
  wait: durationField().optional(),
  behindProxy: booleanField().default(false),
  workers: integerField(1, 8).default(2),
  hosts: listField().default([]),
});

function load(options: { argv?: string[]; env?: Record<string, string>; toml?: string }) {
  return loadConfig({
    schema,
    argv: options.argv ?? [],
    env: options.env ?? {},
    file: options.toml === undefined ? undefined : "/etc/x.toml",
    aliases: { manager: "managerUrl" },
    booleans: ["behindProxy"],
    envPrefixes: ["BERTH_AGENT_", "BERTH_"],
    readFile: () => options.toml ?? "",
  });
}

function refusal(run: () => unknown): { code: string; message: string; field: string | undefined } {
  try {
    run();
  } catch (err) {
    if (isBerthError(err)) return { code: err.code, message: err.message, field: err.field };
    throw err;
  }
  throw new Error("it was accepted");
}

describe("layers", () => {
  test("a flag wins over a variable, a variable over the file, the file over the default", () => {
    const { value, sources } = load({
      argv: ["--manager", "https://flag"],
      env: { BERTH_MANAGER_URL: "https://env", BERTH_DATA_DIR: "/env" },
      toml: 'manager = "https://file"\ndata_dir = "/file"\nscratch-size = "1g"',
    });
    expect(value).toMatchObject({
      managerUrl: "https://flag",
      dataDir: "/env",
      scratchSize: 2 ** 30,
      workers: 2,
    });
    expect(sources).toMatchObject({
      managerUrl: "flag --manager",
      dataDir: "variable BERTH_DATA_DIR",
      scratchSize: "file /etc/x.toml",
      workers: "default",
    });
  });

  test("the role's own variable wins over the common one, an empty one counts as absent", () => {
    const env = { BERTH_AGENT_DATA_DIR: "/agent", BERTH_DATA_DIR: "/common", BERTH_AGENT_MANAGER_URL: "" };
    const { value } = load({ argv: ["--manager=m"], env });
    expect(value.dataDir).toBe("/agent");
    expect(value.managerUrl).toBe("m");
  });

  test("sizes, durations and CPU are told as they are written, defaults too", () => {
    const toml = 'manager = "https://x"\nwait = "720h"\nreserved-cpu = 0.5\nscratch-size = 16777216';
    expect(load({ toml }).written).toEqual({ scratchSize: "16m", wait: "30d", reservedCpu: "0.5" });
    expect(load({ argv: ["--manager", "x"] }).written).toEqual({ scratchSize: "10", reservedCpu: "0" });
  });

  test("booleans, numbers and lists are read from text and from typed values", () => {
    const { value } = load({
      argv: ["--manager", "m", "--behind-proxy", "--hosts", "a", "--hosts", "b,c", "--reserved-cpu", "500m"],
      toml: 'workers = 3\nwait = "90s"',
    });
    expect(value).toMatchObject({ behindProxy: true, workers: 3, wait: 90_000, reservedCpu: 500 });
    expect(value.hosts).toEqual(["a", "b", "c"]);
    expect(
      load({ argv: ["--manager", "m", "--no-behind-proxy"], toml: "behind-proxy = true" }).value.behindProxy,
    ).toBe(false);
  });
});

describe("refusals name the key", () => {
  const cases: [string, Parameters<typeof load>[0], string, string][] = [
    ["missing", {}, "managerUrl", "manager-url is needed"],
    ["unknown flag", { argv: ["--nope", "1"] }, "nope", "--nope is not a known option"],
    ["unknown key", { argv: ["--manager", "m"], toml: "nope = 1" }, "nope", "nope in /etc/x.toml"],
    ["bad size", { argv: ["--manager", "m", "--scratch-size", "1.1"] }, "scratchSize", "scratch-size (flag"],
    [
      "bad boolean",
      { argv: ["--manager", "m"], env: { BERTH_BEHIND_PROXY: "maybe" } },
      "behindProxy",
      "true or",
    ],
    ["out of range", { argv: ["--manager", "m"], toml: "workers = 9" }, "workers", "between 1 and 8"],
    ["no value", { argv: ["--manager"] }, "manager", "--manager needs a value"],
    ["twice", { toml: 'manager = "a"\nmanager-url = "b"' }, "manager-url", "given twice"],
    ["not TOML", { argv: ["--manager", "m"], toml: "= 1" }, "config", "not valid TOML"],
    ["one value only", { argv: ["--manager", "a", "--manager", "b"] }, "managerUrl", "manager-url (flag"],
  ];
  for (const [name, options, field, words] of cases) {
    test(name, () => {
      const refused = refusal(() => load(options));
      expect(refused.code).toBe("invalid-config");
      expect(refused.field).toBe(field);
      expect(refused.message).toContain(words);
    });
  }

  test("a stray word is refused", () => {
    expect(refusal(() => load({ argv: ["word"] })).message).toContain('"word" is not expected');
  });

  test("a file that was named must exist, the usual one need not", () => {
    const absent = { schema, env: { BERTH_MANAGER_URL: "m" }, file: "/nonexistent/x.toml" };
    expect(loadConfig({ ...absent, argv: [] }).value.managerUrl).toBe("m");
    const refused = refusal(() => loadConfig({ ...absent, argv: ["--config", "/nonexistent/y.toml"] }));
    expect(refused.message).toContain("/nonexistent/y.toml cannot be read");
  });
});

test("help lists each key with its variable", () => {
  expect(describeConfig(schema)).toContain("--manager-url");
  expect(describeConfig(schema)).toContain("BERTH_MANAGER_URL");
  expect(describeConfig(schema)).toContain("Address of the manager.");
});
