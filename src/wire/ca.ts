import "./reflect.ts";
import * as x509 from "@peculiar/x509";
import type { Clock } from "../kit/clock.ts";
import { BerthError } from "../kit/errors.ts";
import type { ClusterId } from "../kit/ids.ts";
import {
  DAY_MS,
  hostNames,
  KEY_ALGORITHM,
  type KeyedCertificate,
  newKeyPair,
  privateKeyFromPem,
  privateKeyToPem,
  randomSerial,
  toPem,
  validity,
} from "./certificates.ts";
import { formatIdentity, type Identity } from "./identity.ts";

const CA_LIFETIME_MS = 20 * 365 * DAY_MS;
const SERVER_LIFETIME_MS = 10 * 365 * DAY_MS;
const HTTPS_LIFETIME_MS = 820 * DAY_MS;
/** How long an agent's certificate lives; it is renewed at two thirds. */
export const AGENT_LIFETIME_MS = 30 * DAY_MS;

/** A cluster's certificate authority, ready to sign. */
export type Ca = {
  readonly certPem: string;
  readonly certificate: x509.X509Certificate;
  readonly privateKey: CryptoKey;
};

/** A new CA: its certificate and key as PEM, to be stored by the caller. Valid for 20 years. */
export async function createCa(clock: Clock): Promise<KeyedCertificate> {
  const keys = await newKeyPair();
  const certificate = await x509.X509CertificateGenerator.createSelfSigned({
    name: "CN=Berth cluster CA",
    keys,
    serialNumber: randomSerial(),
    signingAlgorithm: KEY_ALGORITHM,
    ...validity(clock, CA_LIFETIME_MS),
    extensions: [
      new x509.BasicConstraintsExtension(true, 0, true),
      new x509.KeyUsagesExtension(x509.KeyUsageFlags.keyCertSign | x509.KeyUsageFlags.cRLSign, true),
      await x509.SubjectKeyIdentifierExtension.create(keys.publicKey),
    ],
  });
  return { certPem: toPem(certificate), keyPem: await privateKeyToPem(keys.privateKey) };
}

/** Reads a CA that `createCa` made. Throws `bad-certificate` when the texts are damaged or do not match. */
export async function loadCa(pair: KeyedCertificate): Promise<Ca> {
  try {
    const certificate = new x509.X509Certificate(pair.certPem);
    const privateKey = await privateKeyFromPem(pair.keyPem);
    const probe = new Uint8Array([1]);
    const signature = await crypto.subtle.sign(KEY_ALGORITHM, privateKey, probe);
    const publicKey = await certificate.publicKey.export(KEY_ALGORITHM, ["verify"], crypto);
    if (!(await crypto.subtle.verify(KEY_ALGORITHM, publicKey, signature, probe))) {
      throw new TypeError("key and certificate do not belong together");
    }
    return { certPem: toPem(certificate), certificate, privateKey };
  } catch (cause) {
    throw new BerthError("bad-certificate", "The CA's certificate or key is damaged.", { cause });
  }
}

/** Signs a certificate for an identity of the cluster. */
export async function issueCertificate(
  ca: Ca,
  options: {
    readonly identity: Identity;
    readonly publicKey: x509.PublicKeyType;
    readonly hosts: readonly string[];
    readonly lifetimeMs: number;
    readonly clock: Clock;
  },
): Promise<string> {
  const { identity, publicKey, hosts, lifetimeMs, clock } = options;
  const uses = [x509.ExtendedKeyUsage.serverAuth, x509.ExtendedKeyUsage.clientAuth];
  const certificate = await x509.X509CertificateGenerator.create({
    subject: `CN=Berth ${identity.role}`,
    issuer: ca.certificate.subject,
    publicKey,
    signingKey: ca.privateKey,
    serialNumber: randomSerial(),
    signingAlgorithm: KEY_ALGORITHM,
    ...validity(clock, lifetimeMs),
    extensions: [
      new x509.BasicConstraintsExtension(false, undefined, true),
      new x509.KeyUsagesExtension(x509.KeyUsageFlags.digitalSignature, true),
      new x509.ExtendedKeyUsageExtension(uses),
      new x509.SubjectAlternativeNameExtension([
        { type: "url", value: formatIdentity(identity) },
        ...hostNames(hosts),
      ]),
      await x509.AuthorityKeyIdentifierExtension.create(ca.certificate),
    ],
  });
  return toPem(certificate);
}

/**
 * The manager's certificate for the port of the agents, valid for ten years: cheap to make anew at each
 * start. `hosts` are names and addresses of the manager; agents check the identity, not these.
 */
export async function issueServerCertificate(
  ca: Ca,
  options: { readonly clusterId: ClusterId; readonly hosts: readonly string[]; readonly clock: Clock },
): Promise<KeyedCertificate> {
  const keys = await newKeyPair();
  const certPem = await issueCertificate(ca, {
    identity: { role: "manager", clusterId: options.clusterId },
    publicKey: keys.publicKey,
    hosts: options.hosts,
    lifetimeMs: SERVER_LIFETIME_MS,
    clock: options.clock,
  });
  return { certPem, keyPem: await privateKeyToPem(keys.privateKey) };
}

/**
 * A certificate of the dashboard's own, signed by itself alone: no key exists that could sign another.
 * Valid for 820 days, the longest that every browser takes; `needsRenewal` says when to make a new one.
 */
export async function selfSignedHttps(options: {
  readonly hosts: readonly string[];
  readonly clock: Clock;
}): Promise<KeyedCertificate> {
  const keys = await newKeyPair();
  const certificate = await x509.X509CertificateGenerator.createSelfSigned({
    name: "CN=Berth dashboard",
    keys,
    serialNumber: randomSerial(),
    signingAlgorithm: KEY_ALGORITHM,
    ...validity(options.clock, HTTPS_LIFETIME_MS),
    extensions: [
      new x509.BasicConstraintsExtension(false, undefined, true),
      new x509.KeyUsagesExtension(x509.KeyUsageFlags.digitalSignature, true),
      new x509.ExtendedKeyUsageExtension([x509.ExtendedKeyUsage.serverAuth]),
      new x509.SubjectAlternativeNameExtension(hostNames(options.hosts)),
    ],
  });
  return { certPem: toPem(certificate), keyPem: await privateKeyToPem(keys.privateKey) };
}
