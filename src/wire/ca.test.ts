import { beforeAll, describe, expect, test } from "bun:test";
import { createPrivateKey, X509Certificate } from "node:crypto";
import * as x509 from "@peculiar/x509";
import { manualClock } from "../kit/clock.ts";
import { type AgentId, type ClusterId, newId } from "../kit/ids.ts";
import { type Ca, createCa, issueServerCertificate, loadCa, selfSignedHttps } from "./ca.ts";
import {
  certificateInfo,
  createVerifier,
  DAY_MS,
  fingerprint,
  KEY_ALGORITHM,
  type KeyedCertificate,
  needsRenewal,
  newKeyPair,
} from "./certificates.ts";
import { createAgentCsr, signAgentCsr } from "./csr.ts";

const START = 1_700_000_000_000;
const clusterId = newId<ClusterId>(manualClock(START));
const agentId = newId<AgentId>(manualClock(START));

let pair: KeyedCertificate;
let ca: Ca;
let foreign: Ca;
beforeAll(async () => {
  pair = await createCa(manualClock(START));
  ca = await loadCa(pair);
  foreign = await loadCa(await createCa(manualClock(START)));
});

async function agentCertificate(signer = ca): Promise<KeyedCertificate> {
  const { keyPem, csrPem } = await createAgentCsr();
  const certPem = await signAgentCsr(signer, csrPem, { clusterId, agentId, clock: manualClock(START) });
  return { certPem, keyPem };
}

describe("the CA", () => {
  test("a server certificate names the manager and its hosts, and another library agrees", async () => {
    const hosts = ["gpu1.lab", "10.1.2.3", "[::1]"];
    const made = await issueServerCertificate(ca, { clusterId, hosts, clock: manualClock(START) });
    const certificate = new X509Certificate(made.certPem);
    const authority = new X509Certificate(pair.certPem);
    expect(certificate.checkIssued(authority)).toBe(true);
    expect(certificate.verify(authority.publicKey)).toBe(true);
    expect(certificate.checkPrivateKey(createPrivateKey(made.keyPem))).toBe(true);
    expect(certificate.ca).toBe(false);
    expect(authority.ca).toBe(true);
    expect(certificate.checkHost("gpu1.lab")).toBe("gpu1.lab");
    expect(certificate.checkIP("10.1.2.3")).toBe("10.1.2.3");
    expect(certificate.subjectAltName).toContain(`URI:berth://${clusterId}/manager`);
    expect(certificateInfo(made.certPem).identity).toEqual({ role: "manager", clusterId });
  });

  test("an agent's certificate lives from 24 hours ago for 30 days, under its identity", async () => {
    const info = certificateInfo((await agentCertificate()).certPem);
    expect(info.identity).toEqual({ role: "agent", clusterId, agentId });
    expect(info.notBefore).toBe(START - DAY_MS);
    expect(info.notAfter).toBe(START + 30 * DAY_MS);
  });

  test("serial numbers differ and read the same everywhere", async () => {
    const made = await Promise.all([agentCertificate(), agentCertificate(), agentCertificate()]);
    const serials = made.map(({ certPem }) => certificateInfo(certPem).serial);
    expect(new Set(serials).size).toBe(3);
    expect(made.map(({ certPem }) => new X509Certificate(certPem).serialNumber.toLowerCase())).toEqual(
      serials,
    );
  });

  test("a request's own wishes are ignored", async () => {
    const csr = await x509.Pkcs10CertificateRequestGenerator.create({
      name: "CN=root",
      keys: await newKeyPair(),
      signingAlgorithm: KEY_ALGORITHM,
      extensions: [
        new x509.BasicConstraintsExtension(true),
        new x509.SubjectAlternativeNameExtension([{ type: "url", value: `berth://${clusterId}/manager` }]),
      ],
    });
    const certPem = await signAgentCsr(ca, csr.toString("pem"), {
      clusterId,
      agentId,
      clock: manualClock(START),
    });
    expect(certificateInfo(certPem).identity).toEqual({ role: "agent", clusterId, agentId });
    expect(new X509Certificate(certPem).ca).toBe(false);
    expect(new X509Certificate(certPem).subject).not.toContain("root");
  });

  test.each(["", "garbage", "-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----"])(
    "refuses %j as a request",
    async (text) => {
      const signed = signAgentCsr(ca, text, { clusterId, agentId, clock: manualClock(START) });
      await expect(signed).rejects.toMatchObject({ code: "bad-csr" });
    },
  );

  test("refuses a request that was changed after it was signed", async () => {
    const { csrPem } = await createAgentCsr();
    const der = Buffer.from(new x509.Pkcs10CertificateRequest(csrPem).rawData);
    der[der.indexOf("Berth")] = 0x62;
    const changed = x509.PemConverter.encode(new Uint8Array(der), "CERTIFICATE REQUEST");
    const signed = signAgentCsr(ca, changed, { clusterId, agentId, clock: manualClock(START) });
    await expect(signed).rejects.toMatchObject({ code: "bad-csr" });
  });

  test("loading notices a key of another CA", async () => {
    const other = await createCa(manualClock(START));
    await expect(loadCa({ certPem: pair.certPem, keyPem: other.keyPem })).rejects.toMatchObject({
      code: "bad-certificate",
    });
    await expect(loadCa({ certPem: "x", keyPem: "y" })).rejects.toMatchObject({ code: "bad-certificate" });
  });

  test("the fingerprint is the one that other tools show", async () => {
    const hex = new X509Certificate(pair.certPem).fingerprint256.replaceAll(":", "");
    expect(fingerprint(pair.certPem)).toBe(Buffer.from(hex, "hex").toString("base64url"));
  });

  test("the dashboard's certificate is no CA and carries its hosts", async () => {
    const made = await selfSignedHttps({ hosts: ["lab.example", "127.0.0.1"], clock: manualClock(START) });
    const certificate = new X509Certificate(made.certPem);
    expect(certificate.ca).toBe(false);
    expect(certificate.verify(certificate.publicKey)).toBe(true);
    expect(certificate.checkHost("lab.example")).toBe("lab.example");
    expect(certificate.checkPrivateKey(createPrivateKey(made.keyPem))).toBe(true);
  });
});

