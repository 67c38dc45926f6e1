import { isIPv4, isIPv6 } from "node:net";

const wordsOf = (text: string) =>
  text === "" ? [] : text.split(":").flatMap((word) => (word.includes(".") ? ["", ""] : [word]));

/**
 * What counts as one client when failures or connections are counted: an IPv4 address, or the /64 of an IPv6 address,
 * because one machine is given a whole /64 to choose addresses from. What is no address is returned as it is.
 */
export function networkOf(address: string): string {
  if (!isIPv6(address)) return address;
  const [head = "", tail] = address.replace(/%.*$/, "").split("::");
  const before = wordsOf(head);
  const after = wordsOf(tail ?? "");
  const zeros = Array.from({ length: 8 - before.length - after.length }, () => "0");
  const words = [...before, ...zeros, ...after].slice(0, 4);
  return `${words.map((word) => Number.parseInt(word, 16).toString(16)).join(":")}::/64`;
}

/** An address (then `bits` is undefined) or a network. */
export type Network = {
  readonly address: string;
  readonly family: "ipv4" | "ipv6";
  readonly bits: number | undefined;
};

/** Reads `192.0.2.1`, `10.0.0.0/8` or `fd00::/8`; undefined for what is none. */
export function readNetwork(text: string): Network | undefined {
  const [, address = "", digits] = /^([0-9a-fA-F.:]+)(?:\/(\d{1,3}))?$/.exec(text) ?? [];
  const family = isIPv4(address) ? "ipv4" : isIPv6(address) ? "ipv6" : undefined;
  const bits = digits === undefined ? undefined : Number(digits);
  if (family === undefined || (bits ?? 0) > (family === "ipv4" ? 32 : 128)) return undefined;
  return { address, family, bits };
}
