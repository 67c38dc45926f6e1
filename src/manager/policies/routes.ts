import { clusterRoutes as routes } from "../../contract/cluster.ts";
import { handle, type Mounted } from "../http/handle.ts";
import type { PolicyLimits } from "./limits.ts";
import type { Policies } from "./service.ts";

export function policyApi(policies: Policies): readonly Mounted[] {
  return [
    handle(routes.listPolicies, ({ query }) => policies.list(query)),
    handle(routes.updatePolicy, ({ params, body }) => {
      const given = Object.entries(body.limits).filter(([, value]) => value !== undefined);
      return policies.update(params.policy, Object.fromEntries(given) satisfies Partial<PolicyLimits>);
    }),
  ];
}
