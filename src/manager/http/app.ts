import { type Context, Hono } from "hono";
import { methodNotAllowed } from "hono/method-not-allowed";
import type { Clock } from "../../kit/clock.ts";
import { type Bindings, notAllowed, pathNotFound } from "./exchange.ts";
import type { Mounted } from "./handle.ts";
import type { Page } from "./pages.ts";
import type { Pipeline } from "./pipeline.ts";

type AppEnv = { Bindings: Bindings; Variables: { route?: string } };
export type App = Hono<AppEnv>;

/** One answer, as metrics count it. */
export type Served = {
  /** The id of the route, or `page`, `wrong-method`, `none`. */
  readonly route: string;
  readonly method: string;
  readonly status: number;
  /** Until the answer was made; streams count until they end. */
  readonly ms: number;
};

export type AppOptions = {
  readonly routes: readonly Mounted[];
  readonly pages: ReadonlyMap<string, Page>;
  /** Answers a request for a route; parameters are as they are in the path, still encoded. */
  readonly serve: Pipeline;
  /** The answer for anything that was thrown. */
  readonly refuse: (bindings: Bindings, thrown: unknown) => Response;
  readonly clock: Clock;
  readonly onServed: (served: Served) => void;
};

/** Hono takes the first that fits in the order of mounting: fixed segments must come before parameters. */
function byPrecision(routes: readonly Mounted[]): Mounted[] {
  const rank = ({ route }: Mounted) => route.path.replaceAll(/\{\w+\}/g, "\uffff");
  return routes.toSorted((a, b) => (rank(a) < rank(b) ? -1 : 1));
}

function checkPaths(routes: readonly Mounted[]): void {
  const seen = new Set<string>();
  for (const { route } of routes) {
    const name = `${route.method} ${route.path}`;
    if (seen.has(name)) throw new TypeError(`${name} is mounted twice`);
    seen.add(name);
  }
}

/** The Hono app: finds the route or page of a request, and answers for what is neither. */
export function createApp({ routes, pages, serve, refuse, clock, onServed }: AppOptions): App {
  checkPaths(routes);
  const app: App = new Hono({
    // The path as it came. Hono decodes parameters once and lets faults pass, so it is shown one more level of encoding:
    // what it hands out is then the raw text, and an encoded slash stays part of its parameter.
    getPath: (_request, options) => (options?.env?.exchange.path ?? "/").replaceAll("%", "%25"),
  });

  app.use(async (c, next) => {
    const started = clock.mono();
    await next();
    if (c.env.target.kind === "upgrade") return;
    const { status } = c.res;
    const route = c.get("route") ?? (status === 405 ? "wrong-method" : "none");
    onServed({ route, method: c.env.exchange.method, status, ms: clock.mono() - started });
  });
  app.use(
    methodNotAllowed({
      app,
      onMethodNotAllowed: (c: Context<AppEnv>, methods) =>
        refuse(c.env, notAllowed(c.env.exchange.method, methods.toSorted())),
    }),
  );
  for (const mounted of byPrecision(routes)) {
    const { id, method, path } = mounted.route;
    app.on(method, path.replaceAll(/\{(\w+)\}/g, ":$1"), (c) => {
      c.set("route", id);
      return serve(c.env, mounted, c.req.param());
    });
  }
  for (const [path, { body, headers }] of pages) {
    app.get(path, (c) => {
      c.set("route", "page");
      return c.body(body, 200, headers);
    });
  }
  app.notFound((c) => refuse(c.env, pathNotFound(c.env.exchange.path)));
  app.onError((err, c) => refuse(c.env, err));
  return app;
}
