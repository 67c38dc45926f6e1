import { BlockList, isIPv4, isIPv6 } from "node:net";
import { BerthError } from "../../kit/errors.ts";
import { readNetwork } from "../network.ts";

/** What is known of the client before anything of its request is believed. */
export type Client = {
  readonly address: string;
  readonly secure: boolean;
  /** Host with port, as the client names us. */
  readonly host: string;
};

export type PeerFacts = {
  readonly remoteAddress: string;
  readonly encrypted: boolean;
  header(name: string): string | undefined;
};

export type ClientReader = (peer: PeerFacts) => Client;

const PRIVATE = ["127.0.0.0/8", "::1/128", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7"];

function listOf(networks: readonly string[]): BlockList {
  const list = new BlockList();
  for (const network of networks) {
    const read = readNetwork(network);
    if (read === undefined) {
      throw new BerthError(
        "invalid-config",
        `trusted-proxies: "${network}" is no address or network such as 10.0.0.0/8.`,
        { field: "trustedProxies" },
      );
    }
    const { address, family, bits } = read;
    if (bits === undefined) list.addAddress(address, family);
    else list.addSubnet(address, bits, family);
  }
  return list;
}

/** An IPv4 address that came in through an IPv6 socket is told as what it is. */
export function plainAddress(address: string): string {
  return address.replace(/^::ffff:(?=\d+\.\d+\.\d+\.\d+$)/, "");
}

const last = (header: string | undefined) => header?.split(",").at(-1)?.trim();

export type ProxyOptions = {
  readonly behindProxy: boolean;
  readonly trustedProxies: readonly string[];
};

/**
 * Whether an address is that of a proxy whose word counts: none without `behindProxy`, by default loopback and private
 * networks. Throws `invalid-config` for what is no address or network.
 */
export function createProxyTest({ behindProxy, trustedProxies }: ProxyOptions): (address: string) => boolean {
  const list = listOf(trustedProxies.length > 0 ? trustedProxies : PRIVATE);
  return (address) =>
    behindProxy &&
    ((isIPv4(address) && list.check(address, "ipv4")) || (isIPv6(address) && list.check(address, "ipv6")));
}

/**
 * Tells who the client is. Forwarded headers count only from a trusted proxy. The nearest address that is no trusted
 * proxy is the client's.
 */
export function createClientReader(options: ProxyOptions): ClientReader {
  const trusted = createProxyTest(options);

  return ({ remoteAddress, encrypted, header }) => {
    const peer = plainAddress(remoteAddress);
    const host = header("host") ?? "";
    if (!trusted(peer)) return { address: peer, secure: encrypted, host };
    const chain = (header("x-forwarded-for") ?? "").split(",").map((part) => plainAddress(part.trim()));
    const known = chain.filter((part) => isIPv4(part) || isIPv6(part));
    return {
      address: known.findLast((part) => !trusted(part)) ?? known[0] ?? peer,
      secure: last(header("x-forwarded-proto")) === "https",
      host: last(header("x-forwarded-host")) ?? host,
    };
  };
}
