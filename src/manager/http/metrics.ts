import { Counter, Gauge, Histogram, Registry } from "prom-client";
import type { Served } from "./app.ts";

export type Metrics = {
  /** Features register their own collectors here; names begin with `berth_`. */
  readonly registry: Registry;
  served(served: Served): void;
  text(): Promise<string>;
};

/** A gauge that asks for its values when it is read: `labels` and value of each. */
export function gaugeOf<Label extends string>(
  registry: Registry,
  options: { readonly name: string; readonly help: string; readonly labels: readonly Label[] },
  read: () => Promise<readonly (readonly [Record<Label, string>, number])[]>,
): void {
  const gauge: Gauge<Label> = new Gauge({
    name: options.name,
    help: options.help,
    labelNames: options.labels,
    registers: [registry],
    collect: async () => {
      const values = await read();
      gauge.reset();
      for (const [labels, value] of values) gauge.set(labels, value);
    },
  });
}

export function createMetrics(facts: {
  readonly version: string;
  readonly commit: string;
  readonly connections: () => number;
}): Metrics {
  const registry = new Registry();
  const requests = new Counter({
    name: "berth_http_requests_total",
    help: "Requests by route, method and status.",
    labelNames: ["route", "method", "status"],
    registers: [registry],
  });
  const durations = new Histogram({
    name: "berth_http_request_duration_seconds",
    help: "Time until the end of the answer, by route. Streams count until they end.",
    labelNames: ["route"],
    buckets: [0.005, 0.02, 0.1, 0.5, 2, 10],
    registers: [registry],
  });
  const single = (name: string, help: string, read: () => number) =>
    gaugeOf(registry, { name, help, labels: [] }, async () => [[{}, read()]]);
  single("berth_http_connections", "Open connections.", facts.connections);
  single("process_resident_memory_bytes", "Resident memory.", () => process.memoryUsage.rss());
  single("process_cpu_seconds_total", "CPU time used.", () => {
    const { user, system } = process.cpuUsage();
    return (user + system) / 1e6;
  });
  gaugeOf(registry, { name: "berth_info", help: "Version.", labels: ["version", "commit"] }, async () => [
    [{ version: facts.version, commit: facts.commit }, 1],
  ]);

  return {
    registry,
    served: ({ route, method, status, ms }) => {
      requests.inc({ route, method, status: String(status) });
      durations.observe({ route }, ms / 1000);
    },
    text: () => registry.metrics(),
  };
}
