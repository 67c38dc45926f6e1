import { X509Certificate } from "node:crypto";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { BerthError, messageOf } from "../kit/errors.ts";
import { credentialsPath, readCredentials } from "./credentials.ts";
import type { Io } from "./io.ts";
import { fingerprintMatches, fingerprintOf, probeCertificate, type Trust } from "./tls.ts";

/** Which manager to talk to, how, and as whom. */
export type Target = {
  /** Origin without a slash at its end. */
  readonly url: string;
  readonly token?: string;
  /** Path of the manager's local socket, where root needs no token. */
  readonly socket?: string;
  readonly trust: Trust;
};

export const DEFAULT_DATA_DIR = "/var/lib/berth/manager";

/** The origin of a manager's address; `lab:7410` means https. Throws `invalid-url`. */
export function originOf(text: string): string {
  const withScheme = /^[a-z][a-z0-9+.-]*:\/\//i.test(text) ? text : `https://${text}`;
  const url = URL.canParse(withScheme) ? new URL(withScheme) : undefined;
  if (url === undefined || !["http:", "https:"].includes(url.protocol) || url.hostname === "") {
    throw new BerthError("invalid-url", `"${text}" is not an address such as https://lab.example:7410.`);
  }
  if (!["", "/"].includes(url.pathname) || url.username !== "" || url.search !== "") {
    throw new BerthError(
      "invalid-url",
      `"${text}" has more than scheme, host and port: give ${url.protocol}//${url.host}.`,
    );
  }
  return url.origin;
}

/** Trusts what a file with certificates vouches for. Throws `invalid-ca`. */
export function trustByFile(path: string): Trust {
  try {
    const pem = readFileSync(path, "utf8");
    const certificate = new X509Certificate(pem);
    const own = !certificate.ca && certificate.issuer === certificate.subject;
    // The manager's own certificate: it vouches for itself alone, under whatever name it is reached.
    return own ? { kind: "pinned", pem: certificate.toString() } : { kind: "ca", pem };
  } catch (error) {
    throw new BerthError("invalid-ca", `${path} is not a file with a certificate: ${messageOf(error)}.`);
  }
}

/** How to judge the certificate of an address that only the environment names. */
async function trustFromEnv(url: string, env: Io["env"]): Promise<Trust> {
  if (!url.startsWith("https:")) return { kind: "system" };
  if (env.BERTH_FINGERPRINT) return trustByFingerprint(url, env.BERTH_FINGERPRINT);
  return env.BERTH_CA ? trustByFile(env.BERTH_CA) : { kind: "system" };
}

/** Trusts the certificate that the address shows if, and only if, it has this fingerprint. */
export async function trustByFingerprint(url: string, fingerprint: string): Promise<Trust> {
  const probe = await probeCertificate(url);
  if (!fingerprintMatches(probe.pem, fingerprint)) {
    throw new BerthError(
      "wrong-fingerprint",
      `The certificate of ${url} has another fingerprint than was given: ${fingerprintOf(probe.pem)}.`,
    );
  }
  if (probe.trusted) return { kind: "system" };
  if (probe.selfSigned) return { kind: "pinned", pem: probe.pem };
  throw new BerthError(
    "certificate-not-trusted",
    `The certificate of ${url} is signed by an authority that this machine does not know. ` +
      "Give the authority's certificate: BERTH_CA=FILE, or --ca FILE when signing in.",
  );
}

function socketIn(dataDir: string): string | undefined {
  return [join(dataDir, "admin.sock"), join(dataDir, "manager", "admin.sock")].find(existsSync);
}

function localTarget(dataDir: string, io: Io): Target {
  const socket = socketIn(dataDir);
  if (socket !== undefined) return { url: "http://localhost", socket, trust: { kind: "system" } };
  const why = io.root ? "Is the manager running with that folder?" : "Only root can look into it.";
  throw new BerthError("unreachable", `There is no manager's socket in ${dataDir}. ${why}`);
}

/** Whether a target is configured at all, without connecting to it. */
export function hasTarget(io: Io): boolean {
  const { env } = io;
  if (env.BERTH_URL || env.BERTH_DATA_DIR) return true;
  return existsSync(credentialsPath(env)) || (io.root && socketIn(DEFAULT_DATA_DIR) !== undefined);
}

/**
 * Finds the manager: `--data-dir` first, then BERTH_URL with BERTH_TOKEN, BERTH_DATA_DIR, what `berth
 * login` kept, and at last, for root, the socket of a manager on this machine. BERTH_URL alone takes the token
 * that is kept for it; BERTH_TOKEN alone is refused. Throws `not-signed-in`.
 */
export async function findTarget(io: Io, dataDir: string | undefined): Promise<Target> {
  const { env } = io;
  if (dataDir !== undefined) return localTarget(dataDir, io);
  if (env.BERTH_TOKEN && !env.BERTH_URL) {
    // Half of a script's variables must not make it talk to whichever manager is found here.
    const sentence =
      "BERTH_TOKEN is set, but not BERTH_URL, so it is not known which manager it is for. Set both or neither.";
    throw new BerthError("not-signed-in", sentence);
  }
  const kept = env.BERTH_TOKEN ? undefined : readCredentials(credentialsPath(env));
  if (env.BERTH_URL) {
    const url = originOf(env.BERTH_URL);
    if (env.BERTH_TOKEN) return { url, token: env.BERTH_TOKEN, trust: await trustFromEnv(url, env) };
    if (kept?.url === url) return kept;
    throw new BerthError(
      "not-signed-in",
      `BERTH_URL names ${url}, but there is no token for it. Set BERTH_TOKEN, or run "berth login ${url}".`,
    );
  }
  if (env.BERTH_DATA_DIR) return localTarget(env.BERTH_DATA_DIR, io);
  if (kept !== undefined) return kept;
  if (io.root && socketIn(DEFAULT_DATA_DIR) !== undefined) return localTarget(DEFAULT_DATA_DIR, io);
  throw new BerthError(
    "not-signed-in",
    'Not signed in. Run "berth login URL", or set BERTH_URL and BERTH_TOKEN.',
  );
}
