import type { Clock, MonoMs } from "../../kit/clock.ts";
import type { AgentId, ImageId } from "../../kit/ids.ts";

/** One pull of an image on a node, asked for by an administrator. */
export type Pull = {
  readonly pullId: string;
  readonly image: ImageId;
  readonly agent: AgentId;
  readonly state: "pulling" | "failed";
  readonly phase: string;
  readonly doneBytes: number;
  readonly totalBytes: number;
  readonly message: string | null;
};

export interface Pulls {
  start(pull: Pick<Pull, "pullId" | "image" | "agent">): void;
  find(pullId: string): Pull | undefined;
  underWay(image: ImageId, agent: AgentId): Pull | undefined;
  of(image: ImageId): readonly Pull[];
  /** Takes progress; true when it should be told now. */
  update(pullId: string, change: Partial<Pull>): boolean;
  /** Done, or gone with its node. */
  end(pullId: string): void;
  endOf(agent: AgentId): readonly Pull[];
}

const LEAST_BETWEEN_MS = 1_000;

/** The pulls that were asked for, in memory: a failed one stays until the next pull of that image there. */
export function createPulls(clock: Clock): Pulls {
  const pulls = new Map<string, { pull: Pull; told: MonoMs }>();
  const all = () => [...pulls.values()].map((entry) => entry.pull);

  return {
    start: ({ pullId, image, agent }) => {
      for (const old of all()) if (old.image === image && old.agent === agent) pulls.delete(old.pullId);
      const fresh = {
        state: "pulling" as const,
        phase: "queued",
        doneBytes: 0,
        totalBytes: 0,
        message: null,
      };
      pulls.set(pullId, { pull: { pullId, image, agent, ...fresh }, told: clock.mono() });
    },
    find: (pullId) => pulls.get(pullId)?.pull,
    underWay: (image, agent) =>
      all().find((pull) => pull.image === image && pull.agent === agent && pull.state === "pulling"),
    of: (image) => all().filter((pull) => pull.image === image),
    update: (pullId, change) => {
      const entry = pulls.get(pullId);
      if (entry === undefined) return false;
      const before = entry.pull;
      entry.pull = { ...before, ...change };
      const step = before.phase !== entry.pull.phase || before.state !== entry.pull.state;
      const due = step || clock.mono() - entry.told >= LEAST_BETWEEN_MS;
      if (due) entry.told = clock.mono();
      return due;
    },
    end: (pullId) => pulls.delete(pullId),
    endOf: (agent) => {
      const mine = all().filter((pull) => pull.agent === agent && pull.state === "pulling");
      for (const pull of mine) pulls.delete(pull.pullId);
      return mine;
    },
  };
}
