import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { formatServicePorts, parseImageLabels, parseServicePorts, RESERVED_PORTS } from "./labels.ts";

describe("service ports", () => {
  test("one port, several ports, several services", () => {
    expect(parseServicePorts("a:tcp:[5000,5005]")).toEqual([
      { name: "a", protocol: "tcp", ports: [5000, 5005] },
    ]);
    expect(parseServicePorts("x:http:8080, y-2:preopen:[3000,3001],z:vnc:5901")).toEqual([
      { name: "x", protocol: "http", ports: [8080] },
      { name: "y-2", protocol: "preopen", ports: [3000, 3001] },
      { name: "z", protocol: "vnc", ports: [5901] },
    ]);
    expect(parseServicePorts("")).toEqual([]);
  });
  test("pty is left out", () => {
    expect(parseServicePorts("x:pty:8080,y:http:8080")).toEqual([
      { name: "y", protocol: "http", ports: [8080] },
    ]);
  });
  test.each([
    ["x:http:65535", "smaller than"],
    ["x:http:1024", "larger than"],
    ["x:http:-1", "another form"],
    ["abcdefg", "another form"],
    ["x:ftp:8080", "protocol"],
    ["x:http:8080,y:http:8080", "port 8080 is given twice"],
    ["x:http:[8080,8080]", "port 8080 is given twice"],
    ["x:http:8080,x:http:8081", "name x is given twice"],
    ["x:http:2200", "kept for the platform"],
    ["x:http:[]", "another form"],
    ["x:http:[8080", "another form"],
  ])("%s is refused: %s", (text, why) => {
    expect(() => parseServicePorts(text)).toThrow(why);
  });
  test("what is written is read back the same", () => {
    const port = fc.integer({ min: 1025, max: 65_534 }).filter((p) => !RESERVED_PORTS.has(p));
    const service = fc.record({
      name: fc.stringMatching(/^[a-z][a-z0-9_-]{0,8}$/),
      protocol: fc.constantFrom("tcp" as const, "http" as const, "rdp" as const),
    });
    const services = fc
      .tuple(
        fc.uniqueArray(service, { selector: (s) => s.name, maxLength: 4 }),
        fc.uniqueArray(port, { minLength: 8, maxLength: 8 }),
      )
      .map(([names, ports]) =>
        names.map((s, i) => ({ ...s, ports: ports.slice(2 * i, 2 * i + 1 + (i % 2)) })),
      );
    fc.assert(
      fc.property(services, (value) => expect(parseServicePorts(formatServicePorts(value))).toEqual(value)),
    );
  });
});

describe("labels", () => {
  test("both families are read, ours wins, others are ignored", () => {
    const labels = parseImageLabels({
      "ai.backend.resource.min.cpu": "1",
      "ai.backend.resource.min.mem": "256m",
      "ai.backend.resource.min.cuda.device": "0",
      "ai.backend.resource.max.cuda.device": "2",
      "berth.resource.min.cpu": "0.5",
      "ai.backend.resource.preferred.shmem": "1g",
      "ai.backend.service-ports": "jupyter:http:8888",
      "ai.backend.envs.corecount": "OMP_NUM_THREADS,OPENBLAS_NUM_THREADS,not-a-name",
      "ai.backend.features": "batch query uid-match",
      "ai.backend.role": "INFERENCE",
      "org.opencontainers.image.title": "x",
    });
    expect(labels).toMatchObject({
      minimum: { cpu: 500, mem: 256 * 2 ** 20 },
      maximum: { "cuda.device": 2 },
      preferredShm: 2 ** 30,
      servicePorts: [{ name: "jupyter", protocol: "http", ports: [8888] }],
      corecountNames: ["OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"],
      features: ["batch", "query", "uid-match"],
      role: "inference",
      warnings: [],
    });
    expect(labels.minimum["cuda.device"]).toBeUndefined();
  });
  test("wrong labels are ignored and told", () => {
    const labels = parseImageLabels({
      "ai.backend.resource.min.mem": "lots",
      "ai.backend.resource.min.cuda.shares": "0.5",
      "ai.backend.service-ports": "x:http:80",
    });
    expect(labels.minimum).toEqual({});
    expect(labels.servicePorts).toEqual([]);
    expect(labels.warnings).toHaveLength(3);
    expect(labels.warnings.join()).toContain('"lots" is not a size');
  });
  test("an image without labels is a plain compute image", () => {
    expect(parseImageLabels({})).toMatchObject({
      role: "compute",
      minimum: {},
      servicePorts: [],
      warnings: [],
    });
  });
});
