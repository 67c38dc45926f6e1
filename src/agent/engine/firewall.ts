import { messageOf } from "../../kit/errors.ts";
import type { Ownership } from "./engine.ts";
import { agentTag, bridgeName } from "./names.ts";
import { mustRun, run } from "./run.ts";

/**
 * Addresses at which clouds hand a machine its own credentials. The whole link-local range: providers use several
 * of its addresses, and nothing in it is a service for sessions.
 */
const METADATA = ["169.254.0.0/16", "100.100.100.200/32", "192.0.0.192/32"];

/** The same of a cloud whose name server has this address too: port 53 stays open, or its sessions find no names. */
const METADATA_WITH_NAMES = "168.63.129.16/32";

const REFUSE = "-j REJECT --reject-with icmp-port-unreachable";

/** Prefix of every agent's bridge, as iptables writes "any interface that begins so". */
const ANY_BRIDGE = "bth-+";

type Chain = { readonly name: string; readonly hooks: readonly string[]; readonly rules: readonly string[] };

/** The rules of one agent: what comes from its sessions to the node itself, and what leaves through the node. */
export function firewallChains(owner: Ownership): readonly [Chain, Chain] {
  const tag = agentTag(owner);
  const known = "-m conntrack --ctstate RELATED,ESTABLISHED -j RETURN";
  return [
    {
      name: `BERTH-${tag}-IN`,
      hooks: ["INPUT"],
      // Answers to what the agent opened pass; refused rather than dropped, so that nobody waits for a time-out.
      rules: [known, REFUSE],
    },
    {
      name: `BERTH-${tag}-OUT`,
      // The engine promises to leave DOCKER-USER alone and to pass through it first.
      hooks: ["DOCKER-USER", "FORWARD"],
      rules: [
        known,
        ...METADATA.map((range) => `-d ${range} ${REFUSE}`),
        ...["tcp", "udp"].map((kind) => `-d ${METADATA_WITH_NAMES} -p ${kind} ! --dport 53 ${REFUSE}`),
        `-o ${ANY_BRIDGE} ${REFUSE}`,
        "-j RETURN",
      ],
    },
  ];
}

/** Input for `iptables-restore --noflush`: makes the chains and replaces their rules in one step. */
export function restoreScript(chains: readonly Chain[]): string {
  const declared = chains.map(({ name }) => `:${name} - [0:0]`);
  const rules = chains.flatMap(({ name, rules }) => rules.map((rule) => `-A ${name} ${rule}`));
  return ["*filter", ...declared, ...rules, "COMMIT", ""].join("\n");
}

export interface Firewall {
  /** Puts the rules in place. Returns why it could not, in words, or undefined when they hold. */
  ensure(): Promise<string | undefined>;
  remove(): Promise<void>;
}

const iptables = (...args: string[]) => ["iptables", "-w", "10", ...args];

/** The firewall rules that keep an agent's sessions from the node and from metadata services. */
export function createFirewall(owner: Ownership): Firewall {
  const chains = firewallChains(owner);
  const jump = ({ name }: Chain) => ["-i", bridgeName(owner), "-j", name];

  async function hookIn(chain: Chain): Promise<void> {
    for (const hook of chain.hooks) {
      if ((await run(iptables("-C", hook, ...jump(chain)))).code === 0) return;
      if ((await run(iptables("-I", hook, "1", ...jump(chain)))).code === 0) return;
    }
    throw new Error(`no chain ${chain.hooks.join(" or ")} takes the rule`);
  }

  return {
    ensure: async () => {
      try {
        await mustRun(["iptables-restore", "-w", "10", "--noflush"], restoreScript(chains));
        for (const chain of chains) await hookIn(chain);
        return undefined;
      } catch (error) {
        return (
          `Sessions are not kept from this node's own ports and from metadata services, because firewall rules ` +
          `cannot be set (${messageOf(error)}). Install iptables and restart the agent.`
        );
      }
    },
    remove: async () => {
      for (const chain of chains) {
        for (const hook of chain.hooks) {
          while ((await run(iptables("-D", hook, ...jump(chain)))).code === 0);
        }
        await run(iptables("-F", chain.name));
        await run(iptables("-X", chain.name));
      }
    },
  };
}
