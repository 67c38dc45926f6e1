import type { Route } from "../../contract/route.ts";
import { systemRoutes as routes } from "../../contract/system.ts";
import { BerthError } from "../../kit/errors.ts";
import type { ClusterId } from "../../kit/ids.ts";
import { COMMIT, VERSION } from "../../kit/version.ts";
import { handlePublic, handleStream, type Mounted } from "../http/handle.ts";
import type { Metrics } from "../http/metrics.ts";
import { openApi } from "../http/openapi.ts";

export type SystemFacts = {
  readonly clusterId: ClusterId;
  /** Why requests cannot be served yet, or undefined. */
  notReady(): string | undefined;
  /** Agents that take new sessions now. */
  agentsReady(): number;
  readonly metrics: Metrics;
  readonly contract: readonly Route[];
};

async function* once(text: string): AsyncGenerator<string> {
  yield text;
}

export function systemApi(facts: SystemFacts): readonly Mounted[] {
  const description = openApi(facts.contract);
  return [
    handlePublic(routes.version, async () => ({
      version: VERSION,
      commit: COMMIT,
      clusterId: facts.clusterId,
      apiVersion: 1 as const,
    })),
    handlePublic(routes.health, async () => ({ status: "ok" as const })),
    handlePublic(routes.ready, async () => {
      const reason = facts.notReady();
      if (reason !== undefined) throw new BerthError("not-ready", reason);
      return { status: "ready" as const, agentsReady: facts.agentsReady() };
    }),
    handleStream(routes.metrics, async () => ({ body: once(await facts.metrics.text()) })),
    handlePublic(routes.openapi, async () => description),
  ];
}
