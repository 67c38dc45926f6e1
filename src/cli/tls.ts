import { createHash, X509Certificate } from "node:crypto";
import { isIP } from "node:net";
import tls from "node:tls";
import { BerthError, messageOf } from "../kit/errors.ts";

/** How a manager's certificate is judged. */
export type Trust =
  /** By the authorities that this machine knows. */
  | { readonly kind: "system" }
  /** By the authorities in a PEM text. */
  | { readonly kind: "ca"; readonly pem: string }
  /** Only this very certificate, self-signed, as it was confirmed once. */
  | { readonly kind: "pinned"; readonly pem: string };

/** SHA-256 of a certificate as pairs of hex digits with colons, the way browsers and openssl show it. */
export function fingerprintOf(pem: string): string {
  return new X509Certificate(pem).fingerprint256;
}

/** Whether the text (hex with or without colons, base64 or base64url) is the certificate's fingerprint. */
export function fingerprintMatches(pem: string, text: string): boolean {
  const digest = createHash("sha256").update(new X509Certificate(pem).raw).digest();
  const given = text.trim().replace(/^sha-?256[:=/ ]\s*/i, "");
  if (given.replaceAll(":", "").toLowerCase() === digest.toString("hex")) return true;
  return given.replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "") === digest.toString("base64url");
}

export type Probe = {
  /** Whether the machine's own authorities (or the given CA) vouch for it. */
  readonly trusted: boolean;
  readonly pem: string;
  readonly selfSigned: boolean;
};

const PROBE_MS = 10_000;

/** Connects once and looks at the certificate, without sending anything. Throws `unreachable`. */
export function probeCertificate(url: string, caPem?: string): Promise<Probe> {
  const { hostname, port } = new URL(url);
  const host = hostname.replace(/^\[|\]$/g, "");
  return new Promise((resolve, reject) => {
    const fail = (why: string) =>
      reject(new BerthError("unreachable", `${url} does not answer with TLS: ${why}.`));
    const socket = tls.connect({
      host,
      port: Number(port || 443),
      rejectUnauthorized: false,
      ...(isIP(host) ? {} : { servername: host }),
      ...(caPem === undefined ? {} : { ca: caPem }),
    });
    socket.setTimeout(PROBE_MS, () => socket.destroy(new Error("no answer in time")));
    socket.once("error", (error: Error) => fail(messageOf(error)));
    socket.once("secureConnect", () => {
      const { raw } = socket.getPeerCertificate();
      const { authorized } = socket;
      socket.destroy();
      if (raw === undefined) return fail("it showed no certificate");
      const certificate = new X509Certificate(raw);
      const named = isIP(host) ? certificate.checkIP(host) : certificate.checkHost(host);
      resolve({
        trusted: authorized && named !== undefined,
        pem: certificate.toString(),
        selfSigned: certificate.issuer === certificate.subject,
      });
    });
  });
}

/** Options for `fetch` and for `tls.connect`. A pinned certificate counts whatever name it carries. */
export function tlsOptions(trust: Trust): {
  readonly ca?: string;
  readonly checkServerIdentity?: () => undefined;
} {
  switch (trust.kind) {
    case "system":
      return {};
    case "ca":
      return { ca: trust.pem };
    case "pinned":
      return { ca: trust.pem, checkServerIdentity: () => undefined };
  }
}

const TRUST_FAULTS = /SELF_SIGNED|UNABLE_TO_VERIFY|UNABLE_TO_GET_ISSUER|CERT_|ERR_TLS_CERT|certificate/i;

/** The sentence for a certificate that was not accepted, or undefined when the failure is another one. */
export function certificateFault(url: string, trust: Trust, code: string): BerthError | undefined {
  if (!TRUST_FAULTS.test(code)) return undefined;
  if (trust.kind === "pinned") {
    return new BerthError(
      "certificate-changed",
      `${url} shows another certificate than was trusted before (${fingerprintOf(trust.pem)}). ` +
        `If the manager was set up anew, sign in again: berth login ${url}. ` +
        "If not, somebody may be in between.",
    );
  }
  const why = code === "CERT_HAS_EXPIRED" ? "has ended" : "is not trusted by this machine";
  return new BerthError(
    "certificate-not-trusted",
    `The certificate of ${url} ${why}. Sign in with "berth login ${url}" to trust it, ` +
      "or set BERTH_FINGERPRINT, or BERTH_CA to a file with its authority.",
  );
}
