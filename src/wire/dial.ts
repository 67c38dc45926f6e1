import { isIP } from "node:net";
import { connect, type TLSSocket } from "node:tls";
import type { Clock } from "../kit/clock.ts";
import { BerthError, messageOf } from "../kit/errors.ts";
import type { ClusterId } from "../kit/ids.ts";
import { createVerifier } from "./certificates.ts";

/** What the one port of the manager speaks; TLS tells them apart (ALPN). */
export const LINK_PROTOCOL = "h2";
export const DATA_PROTOCOL = "berth-data/1";
export const JOIN_PROTOCOL = "berth-join/1";

export type ManagerAddress = { readonly host: string; readonly port: number };

/** What an agent needs to prove itself and to know its manager. All PEM. */
export type AgentCredentials = {
  readonly clusterId: ClusterId;
  readonly caPem: string;
  readonly certPem: string;
  readonly keyPem: string;
};

export type DialOptions = ManagerAddress & {
  readonly protocol: typeof DATA_PROTOCOL | typeof JOIN_PROTOCOL;
  /** Undefined: whoever answers is taken, for reading the CA's certificate only. */
  readonly trust: { readonly caPem: string; readonly clusterId?: ClusterId } | undefined;
  readonly own?: { readonly certPem: string; readonly keyPem: string };
  readonly clock: Clock;
  readonly timeoutMs?: number;
};

export const DIAL_TIMEOUT_MS = 10_000;

export function unreachable({ host, port }: ManagerAddress, why: string): BerthError {
  const sentence = `The manager cannot be reached at ${host} port ${port}: ${why}.`;
  return new BerthError("manager-unreachable", sentence, { details: { host, port } });
}

/** The manager showed who it is and then cut the connection, which is how it turns certificates away. */
export function turnedAway({ host, port }: ManagerAddress): BerthError {
  const sentence =
    `The manager at ${host} port ${port} answers and cuts the connection. Most likely it does not accept this node's ` +
    "certificate, because the node was removed from the cluster or was away until the certificate expired. If so, make " +
    "a token on the manager with `berth join-token create` and start the agent with --manager URL --token TOKEN.";
  return new BerthError("manager-unreachable", sentence, { details: { host, port } });
}

export function notTrusted({ host, port }: ManagerAddress, why: string): BerthError {
  const sentence = `What answers at ${host} port ${port} is not the manager of this cluster: ${why}`;
  return new BerthError("manager-not-trusted", sentence, { details: { host, port } });
}

function handshake(options: DialOptions): Promise<TLSSocket> {
  const { host, port, protocol, trust, own, clock } = options;
  return new Promise((resolve, reject) => {
    const socket = connect({
      host,
      port,
      ALPNProtocols: [protocol],
      minVersion: "TLSv1.3",
      rejectUnauthorized: trust !== undefined,
      // The identity in the certificate is checked after the handshake; names may differ from what it was made for.
      checkServerIdentity: () => undefined,
      ...(isIP(host) === 0 && { servername: host }),
      ...(trust !== undefined && { ca: trust.caPem }),
      ...(own !== undefined && { cert: own.certPem, key: own.keyPem }),
    });
    const fail = (error: Error) => {
      cancel();
      socket.destroy();
      reject(error);
    };
    const cancel = clock.after(options.timeoutMs ?? DIAL_TIMEOUT_MS, () => {
      fail(unreachable(options, "no answer in time"));
    });
    socket.once("error", (error: Error) => fail(dialError(options, error)));
    socket.once("close", () => fail(unreachable(options, "the connection was closed")));
    socket.once("secureConnect", () => {
      cancel();
      // From here on the owner listens; a late error without a listener would end the process.
      socket.on("error", () => {});
      resolve(socket);
    });
  });
}

const CERTIFICATE_ERROR = /certificate|CERT_|issuer|self.signed/i;

function dialError(options: DialOptions, error: Error): BerthError {
  const said = `${"code" in error ? String(error.code) : ""} ${error.message}`;
  if (CERTIFICATE_ERROR.test(said)) return notTrusted(options, `${messageOf(error)}.`);
  return unreachable(options, messageOf(error));
}

/**
 * Connects to the manager with TLS 1.3 and verifies that it is the manager of the trusted cluster.
 * Throws `manager-unreachable` or `manager-not-trusted`.
 */
export async function dialManager(options: DialOptions): Promise<TLSSocket> {
  const { trust, clock } = options;
  const socket = await handshake(options);
  try {
    if (socket.alpnProtocol !== options.protocol) throw notTrusted(options, "it speaks another protocol.");
    if (trust === undefined) return socket;
    const { raw } = socket.getPeerCertificate(true);
    if (!socket.authorized || raw === undefined) throw notTrusted(options, "it showed no good certificate.");
    await checkManager(raw, { ...options, trust, clock });
    return socket;
  } catch (error) {
    socket.destroy();
    throw error;
  }
}

/** Throws `manager-not-trusted` unless the certificate is the manager's. */
export async function checkManager(
  certificate: Uint8Array,
  options: ManagerAddress & { trust: { caPem: string; clusterId?: ClusterId }; clock: Clock },
): Promise<void> {
  const { trust, clock } = options;
  const verified = createVerifier({ caPem: trust.caPem, clock }).verify(certificate);
  const { identity } = await verified.catch((error: unknown) => {
    throw notTrusted(options, messageOf(error));
  });
  if (identity.role !== "manager") throw notTrusted(options, "it is an agent.");
  if (trust.clusterId !== undefined && identity.clusterId !== trust.clusterId) {
    throw notTrusted(options, "it belongs to another cluster.");
  }
}
