import type { Clock } from "../../kit/clock.ts";
import type { Logger } from "../../kit/log.ts";
import type { Engine } from "../engine/engine.ts";
import type { Supervisor } from "../kernels/supervisor.ts";
import type { LogStore } from "../logs/store.ts";
import type { ExecIds } from "./exec-ids.ts";

export type GatewayDeps = {
  readonly engine: Engine;
  readonly supervisor: Supervisor;
  readonly logs: LogStore;
  readonly execIds: ExecIds;
  readonly clock: Clock;
  readonly log: Logger;
};
