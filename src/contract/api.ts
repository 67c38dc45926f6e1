import { accountRoutes } from "./accounts.ts";
import { clusterRoutes } from "./cluster.ts";
import { imageRoutes } from "./images.ts";
import { sessionRoutes } from "./sessions.ts";
import { systemRoutes } from "./system.ts";

/** Every route of the public API. The server mounts exactly these, and OpenAPI is made from them. */
export const api = {
  sessions: sessionRoutes,
  images: imageRoutes,
  cluster: clusterRoutes,
  accounts: accountRoutes,
  system: systemRoutes,
};

export const ALL_ROUTES = [
  ...Object.values(accountRoutes),
  ...Object.values(sessionRoutes),
  ...Object.values(imageRoutes),
  ...Object.values(clusterRoutes),
  ...Object.values(systemRoutes),
];
