import type { Clock } from "../kit/clock.ts";
import type { Logger } from "../kit/log.ts";
import type { KernelUsage, UsageReport } from "../wire/generated/berth.ts";
import type { Engine } from "./engine/engine.ts";
import { keyOf } from "./kernels/record.ts";
import type { RunningKernel, Supervisor } from "./kernels/supervisor.ts";
import type { NodeMeter } from "./usage/node.ts";

type CpuLook = { readonly atMs: number; readonly nanos: number };

/** Milli-cores used between two looks at a counter of CPU nanoseconds; 0 when it began anew. */
export function cpuMilliBetween(before: CpuLook | undefined, now: CpuLook): number {
  if (before === undefined || now.atMs <= before.atMs || now.nanos < before.nanos) return 0;
  return Math.round((now.nanos - before.nanos) / 1000 / (now.atMs - before.atMs));
}

/** How often a container's own layer is measured, which is costly; in ms. */
const LAYER_PERIOD_MS = 60_000;

export interface UsageSource {
  sample(): Promise<UsageReport>;
}

/** Measures the node and its running kernels, and ends those that wrote more than their disk allows. */
export function createUsageSource(options: {
  readonly engine: Engine;
  readonly supervisor: Supervisor;
  readonly meter: NodeMeter;
  readonly clock: Clock;
  readonly log: Logger;
}): UsageSource {
  const { engine, supervisor, meter, clock, log } = options;
  let looks = new Map<string, CpuLook>();
  let layersAt = Number.NEGATIVE_INFINITY;

  async function kernel(
    running: RunningKernel,
    next: Map<string, CpuLook>,
  ): Promise<KernelUsage | undefined> {
    const key = keyOf(running.ref);
    try {
      const [usage, scratch] = await Promise.all([
        engine.usage(running.containerId, running.pid),
        engine.scratchUsage(running.ref),
      ]);
      const look = { atMs: clock.mono(), nanos: usage.cpuNanos };
      next.set(key, look);
      if (scratch !== undefined && scratch.totalBytes > 0 && scratch.usedBytes > scratch.totalBytes) {
        endForDisk(running, scratch.usedBytes, scratch.totalBytes);
      }
      const { cpuNanos: _, ...rest } = usage;
      return {
        ...rest,
        kernelId: running.ref.kernelId,
        cpuMilli: cpuMilliBetween(looks.get(key), look),
        scratchUsedBytes: scratch?.usedBytes ?? 0,
        scratchTotalBytes: scratch?.totalBytes ?? 0,
      };
    } catch {
      // It ended between the look at the list and this one.
      return undefined;
    }
  }

  function endForDisk(running: RunningKernel, usedBytes: number, limitBytes: number): void {
    log.warn(
      { kernel: keyOf(running.ref), usedBytes, limitBytes },
      "a kernel wrote more than its disk allows",
    );
    supervisor.endFor(running.ref, "disk-full");
  }

  async function watchLayers(kernels: readonly RunningKernel[]): Promise<void> {
    if (clock.mono() - layersAt < LAYER_PERIOD_MS) return;
    layersAt = clock.mono();
    for (const running of kernels) {
      const limitBytes = supervisor.record(running.ref)?.scratchBytes ?? 0;
      if (limitBytes === 0) continue;
      const usedBytes = await engine.layerBytes(running.containerId).catch(() => 0);
      if (usedBytes > limitBytes) endForDisk(running, usedBytes, limitBytes);
    }
  }

  async function sample(): Promise<UsageReport> {
    const kernels = supervisor.running();
    const next = new Map<string, CpuLook>();
    const [node, ...used] = await Promise.all([
      meter.sample(),
      ...kernels.map((running) => kernel(running, next)),
    ]);
    looks = next;
    void watchLayers(kernels).catch((err: unknown) => log.warn({ err }, "layers could not be measured"));
    return { wallMs: clock.wall(), node, kernels: used.filter((usage) => usage !== undefined) };
  }

  return { sample };
}
