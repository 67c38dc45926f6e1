import { BerthError } from "../../kit/errors.ts";

/** The parts of an image's name; either a tag or a digest. */
export type ImageReference = {
  readonly registry: string;
  readonly repository: string;
  readonly tag: string | null;
  readonly digest: string | null;
};

const DEFAULT_REGISTRY = "docker.io";
/** The default one's older name, which engines never show. */
const INDEX = "index.docker.io";
const OFFICIAL = "library";
const COMPONENT = "[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*";
const REPOSITORY = new RegExp(`^${COMPONENT}(?:/${COMPONENT})*$`);
const REGISTRY = /^(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:]+\])(?::[0-9]{1,5})?$/;
const TAG = /^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$/;
const DIGEST = /^sha256:[0-9a-f]{64}$/;

function refuse(text: string, why: string): BerthError {
  const shown = text.length > 100 ? `${text.slice(0, 100)}…` : text;
  return new BerthError("invalid-image-reference", `"${shown}" is no image reference: ${why}.`, {
    field: "reference",
  });
}

/** As engines do: the first part is a registry when it has a dot or a port, or is `localhost`. */
function splitRegistry(name: string): { registry: string; path: string } {
  const slash = name.indexOf("/");
  const first = slash < 0 ? "" : name.slice(0, slash);
  const isRegistry = first === "localhost" || (REGISTRY.test(first) && /[.:]/.test(first));
  const registry = first.toLowerCase();
  if (isRegistry) {
    return { registry: registry === INDEX ? DEFAULT_REGISTRY : registry, path: name.slice(slash + 1) };
  }
  return { registry: DEFAULT_REGISTRY, path: name };
}

function splitDigest(text: string): { name: string; digest: string | null } {
  const at = text.indexOf("@");
  if (at < 0) return { name: text, digest: null };
  const digest = text.slice(at + 1);
  if (!DIGEST.test(digest)) throw refuse(text, "after `@` comes `sha256:` and 64 hex digits");
  return { name: text.slice(0, at), digest };
}

function splitTag(name: string, whole: string): { path: string; tag: string | null } {
  const colon = name.lastIndexOf(":");
  if (colon <= name.lastIndexOf("/")) return { path: name, tag: null };
  const tag = name.slice(colon + 1);
  if (!TAG.test(tag))
    throw refuse(whole, `the tag "${tag}" has other characters than letters, digits, _ . -`);
  return { path: name.slice(0, colon), tag };
}

/** Reads a reference as people write it (`python:3.13`). Throws `invalid-image-reference`, saying why. */
export function parseReference(text: string): ImageReference {
  if (/\s/.test(text) || text === "") throw refuse(text, "it is empty or has white space");
  if (text.includes("://")) throw refuse(text, "leave out the scheme, such as https://");
  const { name, digest } = splitDigest(text);
  const { path: named, tag } = splitTag(name, text);
  const { registry, path } = splitRegistry(named);
  if (!REPOSITORY.test(path)) {
    throw refuse(text, "its name is made of lower-case letters and digits, joined by . _ - and /");
  }
  const repository = registry === DEFAULT_REGISTRY && !path.includes("/") ? `${OFFICIAL}/${path}` : path;
  if (registry.length + repository.length > 255) throw refuse(text, "it is longer than 255 characters");
  // Engines take the digest alone where both are given, and call the image by it.
  return { registry, repository, tag: digest === null ? (tag ?? "latest") : null, digest };
}

export function formatReference(reference: ImageReference): string {
  const tag = reference.tag === null ? "" : `:${reference.tag}`;
  const digest = reference.digest === null ? "" : `@${reference.digest}`;
  return `${reference.registry}/${reference.repository}${tag}${digest}`;
}

/** One spelling for each image, with registry and tag: `python` → `docker.io/library/python:latest`. */
export function canonicalReference(text: string): string {
  return formatReference(parseReference(text));
}
