import { BerthError } from "../../kit/errors.ts";
import { readFrames } from "../../kit/frames.ts";
import type { AgentId } from "../../kit/ids.ts";
import type { AgentPort } from "../agents/ports.ts";
import type { EndFrame, GapFrame, LogFrame } from "./collect.ts";
import type { LogKey } from "./files.ts";

export type SourceFrame = LogFrame | GapFrame | EndFrame;

/**
 * The output of a kernel from its agent, from `offset` on. Ends after `log-end`; throws when the stream is cut
 * before, and with the agent's own code when it has none to give.
 */
export async function* readFromAgent(
  agents: AgentPort,
  agent: AgentId,
  key: LogKey,
  options: { readonly offset: number; readonly follow: boolean; readonly signal: AbortSignal },
): AsyncGenerator<SourceFrame> {
  const { offset, follow, signal } = options;
  const target = {
    $case: "logs" as const,
    value: { kernelId: key.kernelId, generation: key.generation, offset, follow },
  };
  const stream = await agents.openStream(agent, target, signal);
  const cut = () => stream.destroy();
  signal.addEventListener("abort", cut, { once: true });
  try {
    for await (const frame of readFrames(stream)) {
      if (frame.type === "error") throw new BerthError(frame.code, frame.message);
      if (frame.type === "log" || frame.type === "log-gap") yield frame;
      if (frame.type === "log-end") {
        yield frame;
        return;
      }
    }
    signal.throwIfAborted();
    throw new BerthError("agent-unreachable", "The stream of the output was cut.");
  } finally {
    signal.removeEventListener("abort", cut);
    stream.destroy();
  }
}
