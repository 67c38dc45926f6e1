import { mkdirSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import { z } from "zod";
import { writeFileAtomicSync } from "../../kit/atomic-file.ts";
import type { Cancel, Clock } from "../../kit/clock.ts";
import { BerthError } from "../../kit/errors.ts";
import { isId } from "../../kit/ids.ts";
import type { Logger } from "../../kit/log.ts";
import type { KernelSpec } from "../../wire/generated/berth.ts";
import type { ContainerView, KernelRef } from "../engine/engine.ts";

const endSchema = z.object({
  startedAtMs: z.number(),
  endedAtMs: z.number(),
  exitCode: z.number().int(),
  oomKilled: z.boolean(),
  /** Why it ended, when the agent knows; empty when it simply ended. */
  reason: z.string(),
  logBytes: z.number().int(),
});

const recordSchema = z.object({
  version: z.literal(1),
  kernelId: z.string().refine(isId),
  sessionId: z.string(),
  generation: z.number().int(),
  epoch: z.number().int(),
  keepAlive: z.boolean(),
  timeoutMs: z.number(),
  logLimitBytes: z.number(),
  /** What it may write to disk; 0 for no limit. */
  scratchBytes: z.number(),
  /** The node's boot in which it was started. */
  bootId: z.string(),
  /** Written before the container is started for the first time: from then on it is never made again. */
  startIntent: z.boolean(),
  containerId: z.string(),
  stop: z.object({ graceMs: z.number(), force: z.boolean() }).nullable(),
  timedOut: z.boolean(),
  /** Set before the agent itself ends it for a reason other than a stop: `disk-full`. */
  endCause: z.string(),
  end: endSchema.nullable(),
  failure: z.object({ code: z.string(), message: z.string() }).nullable(),
});

/**
 * What the agent must remember of a kernel beyond what its container's labels tell. It holds no environment and no
 * command: a kernel that was not started yet is made from the manager's next word, not from here.
 */
export type KernelRecord = Readonly<z.infer<typeof recordSchema>>;
export type KernelEnd = Readonly<z.infer<typeof endSchema>>;

/** `<kernel id>.g<generation>`: one life of a kernel. */
export type KernelKey = `${string}.g${number}`;

export function keyOf(ref: Pick<KernelRef, "kernelId" | "generation">): KernelKey {
  return `${ref.kernelId}.g${ref.generation}`;
}

function blank(ref: KernelRef, epoch: number, bootId: string): KernelRecord {
  return {
    version: 1,
    kernelId: ref.kernelId,
    sessionId: ref.sessionId,
    generation: ref.generation,
    epoch,
    keepAlive: false,
    timeoutMs: 0,
    logLimitBytes: 0,
    scratchBytes: 0,
    bootId,
    startIntent: false,
    containerId: "",
    stop: null,
    timedOut: false,
    endCause: "",
    end: null,
    failure: null,
  };
}

/** The record of a kernel that the manager wants. A container that exists already tells whether it was started. */
export function recordOfSpec(
  spec: KernelSpec,
  facts: { keepAlive: boolean; bootId: string; view: ContainerView | undefined },
): KernelRecord {
  return {
    ...blank(spec, spec.epoch, facts.bootId),
    keepAlive: facts.keepAlive,
    timeoutMs: spec.timeoutMs,
    logLimitBytes: spec.logLimitBytes,
    scratchBytes: spec.scratchBytes,
    startIntent: facts.view !== undefined && facts.view.state.kind !== "created",
    containerId: facts.view?.containerId ?? "",
  };
}

/** The record of a kernel that is only to be stopped: of its container when there is one, else a bare tombstone. */
export function recordOfStop(ref: KernelRef, view: ContainerView | undefined, bootId: string): KernelRecord {
  return {
    ...blank(ref, view?.epoch ?? 0, bootId),
    sessionId: view?.sessionId ?? ref.sessionId,
    startIntent: view !== undefined && view.state.kind !== "created",
    containerId: view?.containerId ?? "",
  };
}

export interface RecordStore {
  /** All records on disk; a damaged one is logged and left out. */
  load(): ReadonlyMap<KernelKey, KernelRecord>;
  /** On disk when it returns. Throws `disk-full` when there is no room. */
  save(record: KernelRecord): void;
  /** On disk when it returns, or as soon as the disk takes it: never throws. A later record of the kernel replaces it. */
  keep(record: KernelRecord): void;
  remove(key: KernelKey): void;
  /** Tries a last time to save what is still to be saved. */
  close(): void;
}

const RETRY_MS = 5000;

/** Records below `dir`, each in a folder of its own. */
export function createRecordStore({
  dir,
  clock,
  log,
}: {
  readonly dir: string;
  readonly clock: Clock;
  readonly log: Logger;
}): RecordStore {
  mkdirSync(dir, { recursive: true, mode: 0o700 });
  const folder = (key: KernelKey) => join(dir, key);
  const file = (key: KernelKey) => join(folder(key), "record.json");
  const unsaved = new Map<KernelKey, KernelRecord>();
  let retry: Cancel | undefined;

  function load(): ReadonlyMap<KernelKey, KernelRecord> {
    const records = new Map<KernelKey, KernelRecord>();
    for (const name of readdirSync(dir)) {
      try {
        const record = recordSchema.parse(JSON.parse(readFileSync(join(dir, name, "record.json"), "utf8")));
        records.set(keyOf(record), record);
      } catch (err) {
        log.warn({ err, folder: name }, "a kernel's record cannot be read; its container decides");
      }
    }
    return records;
  }

  function save(record: KernelRecord): void {
    const key = keyOf(record);
    try {
      mkdirSync(folder(key), { recursive: true, mode: 0o700 });
      writeFileAtomicSync(file(key), JSON.stringify(record));
      unsaved.delete(key);
    } catch (err) {
      if (err instanceof Error && "code" in err && err.code === "ENOSPC") {
        throw new BerthError(
          "disk-full",
          `The disk of the agent's data folder ${dir} is full: free some room on it.`,
        );
      }
      throw err;
    }
  }

  function keep(record: KernelRecord): void {
    const key = keyOf(record);
    try {
      save(record);
    } catch (err) {
      if (!unsaved.has(key)) log.error({ err, kernel: key }, "a kernel's record could not be saved yet");
      unsaved.set(key, record);
      retry ??= clock.after(RETRY_MS, saveUnsaved);
    }
  }

  function saveUnsaved(): void {
    retry = undefined;
    for (const record of [...unsaved.values()]) keep(record);
  }

  return {
    load,
    save,
    keep,
    remove: (key) => {
      unsaved.delete(key);
      rmSync(folder(key), { recursive: true, force: true });
    },
    close: () => {
      retry?.();
      saveUnsaved();
      retry?.();
    },
  };
}
