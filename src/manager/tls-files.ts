import { createPrivateKey, X509Certificate } from "node:crypto";
import { readFile } from "node:fs/promises";
import { BerthError, messageOf } from "../kit/errors.ts";
import type { KeyedCertificate } from "../wire/certificates.ts";

const refuse = (field: string, sentence: string) => new BerthError("invalid-config", sentence, { field });

async function readPem(path: string, field: string, mark: string): Promise<string> {
  let text: string;
  try {
    text = await readFile(path, "utf8");
  } catch (err) {
    throw refuse(field, `${path} cannot be read: ${messageOf(err)}.`);
  }
  if (text.includes(mark)) return text;
  throw refuse(field, `${path} holds no PEM text with "${mark}".`);
}

function understood<T>(path: string, field: string, read: () => T): T {
  try {
    return read();
  } catch (err) {
    throw refuse(field, `${path} is not valid: ${messageOf(err)}.`);
  }
}

/** The lab's own certificate and its key. Throws `invalid-config`, naming the file that cannot be used. */
export async function readTlsFiles(certPath: string, keyPath: string): Promise<KeyedCertificate> {
  const certPem = await readPem(certPath, "tlsCert", "BEGIN CERTIFICATE");
  const keyPem = await readPem(keyPath, "tlsKey", "PRIVATE KEY");
  const certificate = understood(certPath, "tlsCert", () => new X509Certificate(certPem));
  const key = understood(keyPath, "tlsKey", () => createPrivateKey(keyPem));
  if (certificate.checkPrivateKey(key)) return { certPem, keyPem };
  throw refuse("tlsKey", `${keyPath} is not the key of the certificate in ${certPath}.`);
}
