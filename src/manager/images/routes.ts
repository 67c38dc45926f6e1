import { imageRoutes as routes } from "../../contract/images.ts";
import { handle, type Mounted } from "../http/handle.ts";
import type { ImageService } from "./service.ts";

export function imageRoutes(images: ImageService): readonly Mounted[] {
  return [
    handle(routes.list, ({ query }) => images.list(query)),
    handle(routes.add, ({ body }) => images.add(body)),
    handle(routes.get, ({ params }) => images.get(params.image)),
    handle(routes.remove, ({ params, query }) => images.remove(params.image, query.nodes === "true")),
    handle(routes.pull, ({ params, body }) => images.pull(params.image, body.agents)),
    handle(routes.cancelPull, ({ params }) => images.cancelPull(params.image)),
  ];
}
