import { isIPv6 } from "node:net";

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
