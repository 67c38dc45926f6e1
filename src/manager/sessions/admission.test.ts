import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { MAX_DURATION_MS } from "../../contract/primitives.ts";
import { NO_LIMITS, type ResourcePolicy } from "../policies/limits.ts";
import { aNode, GIB, NOW } from "../scheduling/fixtures.ts";
import { admit, DEFAULT_PRIORITY } from "./admission.ts";
import type { AdmissionFacts, AdmissionRequest, Admitted } from "./admission-types.ts";

const MIB = 2 ** 20;
const MINUTE = 60_000;
const DAY = 24 * 60 * MINUTE;

const batch = (over: Partial<AdmissionRequest> = {}): AdmissionRequest => ({
  type: "batch",
  name: null,
  count: 1,
  slots: {},
  shm: null,
  priority: null,
  env: {},
  command: ["true"],
  startsAt: null,
  timeoutMs: null,
  preopenPorts: [],
  ...over,
});
const interactive = (over: Partial<AdmissionRequest> = {}) =>
  batch({ type: "interactive", command: null, ...over });

const image = { reference: "img:1", arch: "amd64", needsHost: false, minimum: {}, servicePorts: [] };
const policy = (over: Partial<ResourcePolicy>): ResourcePolicy => ({ ...NO_LIMITS, name: "lab", ...over });

const facts = (over: Partial<AdmissionFacts> = {}): AdmissionFacts => ({
  now: NOW,
  group: { name: "default", active: true, allowedTypes: ["interactive", "batch", "inference"] },
  nodes: [aNode(1, { capacity: { cpu: 8000, mem: 16 * GIB, gpu: 2 } })],
  image,
  policy: policy({}),
  usage: {
    sessions: 0,
    pendingSessions: 0,
    slots: { cpu: 0, mem: 0 },
    pendingSlots: { cpu: 0, mem: 0 },
  },
  liveNames: new Set(),
  rights: new Set(),
  defaults: { cpu: 1000, mem: GIB, shm: 64 * MIB },
  ...over,
});

function refusals(request: AdmissionRequest, over: Partial<AdmissionFacts> = {}): string[] {
  const result = admit(request, facts(over));
  return result.ok ? [] : result.refusals.map((r) => `${r.code} ${r.field}`);
}
function sentence(request: AdmissionRequest, over: Partial<AdmissionFacts> = {}): string {
  const result = admit(request, facts(over));
  return result.ok ? "" : result.refusals.map((r) => r.sentence).join(" ");
}
function admitted(request: AdmissionRequest, over: Partial<AdmissionFacts> = {}): Admitted {
  const result = admit(request, facts(over));
  if (!result.ok) throw new Error(result.refusals.map((r) => r.sentence).join(" "));
  return result;
}

describe("names and counts", () => {
  test("one without a name, several numbered", () => {
    expect(admitted(batch()).names).toEqual([null]);
    expect(admitted(batch({ count: 3 })).names).toEqual([null, null, null]);
    expect(admitted(batch({ name: "train", count: 2 })).names).toEqual(["train-1", "train-2"]);
  });
  test.each(["abc", "a".repeat(65), "-abcd", "abcd.", "ab cd", "한글이름"])("%s is no name", (name) => {
    expect(refusals(batch({ name }))).toEqual(["invalid-name name"]);
  });
  test.each(["abcd", "a".repeat(64), "_a.-b_"])("%s is a name", (name) => {
    expect(admitted(batch({ name })).names).toEqual([name]);
  });
  test("a name in the form of an id is refused", () => {
    expect(refusals(batch({ name: "0198c0de-0000-7000-8000-000000000000" }))).toEqual(["invalid-name name"]);
  });
  test("the numbered names must be free and short enough", () => {
    const liveNames = new Set(["train-2"]);
    expect(refusals(batch({ name: "train", count: 2 }), { liveNames })).toEqual(["session-name-in-use name"]);
    expect(sentence(batch({ name: "train-2" }), { liveNames })).toContain("train-2 is taken");
    expect(refusals(batch({ name: "train" }), { liveNames })).toEqual([]);
    expect(refusals(batch({ name: "a".repeat(63), count: 2 }))).toEqual(["invalid-name name"]);
  });
  test.each([0, -1, 101, 1.5, Number.NaN])("%d sessions are refused", (count) => {
    expect(refusals(batch({ count }))).toEqual(["invalid-count count"]);
  });
});

