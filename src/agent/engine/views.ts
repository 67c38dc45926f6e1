import type { ContainerInspectInfo } from "dockerode";
import type { ContainerState, ContainerView, Ownership } from "./engine.ts";
import { isOwn, LABEL, refOfLabels } from "./names.ts";

/** Milliseconds of the engine's time stamps; 0 for "never". */
export function engineTime(text: string | undefined): number {
  const at = Date.parse(text ?? "");
  return Number.isNaN(at) || at < 0 ? 0 : at;
}

type State = Pick<
  ContainerInspectInfo["State"],
  "Status" | "Running" | "Pid" | "ExitCode" | "OOMKilled" | "Error" | "StartedAt" | "FinishedAt"
>;

/** A container's state. One whose start was refused counts as ended: it will never run. */
export function containerState(state: State, oomSeen: boolean): ContainerState {
  const startedAt = engineTime(state.StartedAt);
  if (state.Running) return { kind: "running", pid: state.Pid, startedAt };
  if (state.Status === "created" && state.Error === "") return { kind: "created" };
  return {
    kind: "exited",
    exitCode: state.ExitCode,
    oomKilled: state.OOMKilled || oomSeen,
    startedAt,
    endedAt: engineTime(state.FinishedAt),
    error: state.Error,
  };
}

/** A container as the agent sees it; undefined when it is not a kernel of this agent. */
export function containerView(
  owner: Ownership,
  info: Pick<ContainerInspectInfo, "Id"> & {
    readonly State: State;
    readonly Config: Pick<ContainerInspectInfo["Config"], "Labels">;
  },
  oomSeen: boolean,
): ContainerView | undefined {
  const labels = info.Config.Labels ?? {};
  const ref = refOfLabels(labels);
  if (ref === undefined || !isOwn(owner, labels)) return undefined;
  return {
    ...ref,
    containerId: info.Id,
    epoch: Number(labels[LABEL.epoch] ?? 0) || 0,
    state: containerState(info.State, oomSeen),
    labels,
  };
}
