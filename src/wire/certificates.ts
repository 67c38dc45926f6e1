import "./reflect.ts";
import { createHash, randomBytes } from "node:crypto";
import { isIP } from "node:net";
import * as x509 from "@peculiar/x509";
import type { Clock, WallMs } from "../kit/clock.ts";
import { BerthError } from "../kit/errors.ts";
import { type Identity, parseIdentity } from "./identity.ts";

x509.cryptoProvider.set(crypto);

/** EC P-256 with SHA-256: what every key and signature of ours uses. */
export const KEY_ALGORITHM = { name: "ECDSA", namedCurve: "P-256", hash: "SHA-256" } as const;

export const DAY_MS = 24 * 60 * 60 * 1000;
/** Certificates are valid from this long before they were made, for clocks that are late. */
export const BACKDATE_MS = DAY_MS;

/** A certificate and its private key (PKCS #8), both PEM. Storing the key safely is the caller's. */
export type KeyedCertificate = { readonly certPem: string; readonly keyPem: string };

export async function newKeyPair(): Promise<CryptoKeyPair> {
  return crypto.subtle.generateKey(KEY_ALGORITHM, true, ["sign", "verify"]);
}

export async function privateKeyToPem(key: CryptoKey): Promise<string> {
  return `${x509.PemConverter.encode(await crypto.subtle.exportKey("pkcs8", key), "PRIVATE KEY")}\n`;
}

/** The PEM form with a newline at its end, so that texts can be put one after the other. */
export function toPem(item: x509.X509Certificate | x509.Pkcs10CertificateRequest): string {
  return `${item.toString("pem")}\n`;
}

export async function privateKeyFromPem(pem: string): Promise<CryptoKey> {
  const [der] = x509.PemConverter.decode(pem);
  if (der === undefined) throw new TypeError("no private key in the PEM text");
  return crypto.subtle.importKey("pkcs8", der, KEY_ALGORITHM, false, ["sign"]);
}

/** A random positive serial number of 127 bits, in hex. */
export function randomSerial(): string {
  const bytes = randomBytes(16);
  // A leading zero byte or a set top bit would make DER change the number that was asked for.
  bytes[0] = ((bytes[0] ?? 0) & 0x7f) | 0x40;
  return bytes.toString("hex");
}

/** The validity of a certificate made now: back-dated, and `lifetimeMs` long from now on. */
export function validity(clock: Clock, lifetimeMs: number): { notBefore: Date; notAfter: Date } {
  const now = clock.wall();
  return { notBefore: new Date(now - BACKDATE_MS), notAfter: new Date(now + lifetimeMs) };
}

/** Host names and IP addresses as subject alternative names; brackets of IPv6 literals are dropped. */
export function hostNames(hosts: readonly string[]): x509.JsonGeneralNames {
  return hosts.map((host) => {
    const value = host.replace(/^\[|\]$/g, "");
    return { type: isIP(value) === 0 ? ("dns" as const) : ("ip" as const), value };
  });
}

function read(certificate: string | Uint8Array): x509.X509Certificate {
  try {
    const raw = typeof certificate === "string" ? certificate : new Uint8Array(certificate);
    return new x509.X509Certificate(raw);
  } catch (cause) {
    throw new BerthError("bad-certificate", "The certificate cannot be read.", { cause });
  }
}

/** base64url of the SHA-256 of the certificate's DER form. Throws `bad-certificate` for other text. */
export function fingerprint(pem: string): string {
  return createHash("sha256")
    .update(new Uint8Array(read(pem).rawData))
    .digest("base64url");
}

/** The one certificate of the text and nothing else of it. Throws `bad-certificate`. */
export function onlyCertificate(pem: string): string {
  return toPem(read(pem));
}

export type CertificateInfo = {
  /** Lower-case hex. */
  readonly serial: string;
  readonly notBefore: WallMs;
  readonly notAfter: WallMs;
  readonly identity: Identity;
};

function identityOf(certificate: x509.X509Certificate): Identity {
  const names = certificate.getExtension(x509.SubjectAlternativeNameExtension)?.names.items ?? [];
  const [uri, ...more] = names.filter((name) => name.type === "url");
  if (uri === undefined || more.length > 0) {
    throw new BerthError("bad-identity", "The certificate does not name exactly one identity.");
  }
  return parseIdentity(uri.value);
}

function infoOf(certificate: x509.X509Certificate): CertificateInfo {
  return {
    serial: certificate.serialNumber.toLowerCase(),
    notBefore: certificate.notBefore.getTime(),
    notAfter: certificate.notAfter.getTime(),
    identity: identityOf(certificate),
  };
}

/** What a certificate of ours (PEM or DER) says. It is read, not verified. Throws `bad-certificate` or `bad-identity`. */
export function certificateInfo(certificate: string | Uint8Array): CertificateInfo {
  return infoOf(read(certificate));
}

/** Whether two thirds of the certificate's life are over, so that it is time to renew. */
export function needsRenewal(pem: string, clock: Clock): boolean {
  const { notBefore, notAfter } = read(pem);
  const start = notBefore.getTime() + BACKDATE_MS;
  return clock.wall() >= start + ((notAfter.getTime() - start) * 2) / 3;
}

/** Verifies certificates of one CA. */
export interface CertificateVerifier {
  /**
   * Checks signature, validity and use of a peer's certificate (PEM or DER) and gives what it says.
   * Throws `bad-certificate` or `bad-identity`.
   */
  verify(certificate: string | Uint8Array): Promise<CertificateInfo>;
}

export function createVerifier(options: { caPem: string; clock: Clock }): CertificateVerifier {
  const ca = read(options.caPem);
  return {
    verify: async (input) => {
      const certificate = read(input);
      const signed = await certificate
        .verify({ publicKey: ca.publicKey, signatureOnly: true }, crypto)
        .catch(() => false);
      if (!signed) {
        throw new BerthError("bad-certificate", "The certificate was not signed by this cluster's CA.");
      }
      const now = options.clock.wall();
      if (now < certificate.notBefore.getTime() || now > certificate.notAfter.getTime()) {
        const from = certificate.notBefore.toISOString();
        const until = certificate.notAfter.toISOString();
        const sentence = `The certificate is valid from ${from} until ${until}, and it is ${new Date(now).toISOString()} here.`;
        throw new BerthError("bad-certificate", sentence);
      }
      if (certificate.getExtension(x509.BasicConstraintsExtension)?.ca === true) {
        throw new BerthError("bad-certificate", "A CA's own certificate is not an identity.");
      }
      return infoOf(certificate);
    },
  };
}