describe("group and type", () => {
  test("an inactive group, a type it does not take", () => {
    const group = { name: "g", active: false, allowedTypes: ["interactive" as const] };
    expect(refusals(batch(), { group })).toEqual(["group-inactive group", "type-not-allowed type"]);
  });
  test("inference needs a model folder", () => {
    expect(refusals(batch({ type: "inference" }))).toEqual(["model-folder-missing mounts"]);
    expect(refusals(batch({ type: "inference", hasModelFolder: true }))).toEqual([]);
  });
});

describe("command, start time, timeout", () => {
  test("a batch needs a command", () => {
    for (const command of [null, "", "  ", [], [""]]) {
      expect(refusals(batch({ command }))).toEqual(["command-missing command"]);
    }
  });
  test("a NUL or broken Unicode in a command is refused", () => {
    expect(refusals(batch({ command: ["a", "b\0"] }))).toEqual(["invalid-command command"]);
    expect(refusals(batch({ command: "\ud800" }))).toEqual(["invalid-command command"]);
  });
  test("a command is as long as the system executes, in bytes", () => {
    expect(refusals(batch({ command: "한".repeat(43_690) }))).toEqual([]);
    expect(refusals(batch({ command: "한".repeat(43_691) }))).toEqual(["command-too-long command"]);
    expect(refusals(batch({ command: ["x", "a".repeat(131_072)] }))).toEqual(["command-too-long command"]);
  });
  test("an interactive session has neither command, start time nor timeout", () => {
    const request = interactive({ command: "x", startsAt: NOW + MINUTE, timeoutMs: MINUTE });
    expect(refusals(request)).toEqual([
      "command-not-allowed command",
      "starts-at-not-allowed startsAt",
      "timeout-not-allowed timeout",
    ]);
  });
  test("a start time lies between a minute ago and a year ahead", () => {
    expect(refusals(batch({ startsAt: NOW - MINUTE }))).toEqual([]);
    expect(refusals(batch({ startsAt: NOW - MINUTE - 1 }))).toEqual(["starts-at-past startsAt"]);
    expect(refusals(batch({ startsAt: NOW + 366 * DAY }))).toEqual([]);
    expect(refusals(batch({ startsAt: NOW + 366 * DAY + 1 }))).toEqual(["starts-at-too-far startsAt"]);
  });
  test("a timeout is a second at least and within the policy's lifetime", () => {
    expect(refusals(batch({ timeoutMs: 999 }))).toEqual(["invalid-timeout timeout"]);
    expect(refusals(batch({ timeoutMs: MAX_DURATION_MS + 1 }))).toEqual(["invalid-timeout timeout"]);
    expect(refusals(batch({ timeoutMs: Number.MAX_SAFE_INTEGER }))).toEqual(["invalid-timeout timeout"]);
    expect(admitted(batch({ timeoutMs: MAX_DURATION_MS })).lifetimeMs).toBe(MAX_DURATION_MS);
    const limited = { policy: policy({ maxSessionLifetimeMs: 60 * MINUTE }) };
    expect(refusals(batch({ timeoutMs: 60 * MINUTE + 1 }), limited)).toEqual([
      "timeout-above-policy timeout",
    ]);
    expect(admitted(batch({ timeoutMs: 10 * MINUTE }), limited).lifetimeMs).toBe(10 * MINUTE);
    expect(admitted(interactive(), limited).lifetimeMs).toBe(60 * MINUTE);
    expect(admitted(interactive()).lifetimeMs).toBeNull();
  });
});

