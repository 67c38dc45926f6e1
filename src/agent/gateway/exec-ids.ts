import { mkdirSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Logger } from "../../kit/log.ts";
import type { Engine } from "../engine/engine.ts";

/** Ids of the commands that run for somebody, on disk: cutting their stream does not end them, and we may be killed. */
export interface ExecIds {
  add(execId: string): void;
  remove(execId: string): void;
  /** Ends the commands that an earlier process left. Those that cannot be reached now stay for the next call. */
  endStrays(engine: Engine): Promise<void>;
}

/** Keeps one empty file for each command in `dir`. */
export function createExecIds({ dir, log }: { readonly dir: string; readonly log: Logger }): ExecIds {
  mkdirSync(dir, { recursive: true, mode: 0o700 });
  const strays = new Set(readdirSync(dir));
  const remove = (execId: string) => rmSync(join(dir, execId), { force: true });

  async function endStrays(engine: Engine): Promise<void> {
    for (const execId of [...strays]) {
      try {
        await engine.endExec(execId);
        strays.delete(execId);
        remove(execId);
      } catch (err) {
        log.warn({ err, execId }, "a command of an earlier process of the agent could not be ended yet");
      }
    }
  }

  return {
    // No sync to disk: a power loss ends the command as well.
    add: (execId) => writeFileSync(join(dir, execId), ""),
    remove,
    endStrays,
  };
}
