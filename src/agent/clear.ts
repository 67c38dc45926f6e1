import { rmSync } from "node:fs";
import { join } from "node:path";
import { BerthError } from "../kit/errors.ts";
import type { Engine } from "./engine/engine.ts";
import type { KnownIdentity } from "./identity.ts";

/** Time that sessions get to end by themselves, in ms. */
const GRACE_MS = 5000;

/** What an agent keeps of kernels; of no use to another identity. */
const KERNEL_FOLDERS = ["kernels", "execs", "logs"];

/** Ends every session of the engine's owner and removes what it made on the node; gives how many there were. */
export async function clearNode(engine: Engine): Promise<number> {
  const kernels = await engine.listKernels();
  await Promise.all(
    kernels.map(async (kernel) => {
      if (kernel.state.kind === "running") await engine.stopContainer(kernel.containerId, GRACE_MS);
      await engine.removeKernel(kernel);
    }),
  );
  for (const leftover of await engine.listLeftovers()) await engine.removeKernel(leftover);
  await engine.removeNode();
  return kernels.length;
}

/**
 * Clears the node of an identity that another one follows. Sessions of a node that the manager has removed are over
 * for it and end here; those of any other stay, and with them the identity: throws `node-busy`.
 */
export async function retireIdentity(old: KnownIdentity, engine: Engine, dataDir: string): Promise<void> {
  if (!old.removed) {
    const { length } = await engine.listKernels();
    if (length > 0) {
      const sentence =
        `This node still has ${length} ${length === 1 ? "session" : "sessions"} of the cluster that it is in, so it does ` +
        "not join anew. End them first (berth stop), or all at once with `berth agent-cleanup`; or start the agent " +
        "without the new token.";
      throw new BerthError("node-busy", sentence, { field: "token", details: { sessions: length } });
    }
  }
  await clearNode(engine);
  for (const folder of KERNEL_FOLDERS) rmSync(join(dataDir, folder), { recursive: true, force: true });
}
