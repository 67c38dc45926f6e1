import { BerthError } from "../../kit/errors.ts";

type Reason = { readonly pattern: RegExp; readonly say: (reference: string, words: string) => string };

/** The engine's words, and then what to do. */
const withHint =
  (hint: string): Reason["say"] =>
  (reference, words) =>
    `The image ${reference} could not be pulled: ${words}. ${hint}`;

/** Why pulls fail, by the words of engines; the first that fits. */
const REASONS: readonly Reason[] = [
  {
    pattern: /no matching manifest for|does not match the specified platform/i,
    say: (reference) => `The image ${reference} has no version for this node's kind of processor.`,
  },
  {
    pattern: /manifest unknown|name unknown|not found/i,
    say: (reference) => `The registry has no image ${reference}. Check its name and tag.`,
  },
  {
    pattern: /unauthorized|denied|authentication|no basic auth/i,
    say: withHint("It is private, or its name is misspelt."),
  },
  {
    pattern: /toomanyrequests|rate limit/i,
    say: withHint("The registry allows no more downloads for now: try again later."),
  },
  {
    pattern: /HTTP response to HTTPS client/i,
    say: withHint(
      'The registry has no TLS: name it under "insecure-registries" in the node\'s /etc/docker/daemon.json.',
    ),
  },
  {
    pattern: /x509|certificate/i,
    say: (reference, words) => {
      const registry = reference.slice(0, reference.indexOf("/"));
      const place = `/etc/docker/certs.d/${registry}/ca.crt`;
      return withHint(`Put the certificate of the registry's authority on the node, as ${place}.`)(
        reference,
        words,
      );
    },
  },
  { pattern: /no space left/i, say: withHint("The node's disk is full.") },
  {
    pattern: /lookup|timeout|refused|unreachable|no route|no such host|\bEOF\b|reset by peer/i,
    say: withHint("The node cannot reach the registry."),
  },
];

/** A pull's failure for a person, from the engine's words. */
export function pullError(reference: string, words: string, cause?: unknown): BerthError {
  const told = words.trim().replace(/\.$/, "");
  const reason = REASONS.find(({ pattern }) => pattern.test(told));
  const sentence = reason?.say(reference, told) ?? `The image ${reference} could not be pulled: ${told}.`;
  return new BerthError("image-pull-failed", sentence, {
    details: { engine: words },
    ...(cause === undefined ? {} : { cause }),
  });
}