describe("priority", () => {
  const rights = new Set(["session.priority"]);
  test("10 without a word, more with the right only", () => {
    expect(admitted(batch()).priority).toBe(DEFAULT_PRIORITY);
    expect(refusals(batch({ priority: 11 }))).toEqual(["priority-not-permitted priority"]);
    expect(refusals(batch({ priority: 100 }), { rights })).toEqual([]);
    expect(admitted(batch({ priority: 0 })).priority).toBe(0);
  });
  test.each([-1, 101, 1.5])("%d is none", (priority) => {
    expect(refusals(batch({ priority }), { rights })).toEqual(["invalid-priority priority"]);
  });
  test("the policy's limit holds for those with the right too, and lowers the default", () => {
    expect(refusals(batch({ priority: 50 }), { rights, policy: policy({ maxPriority: 40 }) })).toEqual([
      "priority-above-policy priority",
    ]);
    const low = admitted(batch(), { policy: policy({ maxPriority: 5 }) });
    expect(low.priority).toBe(5);
    expect(low.adjusted.map((a) => a.what)).toEqual(["priority"]);
  });
});

describe("policy limits", () => {
  const usage = {
    sessions: 3,
    pendingSessions: 2,
    slots: { cpu: 3000, mem: 3 * GIB },
    pendingSlots: { cpu: 2000, mem: 2 * GIB },
  };
  const cases: [string, Partial<ResourcePolicy>, Partial<ResourcePolicy>][] = [
    ["too-many-sessions count", { maxConcurrentSessions: 5 }, { maxConcurrentSessions: 4 }],
    ["too-many-pending count", { maxPendingSessions: 4 }, { maxPendingSessions: 3 }],
    ["slots-exceeded slots.cpu", { totalSlots: { cpu: 5000 } }, { totalSlots: { cpu: 4999 } }],
    ["slots-exceeded slots.mem", { totalSlots: { mem: 5 * GIB } }, { totalSlots: { mem: 4 * GIB } }],
    [
      "pending-slots-exceeded slots.cpu",
      { maxPendingSlots: { cpu: 4000 } },
      { maxPendingSlots: { cpu: 3999 } },
    ],
  ];
  test.each(cases)("%s exactly beyond the limit, counting all of several", (code, allows, refuses) => {
    expect(refusals(batch({ count: 2 }), { usage, policy: policy(allows) })).toEqual([]);
    expect(refusals(batch({ count: 2 }), { usage, policy: policy(refuses) })).toEqual([code]);
  });
  test("0 is zero, not unlimited", () => {
    expect(refusals(batch(), { policy: policy({ maxConcurrentSessions: 0 }) })).toEqual([
      "too-many-sessions count",
    ]);
    expect(sentence(batch(), { usage, policy: policy({ maxConcurrentSessions: 3 }) })).toBe(
      "Your policy lab allows 3 sessions that have not ended; you have 3 and asked for 1 more.",
    );
  });
  test("containers per session", () => {
    const one = { policy: policy({ maxContainersPerSession: 1 }) };
    expect(refusals(batch({ containers: 1 }), one)).toEqual([]);
    expect(refusals(batch({ containers: 2 }), one)).toEqual(["too-many-containers containers"]);
  });
});

