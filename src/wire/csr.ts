import "./reflect.ts";
import * as x509 from "@peculiar/x509";
import type { Clock } from "../kit/clock.ts";
import { BerthError } from "../kit/errors.ts";
import type { AgentId, ClusterId } from "../kit/ids.ts";
import { AGENT_LIFETIME_MS, type Ca, issueCertificate } from "./ca.ts";
import { KEY_ALGORITHM, newKeyPair, privateKeyToPem, toPem } from "./certificates.ts";

/** A new key and the request to have it certified. The key never leaves the node. */
export async function createAgentCsr(): Promise<{ readonly keyPem: string; readonly csrPem: string }> {
  const keys = await newKeyPair();
  const csr = await x509.Pkcs10CertificateRequestGenerator.create({
    name: "CN=Berth agent",
    keys,
    signingAlgorithm: KEY_ALGORITHM,
  });
  return { keyPem: await privateKeyToPem(keys.privateKey), csrPem: toPem(csr) };
}

function isOurKind(key: x509.PublicKey): boolean {
  const { algorithm } = key;
  return algorithm.name === "ECDSA" && "namedCurve" in algorithm && algorithm.namedCurve === "P-256";
}

async function readCsr(csrPem: string): Promise<x509.Pkcs10CertificateRequest> {
  const csr = new x509.Pkcs10CertificateRequest(csrPem);
  if (!isOurKind(csr.publicKey)) throw new TypeError("not an EC P-256 key");
  if (!(await csr.verify(crypto))) throw new TypeError("the signature does not match the key");
  return csr;
}

/**
 * Certifies an agent's key for 30 days. The request proves that its maker holds the key; whatever name
 * or extension it asks for is ignored. Throws `bad-csr`.
 */
export async function signAgentCsr(
  ca: Ca,
  csrPem: string,
  options: { readonly clusterId: ClusterId; readonly agentId: AgentId; readonly clock: Clock },
): Promise<string> {
  const csr = await readCsr(csrPem).catch((cause: unknown) => {
    const sentence = "The certificate request is damaged, or its key is of a kind that is not accepted.";
    throw new BerthError("bad-csr", sentence, { cause });
  });
  return issueCertificate(ca, {
    identity: { role: "agent", clusterId: options.clusterId, agentId: options.agentId },
    publicKey: csr.publicKey,
    hosts: [],
    lifetimeMs: AGENT_LIFETIME_MS,
    clock: options.clock,
  });
}
