import { clusterRoutes } from "../../contract/cluster.ts";
import { handle, type Mounted } from "../http/handle.ts";
import type { GroupService } from "./service.ts";

export function groupRoutes(groups: GroupService): readonly Mounted[] {
  return [
    handle(clusterRoutes.listGroups, ({ principal, query }) => groups.list(principal, query)),
    handle(clusterRoutes.createGroup, ({ body }) => groups.create(body)),
    handle(clusterRoutes.getGroup, ({ principal, params }) => groups.get(principal, params.group)),
    handle(clusterRoutes.updateGroup, ({ params, body }) => groups.update(params.group, body)),
    handle(clusterRoutes.removeGroup, ({ params }) => groups.remove(params.group)),
  ];
}
