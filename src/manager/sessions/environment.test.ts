import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { kernelId, sessionId, userId } from "../scheduling/fixtures.ts";
import {
  checkEnvironment,
  coreCount,
  type EnvironmentFacts,
  isReservedVariable,
  kernelEnvironment,
  MAX_ENVIRONMENT_BYTES,
  MAX_VARIABLE_BYTES,
} from "./environment.ts";

const environment = (over: Partial<EnvironmentFacts> = {}) =>
  kernelEnvironment({
    sessionId: sessionId(1),
    sessionName: "train",
    kernelId: kernelId(2),
    image: "img:1",
    owner: { id: userId(3), email: "a@b.c", name: "Ada" },
    slots: { cpu: 2500, mem: 1 },
    preopenPorts: [8000, 8001],
    servicePorts: [{ name: "jupyter", protocol: "http", ports: [8888] }],
    corecountNames: [],
    imageNames: null,
    imageIsHost: false,
    nvidiaDevices: [],
    uid: 1000,
    user: {},
    ...over,
  });

describe("the environment of a kernel", () => {
  test("tells both families of names", () => {
    const env = environment();
    for (const prefix of ["BACKENDAI_", "BERTH_"]) {
      expect(env[`${prefix}SESSION_ID`]).toBe(sessionId(1));
      expect(env[`${prefix}SESSION_NAME`]).toBe("train");
      expect(env[`${prefix}KERNEL_ID`]).toBe(kernelId(2));
      expect(env[`${prefix}USER_EMAIL`]).toBe("a@b.c");
      expect(env[`${prefix}PREOPEN_PORTS`]).toBe("8000,8001");
      expect(env[`${prefix}SERVICE_PORTS`]).toBe("jupyter:http:8888");
      expect(env[`${prefix}CLUSTER_HOST`]).toBe("main1");
      expect(env[`${prefix}CLUSTER_REPLICAS`]).toBe("main:1");
    }
  });
  test("thread counts are the whole cores, at least one, and a person's own go before", () => {
    expect(environment().OMP_NUM_THREADS).toBe("2");
    expect(environment({ slots: { cpu: 500, mem: 1 } }).MKL_NUM_THREADS).toBe("1");
    expect(environment({ corecountNames: ["MY_CORES"] }).MY_CORES).toBe("2");
    const own = environment({ user: { OMP_NUM_THREADS: "7" } });
    expect([own.OMP_NUM_THREADS, own.MKL_NUM_THREADS]).toEqual(["7", "2"]);
    expect([99, 1000, 1999, 2000].map(coreCount)).toEqual([1, 1, 1, 2]);
  });
  test("home and user are those of the account, and a person's own go before", () => {
    const of = ({ HOME, USER, LOGNAME }: Readonly<Record<string, string>>) => [HOME, USER, LOGNAME];
    expect(of(environment())).toEqual(["/home/work", "work", "work"]);
    expect(of(environment({ uid: 0 }))).toEqual(["/home/work", "root", "root"]);
    expect(of(environment({ user: { HOME: "/x", USER: "kim" } }))).toEqual(["/x", "kim", "work"]);
  });
  test("the language is set only where the image is known to set none", () => {
    expect(environment().LANG).toBeUndefined();
    expect(environment({ imageIsHost: true }).LANG).toBe("C.UTF-8");
    expect(environment({ imageNames: new Set(["PATH"]) }).LANG).toBe("C.UTF-8");
    expect(environment({ imageNames: new Set(["LANG"]) }).LANG).toBeUndefined();
  });
  test("devices are hidden from who has none, whatever they or the image say", () => {
    const corecountNames = ["NVIDIA_VISIBLE_DEVICES"];
    expect(
      environment({ user: { NVIDIA_VISIBLE_DEVICES: "all" }, corecountNames }).NVIDIA_VISIBLE_DEVICES,
    ).toBe("void");
    expect(environment({ nvidiaDevices: ["GPU-1", "GPU-2"] }).NVIDIA_VISIBLE_DEVICES).toBe("GPU-1,GPU-2");
  });
  test("nothing that a person sets changes what is forced", () => {
    const plain = environment();
    const forced = Object.keys(plain).filter(isReservedVariable);
    expect(forced.length).toBeGreaterThan(30);
    const user = fc.dictionary(fc.constantFrom(...forced, "HOME", "X", "A B"), fc.string());
    fc.assert(
      fc.property(user, (given) => {
        const env = environment({ user: given });
        expect(forced.map((name) => env[name])).toEqual(forced.map((name) => plain[name]));
        expect(env["A B"]).toBeUndefined();
        if (given.X !== undefined) expect(env.X).toBe(given.X);
      }),
    );
  });
});

describe("what a person may set", () => {
  const codes = (env: Record<string, string>) => checkEnvironment(env).map((r) => r.code);
  test("names", () => {
    expect(codes({ A: "", _b1: "x", LD_PRELOAD: "/x.so", PATH: "/bin" })).toEqual([]);
    for (const name of ["", "1A", "A-B", "A B", "A=B", "Ä", "A\0"]) {
      expect(codes({ [name]: "x" })).toEqual(["invalid-env-name"]);
    }
    for (const name of ["BERTH_X", "BACKENDAI_SESSION_ID", "NVIDIA_VISIBLE_DEVICES"]) {
      expect(codes({ [name]: "x" })).toEqual(["reserved-env"]);
    }
  });
  test("values are text without NUL", () => {
    expect(codes({ A: "한글\n\t" })).toEqual([]);
    expect(codes({ A: "a\0b" })).toEqual(["invalid-env-value"]);
    expect(codes({ A: "\ud800" })).toEqual(["invalid-env-value"]);
  });
  test("one variable and all together are bounded in bytes", () => {
    expect(codes({ A: "x".repeat(MAX_VARIABLE_BYTES - 2) })).toEqual([]);
    expect(codes({ A: "x".repeat(MAX_VARIABLE_BYTES - 1) })).toEqual(["env-too-large"]);
    const half = "가".repeat(MAX_ENVIRONMENT_BYTES / 3 / 3);
    expect(codes({ A: half, B: half })).toEqual([]);
    expect(codes({ A: half, B: half, C: half })).toEqual(["env-too-large"]);
  });
});
