import { expect, test } from "bun:test";
import { listeningInodes, withLiveRestore } from "./tools.ts";

test("live-restore is added and everything else stays", () => {
  const text = '{ "log-driver": "local", "live-restore": false, "dns": ["10.0.0.1"] }';
  expect(JSON.parse(withLiveRestore(text))).toEqual({
    "log-driver": "local",
    "live-restore": true,
    dns: ["10.0.0.1"],
  });
});

test("a file that is absent or empty becomes one with live-restore alone", () => {
  expect(JSON.parse(withLiveRestore("  \n"))).toEqual({ "live-restore": true });
});

test("a file that cannot be understood is left to its owner", () => {
  for (const text of ["{ not json", "[]", '"text"', "null"]) expect(() => withLiveRestore(text)).toThrow();
});

test("sockets that listen on a port are told from others", () => {
  const line = (local: string, state: string, inode: number) =>
    `   0: ${local} 00000000:0000 ${state} 00000000:00000000 00:00000000 00000000     0        0 ${inode} 1 0 100 0`;
  const table = [
    "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode",
    line("0100007F:1CF2", "0A", 11),
    line("0100007F:1CF2", "01", 12),
    line("0100007F:1CF3", "0A", 13),
    line("00000000000000000000000000000000:1CF2", "0A", 14),
  ].join("\n");
  expect(listeningInodes(table, 7410)).toEqual(["11", "14"]);
  expect(listeningInodes(table, 80)).toEqual([]);
});
