import { expect, test } from "bun:test";
import { firewallChains, restoreScript } from "./firewall.ts";

const owner = { clusterId: "c", agentId: "0190a000-0000-7000-8000-0000deadbeef" };

test("the rules refuse the node, metadata services and other agents' sessions, and let answers through", () => {
  expect(restoreScript(firewallChains(owner)).split("\n")).toEqual([
    "*filter",
    ":BERTH-deadbeef-IN - [0:0]",
    ":BERTH-deadbeef-OUT - [0:0]",
    "-A BERTH-deadbeef-IN -m conntrack --ctstate RELATED,ESTABLISHED -j RETURN",
    "-A BERTH-deadbeef-IN -j REJECT --reject-with icmp-port-unreachable",
    "-A BERTH-deadbeef-OUT -m conntrack --ctstate RELATED,ESTABLISHED -j RETURN",
    "-A BERTH-deadbeef-OUT -d 169.254.0.0/16 -j REJECT --reject-with icmp-port-unreachable",
    "-A BERTH-deadbeef-OUT -d 100.100.100.200/32 -j REJECT --reject-with icmp-port-unreachable",
    "-A BERTH-deadbeef-OUT -d 192.0.0.192/32 -j REJECT --reject-with icmp-port-unreachable",
    "-A BERTH-deadbeef-OUT -d 168.63.129.16/32 -p tcp ! --dport 53 -j REJECT --reject-with icmp-port-unreachable",
    "-A BERTH-deadbeef-OUT -d 168.63.129.16/32 -p udp ! --dport 53 -j REJECT --reject-with icmp-port-unreachable",
    "-A BERTH-deadbeef-OUT -o bth-+ -j REJECT --reject-with icmp-port-unreachable",
    "-A BERTH-deadbeef-OUT -j RETURN",
    "COMMIT",
    "",
  ]);
});

test("names fit what iptables takes", () => {
  for (const { name } of firewallChains(owner)) expect(name.length).toBeLessThanOrEqual(28);
});
