// Drops packets at a device, and in a bridge: a client's address, other DNS than two packets a minute, strange flags, ARP, a VLAN.
import { openKernel, Table, type Statement } from "@nft-proxier/nft";

const kernel = await openKernel();
const counter: Statement = { action: "counter" };
const drop: Statement = { action: "verdict", verdict: "drop" };
const dns: Statement = { field: "udp dport", value: 53 };
const all = (...lists: readonly Statement[][]): { statements: Statement[] }[] =>
  lists.map((statements) => ({ statements }));
const device = new Table(kernel, { family: "netdev", name: "ingress" });
device.chain({
  chain: "in",
  base: { type: "filter", hook: "ingress", priority: -500, devices: ["client"] },
  rules: all(
    [{ field: "ip saddr", value: "192.0.2.3" }, counter, drop],
    [{ field: "ether saddr", value: "02:00:00:00:00:99" }, drop],
    [dns, { action: "limit", rate: 1, per: "minute", burst: 2 }, counter, { action: "verdict", verdict: "accept" }],
    [dns, counter, drop],
    [{ field: "tcp flags", mask: ["fin", "syn", "rst", "ack"], value: ["fin", "syn"] }, drop],
    [{ field: "tcp flags", mask: ["fin", "syn", "rst", "psh", "ack", "urg"], value: 0 }, counter, drop],
  ),
});
const bridge = new Table(kernel, { family: "bridge", name: "br" });
bridge.chain({
  chain: "forward",
  base: { type: "filter", hook: "forward", priority: "filter" },
  rules: all(
    [{ field: "tcp dport", value: 25 }, counter, drop],
    [{ field: "iifname", value: "p*" }, { field: "ip6 saddr", value: "fd77::/16" }, counter, drop],
    [{ field: "vlan id", value: 7 }, { field: "arp operation", value: "request" }, drop],
    [{ field: "meta pkttype", value: "multicast" }, counter],
  ),
});
for (const table of [device, bridge]) await table.apply();
await kernel.close();
