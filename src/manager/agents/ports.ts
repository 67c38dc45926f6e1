import type { AgentId } from "../../kit/ids.ts";
import type { ByteStream } from "../../wire/byte-stream.ts";
import type { KernelStatus, ManagerMessage, OpenStream } from "../../wire/generated/berth.ts";
import type { EventLog } from "../events/log.ts";

/** The event stream, as features write to it. */
export type EventSink = Pick<EventLog, "append">;

export type StreamTarget = NonNullable<OpenStream["target"]>;

/** What other features may ask of the agents that are connected. */
export interface AgentPort {
  /** Connected, and its first full report since then is reconciled. */
  ready(agent: AgentId): boolean;
  /** Sends a message. Throws `agent-unreachable` when the agent is not connected. */
  send(agent: AgentId, message: ManagerMessage["body"] & {}): Promise<void>;
  /** Has the agent dial back a data stream. Throws `agent-unreachable`, or what the agent says against it. */
  openStream(agent: AgentId, target: StreamTarget, signal?: AbortSignal): Promise<ByteStream>;
}

/** What the agents' links tell of kernels. Each call is awaited before the agent's next message is read. */
export interface KernelSink {
  /** Everything that the agent has. When `complete`, what is not in it does not exist there. */
  report(agent: AgentId, kernels: readonly KernelStatus[], complete: boolean): Promise<void>;
  status(agent: AgentId, status: KernelStatus): Promise<void>;
  /** A command for a kernel could not be carried out. */
  commandFailed(
    agent: AgentId,
    kernelId: string,
    generation: number,
    code: string,
    message: string,
  ): Promise<void>;
  /** The first report since the agent connected is reconciled: commands may flow. */
  ready(agent: AgentId): Promise<void>;
  /** Its heartbeat stayed away. */
  lost(agent: AgentId): Promise<void>;
}
