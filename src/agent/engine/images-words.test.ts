import { expect, test } from "bun:test";
import { pullError } from "./images-words.ts";

const IMAGE = "reg.lab:5000/team/x:1";

// Words as engines and registries say them.
test.each([
  ["manifest for reg.lab:5000/team/x:1 not found: manifest unknown: manifest unknown", "no image"],
  ["no matching manifest for linux/arm64/v8 in the manifest list entries", "kind of processor"],
  ['Head "http://reg.lab:5000/v2/team/x/manifests/1": no basic auth credentials', "private"],
  ["pull access denied for x, repository does not exist or may require 'docker login': denied", "private"],
  ["toomanyrequests: You have reached your pull rate limit.", "try again later"],
  ['Get "https://reg.lab:5000/v2/": http: server gave HTTP response to HTTPS client', "insecure-registries"],
  [
    'Get "https://reg.lab:5000/v2/": x509: certificate signed by unknown authority',
    "certs.d/reg.lab:5000/ca.crt",
  ],
  ["write /var/lib/docker/tmp/GetImageBlob1: no space left on device", "disk is full"],
  ['Get "https://reg.lab:5000/v2/": dial tcp 10.0.0.9:5000: connect: connection refused', "cannot reach"],
  ['Get "https://reg.lab:5000/v2/": dial tcp: lookup reg.lab on 10.0.0.1:53: no such host', "cannot reach"],
])("%s: %s", (words, hint) => {
  const error = pullError(IMAGE, words);
  expect([error.code, error.details?.engine]).toEqual(["image-pull-failed", words]);
  expect(error.message).toContain(hint);
  expect(error.message).toContain(IMAGE);
});

test("words that nobody knows yet are passed on", () => {
  expect(pullError(IMAGE, "a strange thing.\n").message).toBe(
    `The image ${IMAGE} could not be pulled: a strange thing.`,
  );
});
