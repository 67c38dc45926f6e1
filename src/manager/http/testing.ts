import { ALL_ROUTES } from "../../contract/api.ts";
import { type Problem, problem } from "../../contract/errors.ts";
import type { Role } from "../../contract/permissions.ts";
import type { Route } from "../../contract/route.ts";
import { type ManualClock, manualClock, systemClock } from "../../kit/clock.ts";
import { BerthError } from "../../kit/errors.ts";
import { silentLogger } from "../../kit/log.ts";
import { type Accounts, createAccounts } from "../accounts/accounts.ts";
import type { UserPrincipal } from "../accounts/principal.ts";
import { createEventLog, type EventLog } from "../events/log.ts";
import { eventApi } from "../events/stream.ts";
import { policyApi } from "../policies/routes.ts";
import { createPolicies } from "../policies/service.ts";
import type { Store } from "../store/store.ts";
import { openTestStore } from "../store/testing.ts";
import { systemApi } from "../system/routes.ts";
import { createApi } from "./api.ts";
import { createClientReader } from "./client.ts";
import type { Mounted } from "./handle.ts";
import { createIdempotency } from "./idempotency.ts";
import { createMetrics } from "./metrics.ts";
import { loadPages } from "./pages.ts";
import { type HttpServer, type HttpServerOptions, startHttpServer } from "./server.ts";

/** Told by a route that the test mounts nothing for: the request came through access and schemas. */
export const STUB = "stub-reached";

function stub(route: Route): Mounted {
  const reached = async (): Promise<never> => {
    throw new BerthError(STUB, "The request reached its handler.");
  };
  if (route.access.kind === "public") return { kind: "public", route, run: reached };
  if (route.answer.kind === "stream") return { kind: "stream", route, run: reached };
  if (route.answer.kind === "websocket") return { kind: "websocket", route, run: reached };
  return { kind: "answer", whole: false, route, run: reached };
}

export type TestApi = {
  readonly url: string;
  readonly clock: ManualClock;
  readonly store: Store;
  readonly events: EventLog;
  readonly accounts: Accounts;
  readonly server: HttpServer;
  /** A new user with an API token. */
  newUser(
    role: Role,
    email?: string,
  ): Promise<{ principal: UserPrincipal; secret: string; password: string }>;
  /** `fetch` below the server's URL; `token` becomes the Authorization header and `json` the body. */
  call(method: string, path: string, options?: CallOptions): Promise<Response>;
  close(): Promise<void>;
};

export type CallOptions = {
  readonly token?: string;
  readonly json?: unknown;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string | Uint8Array<ArrayBuffer>;
  readonly unix?: string;
};

export type TestApiOptions = {
  /** Handlers of the routes under test; all others are stubs. */
  readonly routes?: (parts: { readonly events: EventLog; readonly store: Store }) => readonly Mounted[];
  readonly server?: Partial<Pick<HttpServerOptions, "listen" | "tls" | "limits" | "exempt">>;
  readonly behindProxy?: boolean;
};

/** A real HTTP server on a free port over a store in a temporary folder, with accounts and stubs for the rest. */
export async function startTestApi(options: TestApiOptions = {}): Promise<TestApi> {
  const clock = manualClock();
  const store = await openTestStore(clock);
  const log = silentLogger;
  const events = createEventLog({ store, clock, log });
  const policies = createPolicies({ store, clock });
  await policies.ensureDefault();
  const passwordCost = { memoryKiB: 1024, passes: 2 };
  const accounts = createAccounts({ store, clock, log, events, policies, passwordCost });
  const metrics = createMetrics({ version: "test", commit: "test", connections: () => server.connections() });
  const mounted = [
    ...accounts.routes,
    ...policyApi(policies),
    ...eventApi({ log: events, clock, sessionId: async (_principal, key) => key }),
    ...systemApi({
      clusterId: store.clusterId,
      notReady: () => undefined,
      agentsReady: () => 0,
      metrics,
      contract: ALL_ROUTES,
    }),
    ...(options.routes?.({ events, store }) ?? []),
  ];
  const ids = new Set(mounted.map(({ route }) => route.id));
  const api = createApi({
    routes: [...mounted, ...ALL_ROUTES.filter(({ id }) => !ids.has(id)).map(stub)],
    contract: ALL_ROUTES,
    pages: await loadPages(),
    authenticate: accounts.authenticator.authenticate,
    revocations: accounts.revocations,
    idempotency: createIdempotency({ store, clock }),
    readClient: createClientReader({ behindProxy: options.behindProxy ?? false, trustedProxies: [] }),
    publicOrigin: undefined,
    // Connections are timed by the real clock: a test that moves time must not lose them.
    clock: systemClock,
    log,
    onServed: metrics.served,
    checkAnswers: true,
  });
  const listen = { host: "127.0.0.1", port: 0 };
  const server: HttpServer = await startHttpServer({
    api,
    clock: systemClock,
    log,
    listen,
    ...options.server,
  });
  const url = `${options.server?.tls === undefined ? "http" : "https"}://127.0.0.1:${server.port}`;
  let made = 0;

  return {
    url,
    clock,
    store,
    events,
    accounts,
    server,
    newUser: async (role, email = `${role}${++made}@lab.test`) => {
      const request = { email, role, uid: 1000, gid: 1000 };
      const { user, password } = await accounts.users.create(request, { kind: "local" });
      const login = await accounts.logins.login({ email, password: password ?? "", address: "setup" });
      const owner = await accounts.authenticator.authenticate(login.secret);
      const { secret } = await accounts.tokens.create(owner, "test", undefined);
      const principal = await accounts.authenticator.authenticate(secret);
      if (principal.userId !== user.id) throw new Error("the token is another's");
      return { principal, secret, password: password ?? "" };
    },
    call: (method, path, { token, json, headers, body, unix } = {}) =>
      fetch(`${url}${path}`, {
        method,
        ...(unix === undefined ? {} : { unix }),
        redirect: "manual",
        tls: { rejectUnauthorized: false },
        headers: {
          ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
          ...(json === undefined ? {} : { "content-type": "application/json" }),
          ...headers,
        },
        ...(json === undefined ? (body === undefined ? {} : { body }) : { body: JSON.stringify(json) }),
      }),
    close: async () => {
      api.stop();
      await server.close(100);
      await store.close();
    },
  };
}

/** The problem that a refusal carries; checks that it is one. */
export async function readProblem(response: Response): Promise<Problem> {
  const read = problem.parse(await response.json());
  const type = response.headers.get("content-type") ?? "";
  if (!type.startsWith("application/problem+json") || read.status !== response.status) {
    throw new Error(`no problem+json answer: ${response.status} ${type}`);
  }
  return read;
}
