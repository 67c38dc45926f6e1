import { readFile } from "node:fs/promises";
import { hostname, networkInterfaces } from "node:os";
import { join } from "node:path";
import { writeFileAtomic } from "../kit/atomic-file.ts";
import type { Clock } from "../kit/clock.ts";
import { BerthError } from "../kit/errors.ts";
import type { ClusterId } from "../kit/ids.ts";
import type { Logger } from "../kit/log.ts";
import { type Ca, createCa, issueServerCertificate, loadCa, selfSignedHttps } from "../wire/ca.ts";
import { type KeyedCertificate, needsRenewal } from "../wire/certificates.ts";

/** Certificate and key share one file, so that a crash cannot leave the one without the other. */
const CA_FILE = "ca.pem";
const HTTPS_FILE = "https.pem";

async function readText(path: string): Promise<string | undefined> {
  try {
    return await readFile(path, "utf8");
  } catch (err) {
    if (err instanceof Error && "code" in err && err.code === "ENOENT") return undefined;
    throw err;
  }
}

function split(text: string): KeyedCertificate | undefined {
  const certPem = /-----BEGIN CERTIFICATE-----[\s\S]*-----END CERTIFICATE-----\n?/.exec(text)?.[0];
  const keyPem = /-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*-----END [A-Z ]*PRIVATE KEY-----\n?/.exec(
    text,
  )?.[0];
  return certPem === undefined || keyPem === undefined ? undefined : { certPem, keyPem };
}

async function keep(path: string, pair: KeyedCertificate): Promise<void> {
  await writeFileAtomic(path, `${pair.certPem.trim()}\n${pair.keyPem.trim()}\n`);
}

/** Every name and address that this machine is likely to be reached by. */
export function ownHosts(more: readonly string[] = []): string[] {
  const addresses = Object.values(networkInterfaces())
    .flatMap((list) => list ?? [])
    .filter(({ address }) => !address.startsWith("fe80:"))
    .map(({ address }) => address);
  return [...new Set([hostname(), "localhost", ...addresses, ...more])].filter((host) => host !== "");
}

export type ClusterKeys = { readonly ca: Ca; readonly serverCert: KeyedCertificate };

/**
 * The cluster's CA, made on the first start, and a certificate for the port of the agents. A damaged CA stops the
 * start: making another one would lock out every agent.
 */
export async function loadClusterKeys(options: {
  readonly dataDir: string;
  readonly clusterId: ClusterId;
  readonly clock: Clock;
}): Promise<ClusterKeys> {
  const { dataDir, clusterId, clock } = options;
  const path = join(dataDir, CA_FILE);
  const text = await readText(path);
  let pair = text === undefined ? await createCa(clock) : split(text);
  if (pair === undefined) {
    throw new BerthError("bad-certificate", `${path} does not hold a certificate and its key: restore it.`);
  }
  if (text === undefined) await keep(path, pair);
  pair = { certPem: pair.certPem, keyPem: pair.keyPem };
  const ca = await loadCa(pair);
  const serverCert = await issueServerCertificate(ca, { clusterId, hosts: ownHosts(), clock });
  return { ca, serverCert };
}

/** The dashboard's own certificate: kept, so that what browsers and clients remembered stays true; renewed in time. */
export async function loadSelfSigned(options: {
  readonly dataDir: string;
  readonly hosts: readonly string[];
  readonly clock: Clock;
  readonly log: Logger;
}): Promise<KeyedCertificate> {
  const { dataDir, hosts, clock, log } = options;
  const path = join(dataDir, HTTPS_FILE);
  const kept = split((await readText(path)) ?? "");
  if (kept !== undefined && !needsRenewal(kept.certPem, clock)) return kept;
  const made = await selfSignedHttps({ hosts: ownHosts(hosts), clock });
  await keep(path, made);
  log.info("made a certificate for HTTPS");
  return made;
}
