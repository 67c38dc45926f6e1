import { join } from "node:path";
import { writeFileAtomicSync } from "../kit/atomic-file.ts";
import { messageOf } from "../kit/errors.ts";
import type { Logger } from "../kit/log.ts";
import type { LinkState } from "./link/link.ts";

/** `failed`: the agent could not start. */
export type AgentState = LinkState | "failed";

/**
 * Keeps `status.json` in the data folder: how this process stands with the manager, for installers and people. A write
 * that fails is logged only; nothing depends on the file.
 */
export function createStatusFile(options: { readonly dataDir: string; readonly log: Logger }) {
  const { dataDir, log } = options;
  let last = "";
  return (state: AgentState, message = ""): void => {
    const text = `${JSON.stringify({ pid: String(process.pid), state, message })}\n`;
    if (text === last) return;
    last = text;
    try {
      writeFileAtomicSync(join(dataDir, "status.json"), text);
    } catch (err) {
      log.warn({ cause: messageOf(err) }, "status.json could not be written");
    }
  };
}
