import { stat } from "node:fs/promises";
import { networkInterfaces } from "node:os";
import { join } from "node:path";
import { ALL_ROUTES } from "../contract/api.ts";
import type { Clock } from "../kit/clock.ts";
import { prepareDataDir } from "../kit/data-dir.ts";
import { BerthError } from "../kit/errors.ts";
import { tryFileLock } from "../kit/file-lock.ts";
import type { Logger } from "../kit/log.ts";
import { createShutdown, type Shutdown } from "../kit/shutdown.ts";
import { COMMIT, VERSION } from "../kit/version.ts";
import { createAgentListener } from "../wire/listener.ts";
import { type Accounts, createAccounts } from "./accounts/accounts.ts";
import { ensureFirstAdmin, type FirstAdmin, updateFirstAdminUrl } from "./accounts/first-admin.ts";
import { type Cluster, createCluster } from "./cluster.ts";
import { agentAddress, isLoopback, type ManagerConfig } from "./config.ts";
import { createEventLog, type EventLog } from "./events/log.ts";
import { eventApi } from "./events/stream.ts";
import { type Api, createApi } from "./http/api.ts";
import { createClientReader, createProxyTest } from "./http/client.ts";
import { createIdempotency, type Idempotency } from "./http/idempotency.ts";
import { createMetrics, gaugeOf, type Metrics } from "./http/metrics.ts";
import { loadPages } from "./http/pages.ts";
import { type HttpServer, startHttpServer, type TlsFiles } from "./http/server.ts";
import { loadClusterKeys, loadSelfSigned } from "./keys.ts";
import { policyApi } from "./policies/routes.ts";
import { createPolicies } from "./policies/service.ts";
import { openStore, type Store } from "./store/store.ts";
import { systemApi } from "./system/routes.ts";
import { readTlsFiles } from "./tls-files.ts";

export type ManagerOptions = {
  readonly config: ManagerConfig;
  readonly clock: Clock;
  readonly log: Logger;
};

export type RunningManager = {
  /** Where people reach it. */
  readonly url: string;
  readonly agentPort: number;
  /** The superadmin that this start made, on the first one alone. */
  readonly firstAdmin: FirstAdmin | undefined;
  /** Agents that take sessions now. */
  agentsReady(): number;
  /** The text of a token with which one node may join within an hour. */
  createJoinToken(): Promise<string>;
  /** Stops within 5 s; sessions run on. */
  stop(): Promise<void>;
};

/** So that all parts together stop within 5 s. */
const PART_LIMIT_MS = 700;
const HTTP_GRACE_MS = 300;
const SHORT_CARE_MS = 60_000;
const LONG_CARE_MS = 10 * 60_000;
const EVENTS_KEPT = { maxAgeMs: 7 * 24 * 3_600_000, maxRows: 200_000 };

const DATABASE = "berth.sqlite";
const LOCK = "lock";

const sizeOf = async (path: string) => (await stat(path).catch(() => undefined))?.size ?? 0;

function lockDataDir(dataDir: string, shutdown: Shutdown): void {
  prepareDataDir(dataDir, [LOCK, DATABASE]);
  const lock = tryFileLock(join(dataDir, LOCK));
  if (lock === undefined) {
    throw new BerthError(
      "data-dir-in-use",
      `Another manager runs on ${dataDir}: stop it, or give this one its own --data-dir.`,
      { field: "dataDir" },
    );
  }
  shutdown.add("lock", () => lock.release());
}

async function tlsFor(config: ManagerConfig, { clock, log }: ManagerOptions): Promise<TlsFiles | undefined> {
  const { tlsCert, tlsKey, behindProxy, listen, dataDir, publicUrl } = config;
  if (tlsCert !== undefined && tlsKey !== undefined) return readTlsFiles(tlsCert, tlsKey);
  if (behindProxy || isLoopback(listen.host)) return undefined;
  const hosts = publicUrl === undefined ? [] : [new URL(publicUrl).hostname];
  return loadSelfSigned({ dataDir, hosts, clock, log });
}

/** An address of this machine that others can use, where it listens on all of them. */
function reachableHost(host: string): string {
  if (host !== "0.0.0.0" && host !== "::") return host;
  const addresses = Object.values(networkInterfaces()).flatMap((list) => list ?? []);
  return addresses.find(({ internal, family }) => !internal && family === "IPv4")?.address ?? "localhost";
}

function urlOf(config: ManagerConfig, port: number, secure: boolean): string {
  if (config.publicUrl !== undefined) return config.publicUrl.replace(/\/+$/, "");
  const host = reachableHost(config.listen.host);
  return `${secure ? "https" : "http"}://${host.includes(":") ? `[${host}]` : host}:${port}`;
}

type Care = {
  readonly store: Store;
  readonly accounts: Accounts;
  readonly events: EventLog;
  readonly idempotency: Idempotency;
  readonly cluster: Cluster;
};

/** What is done now and then so that nothing grows for ever. */
function startCare(
  { accounts, events, idempotency, cluster }: Care,
  options: ManagerOptions,
  shutdown: Shutdown,
) {
  const { clock, log } = options;
  const attempt = (what: string, task: () => Promise<unknown>) => () => {
    task().catch((err: unknown) => log.warn({ err }, `${what} failed`));
  };
  const stops = [
    clock.every(SHORT_CARE_MS, attempt("writing down the use of tokens", accounts.authenticator.flush)),
    clock.every(
      LONG_CARE_MS,
      attempt("tidying up", async () => {
        await events.prune(EVENTS_KEPT);
        await idempotency.prune();
        await accounts.logins.prune();
        await cluster.prune();
      }),
    ),
  ];
  shutdown.add("care", async () => {
    for (const stop of stops) stop();
    await accounts.authenticator.flush();
  });
}

