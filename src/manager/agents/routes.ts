import { clusterRoutes as routes } from "../../contract/cluster.ts";
import { asId, type JoinTokenId } from "../../kit/ids.ts";
import { actorOf } from "../accounts/principal.ts";
import { handle, type Mounted } from "../http/handle.ts";
import type { AgentService } from "./service.ts";
import type { JoinTokens } from "./tokens.ts";

export function agentRoutes(agents: AgentService, tokens: JoinTokens): readonly Mounted[] {
  return [
    handle(routes.listAgents, ({ principal, query }) => agents.list(principal, query)),
    handle(routes.getAgent, ({ principal, params }) => agents.get(principal, params.agent)),
    handle(routes.updateAgent, ({ params, body }) => agents.update(params.agent, body)),
    handle(routes.removeAgent, ({ params, query, principal }) =>
      agents.remove(params.agent, query.force === "true", actorOf(principal)),
    ),
    handle(routes.listJoinTokens, ({ query }) => tokens.list(query)),
    handle(routes.createJoinToken, ({ body, principal }) =>
      tokens.create({ ttl: body.ttl, uses: body.uses, group: body.group ?? null, actor: actorOf(principal) }),
    ),
    handle(routes.deleteJoinToken, ({ params }) => tokens.remove(asId<JoinTokenId>(params.joinToken))),
  ];
}
