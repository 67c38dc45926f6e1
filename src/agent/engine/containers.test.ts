import { describe, expect, test } from "bun:test";
import { KernelSpec, MainProcess } from "../../wire/generated/berth.ts";
import { containerEnvironment, containerOptions, mainCommand } from "./containers.ts";
import { KEEP_ALIVE_PATH } from "./keep-alive.ts";

const owner = {
  clusterId: "0190a000-0000-7000-8000-000000000001",
  agentId: "0190a000-0000-7000-8000-0000deadbeef",
};
const parts = {
  image: "lab/python:3",
  network: "berth-deadbeef",
  scratch: { home: "/data/home", tmp: "/data/tmp" },
  keepAlive: "/data/run/keep-alive",
  hostMounts: [],
  ulimits: [{ Name: "nofile", Soft: 10, Hard: 20 }],
};
const spec = (changes: Partial<KernelSpec> = {}): KernelSpec => ({
  ...KernelSpec.decode(new Uint8Array()),
  kernelId: "0190a000-0000-7000-8000-0000000000aa",
  sessionId: "0190a000-0000-7000-8000-0000000000bb",
  generation: 2,
  epoch: 5,
  image: "lab/python:3",
  main: MainProcess.SHELL,
  argv: ["echo hi"],
  cpuMilli: 500,
  memBytes: 2 ** 30,
  uid: 1000,
  gid: 1000,
  hostname: "main1",
  ownerId: "0190a000-0000-7000-8000-0000000000cc",
  ...changes,
});
const options = (changes: Partial<KernelSpec> = {}) => containerOptions(spec(changes), owner, parts);

describe("the main process", () => {
  test("replaces entry point and command of the image", () => {
    expect(mainCommand(spec())).toEqual({ entrypoint: ["/bin/sh", "-c", "echo hi"], cmd: [] });
    expect(mainCommand(spec({ main: MainProcess.ARGV, argv: ["ls", "-l"] }))).toEqual({
      entrypoint: ["ls", "-l"],
      cmd: [],
    });
    expect(mainCommand(spec({ main: MainProcess.KEEP_ALIVE, argv: [] }))).toEqual({
      entrypoint: [KEEP_ALIVE_PATH],
      cmd: [],
    });
  });

  test("goes through the image's entry point when that is asked for", () => {
    expect(mainCommand(spec({ main: MainProcess.ARGV, argv: [], useEntrypoint: true }))).toEqual({ cmd: [] });
    expect(mainCommand(spec({ useEntrypoint: true }))).toEqual({ cmd: ["/bin/sh", "-c", "echo hi"] });
  });

  test("is never an empty command", () => {
    expect(() => mainCommand(spec({ argv: [] }))).toThrow("no command");
    expect(() => mainCommand(spec({ main: MainProcess.ARGV, argv: [] }))).toThrow("no command");
    expect(() => mainCommand(spec({ main: MainProcess.MAIN_PROCESS_UNSPECIFIED }))).toThrow("no command");
  });
});

describe("the environment", () => {
  test("cannot be widened by its owner", () => {
    const environment = { NVIDIA_VISIBLE_DEVICES: "all", A: "1=2" };
    expect(containerEnvironment(spec({ environment })).sort()).toEqual([
      "A=1=2",
      "HOME=/home/work",
      "LOGNAME=work",
      "NVIDIA_VISIBLE_DEVICES=void",
      "USER=work",
    ]);
  });

  test("has a home and a user, which its owner may change", () => {
    expect(containerEnvironment(spec({ uid: 0 }))).toContain("USER=root");
    const own = { HOME: "/data", USER: "kim", LOGNAME: "kim" };
    const env = containerEnvironment(spec({ environment: own }));
    expect(env).toEqual(expect.arrayContaining(["HOME=/data", "USER=kim", "LOGNAME=kim"]));
    expect(env).toHaveLength(4);
  });

  test("has a path in the host environment, which its owner may change", () => {
    expect(containerEnvironment(spec({ imageIsHost: true }))).toContain("LANG=C.UTF-8");
    expect(containerEnvironment(spec({ imageIsHost: true, environment: { PATH: "/x" } }))).toContain(
      "PATH=/x",
    );
  });
});

describe("the container", () => {
  test("is confined", () => {
    const { HostConfig, ...rest } = options();
    expect(HostConfig).toMatchObject({
      Init: true,
      Privileged: false,
      NetworkMode: "berth-deadbeef",
      CapDrop: ["ALL"],
      CapAdd: [],
      SecurityOpt: ["no-new-privileges"],
      RestartPolicy: { Name: "no" },
      NanoCpus: 500_000_000,
      CpuShares: 512,
      Memory: 2 ** 30,
      MemorySwap: 2 ** 30,
      ShmSize: 64 * 2 ** 20,
      PidsLimit: 4096,
      Ulimits: [{ Name: "nofile", Soft: 10, Hard: 20 }],
    });
    expect(HostConfig).not.toHaveProperty("PortBindings");
    expect(rest).toMatchObject({ User: "1000", WorkingDir: "/home/work", Hostname: "main1" });
    expect(HostConfig?.Mounts?.map(({ Source, Target }) => [Source, Target])).toEqual([
      ["/data/home", "/home/work"],
      ["/data/tmp", "/tmp"],
    ]);
  });

  test("of root may neither forge packets nor make devices", () => {
    const granted: unknown = options({ uid: 0 }).HostConfig?.CapAdd;
    expect(granted).toContain("SETUID");
    for (const name of ["NET_RAW", "NET_ADMIN", "MKNOD", "SYS_ADMIN", "SYS_PTRACE", "SYS_MODULE"]) {
      expect(granted).not.toContain(name);
    }
  });

  test("is named and labelled as its kernel's generation", () => {
    const { name, Labels } = options();
    expect(name).toBe("berth-deadbeef-0190a000-0000-7000-8000-0000000000aa-g2");
    expect(Labels).toEqual({
      "berth.cluster": owner.clusterId,
      "berth.agent": owner.agentId,
      "berth.kernel": "0190a000-0000-7000-8000-0000000000aa",
      "berth.session": "0190a000-0000-7000-8000-0000000000bb",
      "berth.generation": "2",
      "berth.epoch": "5",
      "berth.owner": "0190a000-0000-7000-8000-0000000000cc",
    });
  });

  test("never gets fewer CPU shares than the kernel takes", () => {
    expect(options({ cpuMilli: 1 }).HostConfig?.CpuShares).toBe(2);
  });
});