type ApiParts = Care & {
  readonly metrics: Metrics;
  readonly policyRoutes: ReturnType<typeof policyApi>;
  readonly notReady: () => string | undefined;
};

async function buildApi(parts: ApiParts, { config, clock, log }: ManagerOptions): Promise<Api> {
  const { store, accounts, events, idempotency, cluster, metrics, policyRoutes, notReady } = parts;
  return createApi({
    routes: [
      ...accounts.routes,
      ...policyRoutes,
      ...cluster.routes,
      ...eventApi({ log: events, clock, sessionId: cluster.sessionId }),
      ...systemApi({
        clusterId: store.clusterId,
        notReady,
        agentsReady: cluster.agentsReady,
        metrics,
        contract: ALL_ROUTES,
      }),
    ],
    contract: ALL_ROUTES,
    pages: await loadPages(),
    authenticate: accounts.authenticator.authenticate,
    revocations: accounts.revocations,
    idempotency,
    readClient: createClientReader(config),
    publicOrigin: config.publicUrl === undefined ? undefined : new URL(config.publicUrl).origin,
    clock,
    log,
    onServed: metrics.served,
    // Costs time on every answer; the tests look at all of them.
    checkAnswers: process.env.BERTH_CHECK_ANSWERS === "1",
  });
}

async function start(options: ManagerOptions, shutdown: Shutdown): Promise<Omit<RunningManager, "stop">> {
  const { config, clock, log } = options;
  const { dataDir } = config;
  lockDataDir(dataDir, shutdown);
  const store = await openStore({
    path: join(dataDir, DATABASE),
    backupDir: join(dataDir, "backups"),
    clock,
    log,
  });
  shutdown.add("store", store.close);
  const { ca, serverCert } = await loadClusterKeys({ dataDir, clusterId: store.clusterId, clock });
  const tls = await tlsFor(config, options);

  const events = createEventLog({ store, clock, log });
  const policies = createPolicies({ store, clock });
  await policies.ensureDefault();
  const accounts = createAccounts({ store, clock, log, events, policies });
  const idempotency = createIdempotency({ store, clock });
  await idempotency.recover();
  const plannedUrl = urlOf(config, config.listen.port, tls !== undefined);
  const firstAdmin = await ensureFirstAdmin({
    store,
    clock,
    passwords: accounts.passwords,
    policies,
    dataDir,
    url: plannedUrl,
  });

  const servers: HttpServer[] = [];
  const metrics = createMetrics({
    version: VERSION,
    commit: COMMIT,
    connections: () => servers.reduce((sum, server) => sum + server.connections(), 0),
  });
  gaugeOf(
    metrics.registry,
    { name: "berth_store_bytes", help: "Size of the database and its write-ahead log.", labels: ["file"] },
    async () => [
      [{ file: "database" }, await sizeOf(join(dataDir, DATABASE))],
      [{ file: "log" }, await sizeOf(join(dataDir, `${DATABASE}-wal`))],
    ],
  );
  const cluster = await createCluster({ store, clock, log, events, policies, accounts, ca, config, metrics });
  shutdown.add("cluster", cluster.stop);
  let state: "starting" | "ready" | "stopping" = "starting";
  const care = { store, accounts, events, idempotency, cluster };
  const notReady = () => (state === "ready" ? undefined : `The manager is ${state}.`);
  const api = await buildApi({ ...care, metrics, policyRoutes: policyApi(policies), notReady }, options);

  const agents = agentAddress(config);
  const listener = await createAgentListener({
    clusterId: store.clusterId,
    caPem: ca.certPem,
    serverCert,
    host: agents.host,
    port: agents.port,
    clock,
    log,
    ...cluster.wire,
  });
  shutdown.add("agent listener", listener.close);
  cluster.listening(listener);

  const isProxy = createProxyTest(config);
  const exempt = (address: string) => isLoopback(address) || isProxy(address);
  const serve = async (
    listen: Parameters<typeof startHttpServer>[0]["listen"],
    secure: TlsFiles | undefined,
  ) => {
    const server = await startHttpServer({ api, clock, log, listen, tls: secure, exempt });
    servers.push(server);
    shutdown.add("HTTP server", () => server.close(HTTP_GRACE_MS));
    return server;
  };
  const { port } = await serve(config.listen, tls);
  await serve({ path: join(dataDir, "admin.sock") }, undefined);
  const url = urlOf(config, port, tls !== undefined);
  if (url !== plannedUrl) await updateFirstAdminUrl(dataDir, url);
  startCare(care, options, shutdown);
  await cluster.start();
  state = "ready";
  shutdown.add("requests", () => {
    state = "stopping";
    api.stop();
  });
  log.info({ url, agentPort: listener.port, version: VERSION }, "the manager is ready");

  return {
    url,
    agentPort: listener.port,
    firstAdmin: firstAdmin === undefined ? undefined : { ...firstAdmin, url },
    agentsReady: cluster.agentsReady,
    createJoinToken: cluster.createJoinToken,
  };
}

/**
 * Builds every part of the manager and starts them in order. What was started is stopped again when a later part
 * fails. Throws BerthErrors for people: `data-dir-in-use`, `port-in-use`, `schema-too-new`, `invalid-config`.
 */
export async function startManager(options: ManagerOptions): Promise<RunningManager> {
  const { clock, log } = options;
  const shutdown = createShutdown({ clock, limitMs: PART_LIMIT_MS, log });
  try {
    return { ...(await start(options, shutdown)), stop: shutdown.run };
  } catch (err) {
    await shutdown.run();
    throw err;
  }
}