describe("renewal and verification", () => {
  test("renewal is due at two thirds", async () => {
    const { certPem } = await agentCertificate();
    expect(needsRenewal(certPem, manualClock(START + 20 * DAY_MS - 1000))).toBe(false);
    expect(needsRenewal(certPem, manualClock(START + 20 * DAY_MS))).toBe(true);
  });

  const verifyAt = (certificate: string, at: number) =>
    createVerifier({ caPem: pair.certPem, clock: manualClock(at) }).verify(certificate);

  test("takes a certificate of ours within its time", async () => {
    const { certPem } = await agentCertificate();
    for (const at of [START - DAY_MS, START, START + 30 * DAY_MS]) {
      expect((await verifyAt(certPem, at)).identity).toEqual({ role: "agent", clusterId, agentId });
    }
  });

  test("refuses one too early, one too late, one of a foreign CA of the same name, and the CA itself", async () => {
    const { certPem } = await agentCertificate();
    const refused = expect.objectContaining({ code: "bad-certificate" });
    await expect(verifyAt(certPem, START - DAY_MS - 1000)).rejects.toEqual(refused);
    await expect(verifyAt(certPem, START + 30 * DAY_MS + 1000)).rejects.toEqual(refused);
    await expect(verifyAt((await agentCertificate(foreign)).certPem, START)).rejects.toEqual(refused);
    await expect(verifyAt(pair.certPem, START)).rejects.toEqual(refused);
    await expect(verifyAt("nonsense", START)).rejects.toEqual(refused);
  });
});