describe("slots", () => {
  test("defaults", () => {
    expect(admitted(batch())).toMatchObject({ slots: { cpu: 1000, mem: GIB }, shm: 64 * MIB, adjusted: [] });
  });
  test("0, fractions of a milli-core and negative amounts are refused", () => {
    expect(refusals(batch({ slots: { cpu: 0 } }))).toEqual(["invalid-cpu slots.cpu"]);
    expect(refusals(batch({ slots: { cpu: 99 } }))).toEqual(["invalid-cpu slots.cpu"]);
    expect(refusals(batch({ slots: { mem: 0 } }))).toEqual(["invalid-mem slots.mem"]);
    expect(refusals(batch({ slots: { gpu: -1, mem: 1.5 } }))).toEqual([
      "invalid-slot slots.gpu",
      "invalid-slot slots.mem",
    ]);
    expect(refusals(batch({ shm: 0 }))).toEqual(["invalid-shm slots.shm"]);
  });
  test("a request below the image's minimum is raised and told so", () => {
    const minimum = { cpu: 2000, mem: 2 * GIB };
    const result = admitted(batch({ slots: { cpu: 500, mem: 512 * MIB } }), { image: { ...image, minimum } });
    expect(result.slots).toEqual({ cpu: 2000, mem: 2 * GIB });
    expect(result.adjusted.map((a) => a.sentence)).toEqual([
      "cpu was raised from 0.5 CPUs to 2 CPUs: the image img:1 needs it.",
      "mem was raised from 512 MiB to 2 GiB: the image img:1 needs it.",
    ]);
  });
  test("nobody gets less than 32 MiB", () => {
    expect(admitted(batch({ slots: { mem: 1 } })).slots.mem).toBe(32 * MIB);
    expect(admitted(batch({ slots: { mem: 32 * MIB } })).adjusted).toEqual([]);
  });
  test("an accelerator minimum raises only who asks for one", () => {
    const gpuImage = { image: { ...image, minimum: { gpu: 2 } } };
    expect(admitted(batch(), gpuImage).slots.gpu).toBeUndefined();
    expect(admitted(batch({ slots: { gpu: 1 } }), gpuImage).slots.gpu).toBe(2);
  });
  test("shared memory must be smaller than the memory", () => {
    expect(refusals(batch({ slots: { mem: GIB }, shm: GIB }))).toEqual(["shm-too-large slots.shm"]);
    expect(refusals(batch({ slots: { mem: GIB }, shm: GIB - 1 }))).toEqual([]);
    expect(refusals(batch({ shm: GIB }))).toEqual(["shm-too-large slots.shm"]);
  });
  test("the image's minimum is left beside stated shared memory", () => {
    const withMinimum = { image: { ...image, minimum: { mem: GIB } } };
    const result = admitted(batch({ slots: { mem: GIB + MIB }, shm: 512 * MIB }), withMinimum);
    expect(result.slots.mem).toBe(GIB + 512 * MIB);
    expect(admitted(batch({ shm: 2 * GIB }), withMinimum).slots.mem).toBe(3 * GIB);
    expect(refusals(batch({ slots: { mem: MIB }, shm: 2 * MIB }), withMinimum)).toEqual([
      "shm-too-large slots.shm",
    ]);
  });
  test("shared memory that nobody asked for makes no request too large", () => {
    expect(admitted(batch({ slots: { mem: 64 * MIB } }))).toMatchObject({ shm: 32 * MIB, adjusted: [] });
  });
  test("a slot that no node of the group has is refused", () => {
    expect(refusals(batch({ slots: { tpu: 1 } }))).toEqual(["slot-not-served slots.tpu"]);
    expect(refusals(batch({ slots: { tpu: 0 } }))).toEqual([]);
    expect(refusals(batch({ slots: { tpu: 1 } }), { nodes: [] })).toEqual([]);
  });
  test("what no registered node could ever hold is refused with the nearest; lost nodes count", () => {
    const small = aNode(1);
    const request = batch({ slots: { cpu: 6000, mem: 8 * GIB } });
    expect(sentence(request, { nodes: [small, aNode(2, { capacity: { cpu: 5000, mem: GIB } })] })).toBe(
      "No node of the resource group default can ever hold 6 CPUs and 8 GiB: " +
        "the nearest, node-1, has 4 CPUs and 8 GiB at the most.",
    );
    const lost = aNode(3, { capacity: { cpu: 6000, mem: 8 * GIB }, alive: false, schedulable: false });
    expect(refusals(request, { nodes: [small, lost] })).toEqual([]);
    expect(refusals(request, { nodes: [] })).toEqual([]);
  });
  test("what is reserved for the node cannot be had", () => {
    const nodes = [aNode(1, { reserved: { cpu: 500, mem: 0 } })];
    expect(refusals(batch({ slots: { cpu: 4000 } }), { nodes })).toEqual(["never-fits slots.cpu"]);
  });
  test("an image that no node can run is refused", () => {
    const arm = { image: { ...image, arch: "arm64" } };
    expect(sentence(batch(), arm)).toBe("No node of the resource group default runs arm64 images.");
    const nodes = [aNode(1, { hostEnvironment: false })];
    expect(refusals(batch(), { nodes, image: { ...image, needsHost: true } })).toEqual(["never-fits image"]);
  });
});

