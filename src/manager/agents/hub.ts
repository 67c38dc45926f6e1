import { randomUUID } from "node:crypto";
import type { Cancel, Clock, WallMs } from "../../kit/clock.ts";
import { BerthError } from "../../kit/errors.ts";
import type { AgentId } from "../../kit/ids.ts";
import type { DataBroker } from "../../wire/data-broker.ts";
import type { KernelUsage, UsageReport } from "../../wire/generated/berth.ts";
import type { ServerLink } from "../../wire/link-server.ts";
import type { AgentPort } from "./ports.ts";

/** What is known of an agent only while the manager runs. */
type Memory = {
  link: ServerLink | undefined;
  ready: boolean;
  lastSeen: WallMs | null;
  lostSince: WallMs | null;
  skewMs: number;
  engineReachable: boolean;
  usage: UsageReport | undefined;
  lostTimer: Cancel;
};

export type HubDeps = {
  readonly clock: Clock;
  readonly broker: DataBroker;
  /** Silence after which an agent counts as lost, in ms. */
  readonly lostAfterMs: number;
  /** Destroys every connection of an agent. */
  readonly cut: (agent: AgentId) => void;
  readonly onLost: (agent: AgentId) => void;
};

/** The agents that are connected, and what is known of them in memory. */
export interface AgentHub extends AgentPort {
  /** Takes over an accepted link; an older one of the same agent is closed. */
  attach(agent: AgentId, link: ServerLink): void;
  /** The link is over; false when another one took its place before. */
  detach(agent: AgentId, link: ServerLink): boolean;
  connected(agent: AgentId): boolean;
  isCurrent(agent: AgentId, link: ServerLink): boolean;
  setReady(agent: AgentId): void;
  /** Begins the time after which an agent that was alive before we started counts as lost. */
  watch(agent: AgentId): void;
  /** It was heard of; the time until it counts as lost begins anew. */
  touch(agent: AgentId): void;
  noteClock(agent: AgentId, wallMs: number): void;
  /** Whether the agent reaches its container engine; true when that is news. */
  noteEngine(agent: AgentId, reachable: boolean): boolean;
  noteUsage(agent: AgentId, usage: UsageReport): void;
  view(
    agent: AgentId,
  ): Pick<Memory, "ready" | "lastSeen" | "lostSince" | "skewMs" | "engineReachable" | "usage">;
  kernelUsage(agent: AgentId, kernelId: string): { at: WallMs; usage: KernelUsage } | undefined;
  readyCount(): number;
  /** The agent was removed: tells it, cuts everything it has open and forgets it. */
  expel(agent: AgentId): Promise<void>;
  close(): void;
}

/** Time for the word of its removal to reach an agent before its connections are cut, in ms. */
const FAREWELL_MS = 500;

export function createAgentHub(deps: HubDeps): AgentHub {
  const { clock, broker, lostAfterMs } = deps;
  const agents = new Map<AgentId, Memory>();

  function memory(agent: AgentId): Memory {
    const known = agents.get(agent);
    if (known !== undefined) return known;
    const fresh: Memory = {
      link: undefined,
      ready: false,
      lastSeen: null,
      lostSince: null,
      skewMs: 0,
      engineReachable: true,
      usage: undefined,
      lostTimer: () => {},
    };
    agents.set(agent, fresh);
    return fresh;
  }

  function armLost(agent: AgentId): void {
    const entry = memory(agent);
    entry.lostTimer();
    entry.lostTimer = clock.after(lostAfterMs, () => {
      entry.lostSince = entry.lastSeen ?? clock.wall();
      // A link that says nothing is dead, whatever the network thinks of it.
      entry.link?.close();
      deps.onLost(agent);
    });
  }

  const send: AgentPort["send"] = async (agent, body) => {
    const link = agents.get(agent)?.link;
    const away = "The node is not connected to the manager now. Try again when it is back.";
    if (link === undefined) throw new BerthError("agent-unreachable", away);
    try {
      await link.send({ body });
    } catch (cause) {
      throw new BerthError("agent-unreachable", away, { cause });
    }
  };

  const openStream: AgentPort["openStream"] = async (agent, target, signal) => {
    signal?.throwIfAborted();
    const streamId = randomUUID();
    const expected = broker.expect(agent, streamId);
    // Looked at below; a failure before that must not count as unhandled.
    expected.catch(() => {});
    const giveUp = () =>
      broker.fail(agent, streamId, new BerthError("stream-cut", "Nobody waits for it any more."));
    signal?.addEventListener("abort", giveUp, { once: true });
    try {
      await send(agent, { $case: "openStream", value: { streamId, target } });
      return await expected;
    } catch (error) {
      giveUp();
      throw error;
    } finally {
      signal?.removeEventListener("abort", giveUp);
    }
  };

  return {
    send,
    openStream,
    ready: (agent) => agents.get(agent)?.ready ?? false,
    attach: (agent, link) => {
      const entry = memory(agent);
      const before = entry.link;
      entry.link = link;
      entry.ready = false;
      entry.lostSince = null;
      before?.close();
    },
    detach: (agent, link) => {
      const entry = memory(agent);
      if (entry.link !== link) return false;
      entry.link = undefined;
      entry.ready = false;
      broker.cut(agent);
      return true;
    },
    connected: (agent) => agents.get(agent)?.link !== undefined,
    isCurrent: (agent, link) => agents.get(agent)?.link === link,
    setReady: (agent) => {
      memory(agent).ready = true;
    },
    watch: armLost,
    touch: (agent) => {
      memory(agent).lastSeen = clock.wall();
      armLost(agent);
    },
    noteClock: (agent, wallMs) => {
      memory(agent).skewMs = wallMs - clock.wall();
    },
    noteEngine: (agent, reachable) => {
      const entry = memory(agent);
      const news = entry.engineReachable !== reachable;
      entry.engineReachable = reachable;
      return news;
    },
    noteUsage: (agent, usage) => {
      memory(agent).usage = usage;
    },
    view: (agent) => memory(agent),
    kernelUsage: (agent, kernelId) => {
      const report = agents.get(agent)?.usage;
      const usage = report?.kernels.find((kernel) => kernel.kernelId === kernelId);
      return report === undefined || usage === undefined ? undefined : { at: report.wallMs, usage };
    },
    readyCount: () => [...agents.values()].filter((entry) => entry.ready).length,
    expel: async (agent) => {
      const entry = agents.get(agent);
      agents.delete(agent);
      entry?.lostTimer();
      broker.cut(agent);
      if (entry?.link !== undefined) {
        const message =
          "This node was removed from the cluster. To bring it back, join it again with a new token.";
        const body = { $case: "refused" as const, value: { code: "removed", message, retry: false } };
        // Sent is not received: the agent closes the link when it has read this.
        await entry.link.send({ body }).catch(() => {});
        await Promise.race([entry.link.closed, clock.sleep(FAREWELL_MS)]);
        entry.link.close();
      }
      deps.cut(agent);
    },
    close: () => {
      for (const entry of agents.values()) {
        entry.lostTimer();
        entry.link?.close();
      }
      agents.clear();
    },
  };
}