describe("ports, mounts, environment", () => {
  test("ports outside the range, kept ones, those of an app, duplicates", () => {
    const servicePorts = [{ name: "jupyter", protocol: "http" as const, ports: [8888] }];
    const preopenPorts = [1024, 65_535, 1023, 65_536, 2200, 7681, 2000, 2001, 8888, 9000, 9000];
    expect(refusals(batch({ preopenPorts }), { image: { ...image, servicePorts } })).toEqual([
      "invalid-port preopenPorts",
      "invalid-port preopenPorts",
      "reserved-port preopenPorts",
      "reserved-port preopenPorts",
      "reserved-port preopenPorts",
      "reserved-port preopenPorts",
      "service-port preopenPorts",
      "duplicate-port preopenPorts",
    ]);
  });
  test.each(["/etc/x", "/usr", "/proc", "/home/work", "/", "/home/work/.ssh", "/home/work/.bashrc", "/tmp"])(
    "%s is a reserved mount path",
    (path) => {
      expect(refusals(batch({ mountPaths: [path] }))).toEqual(["reserved-mount-path mounts"]);
    },
  );
  test.each(["data", "/home/work/../x", "/home//work", "/data/", "/데이터", "/a b", `/${"a".repeat(65)}`])(
    "%s is no mount path",
    (path) => {
      expect(refusals(batch({ mountPaths: [path] }))).toEqual(["invalid-mount-path mounts"]);
    },
  );
  test("other paths are free, each once", () => {
    const mountPaths = ["/home/work/data", "/mnt/data", "/etcetera"];
    expect(refusals(batch({ mountPaths }))).toEqual([]);
    expect(refusals(batch({ mountPaths: ["/data", "/data"] }))).toEqual(["duplicate-mount-path mounts"]);
  });
  test("reserved and wrong variables are refused without their values", () => {
    const env = { BERTH_TOKEN: "s3cret", "A-B": "s3cret", OK_1: "x", NUL: "s3cret\0" };
    expect(refusals(batch({ env }))).toEqual([
      "reserved-env environment.BERTH_TOKEN",
      "invalid-env-name environment.A-B",
      "invalid-env-value environment.NUL",
    ]);
    expect(JSON.stringify(admit(batch({ env }), facts()))).not.toContain("s3cret");
  });
});

test("all broken rules are told at once", () => {
  const request = batch({
    name: "x",
    priority: 99,
    command: null,
    slots: { cpu: 64_000 },
    preopenPorts: [80],
  });
  expect(refusals(request)).toEqual([
    "invalid-name name",
    "command-missing command",
    "invalid-port preopenPorts",
    "priority-not-permitted priority",
    "never-fits slots.cpu",
  ]);
});

test("what is admitted always holds its own rules", () => {
  const amount = fc.option(fc.integer({ min: 0, max: 12 * GIB }));
  const request = fc
    .record({ cpu: fc.option(fc.integer({ min: 0, max: 9000 })), mem: amount, shm: amount, min: amount })
    .map(({ cpu, mem, shm, min }) => ({ request: batch({ slots: { cpu, mem }, shm }), min: min ?? 0 }));
  let seen = 0;
  fc.assert(
    fc.property(request, ({ request, min }) => {
      const minimum = min > 0 ? { mem: min } : {};
      const result = admit(request, facts({ image: { ...image, minimum } }));
      if (!result.ok) return;
      seen += 1;
      expect(result.shm).toBeGreaterThan(0);
      expect(result.shm).toBeLessThan(result.slots.mem);
      expect(result.slots.mem).toBeGreaterThanOrEqual(Math.max(min, request.slots.mem ?? 0));
      if (min > 0 && request.shm !== null) expect(result.slots.mem).toBeGreaterThanOrEqual(min + request.shm);
      expect(result.slots.cpu).toBeGreaterThanOrEqual(request.slots.cpu ?? 100);
      expect(result.slots.cpu <= 8000 && result.slots.mem <= 16 * GIB).toBe(true);
    }),
    { numRuns: 500 },
  );
  expect(seen).toBeGreaterThan(50);
});
