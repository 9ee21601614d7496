// Publishes ports of the host to containers: tcp:8080=198.51.100.2:80. Masquerades what they send.
import { openKernel, type ProtocolName, Table, type Statement } from "@nft-proxier/nft";

const kernel = await openKernel();
const table = new Table(kernel, { family: "ip", name: "runtime" });
const publish = table.set({ set: "publish", key: ["inet_proto", "inet_service"], data: ["ipv4_addr", "inet_service"] });
for (const argument of process.argv.slice(2)) {
  const [protocol, port, address, to] = argument.split(/[:=]/) as [ProtocolName, string, string, string];
  publish.put([protocol, Number(port)], [address, Number(to)]);
}
const accept: Statement = { action: "verdict", verdict: "accept" };
const containers: Statement = { field: "ip saddr", value: "198.51.100.0/24" };
const dnat: Statement[] = [
  { field: { field: "fib", of: ["daddr"], result: "type" }, value: "local" },
  { action: "dnat", address: { key: ["meta l4proto", "th dport"], map: "publish", data: "address-port" } },
];
for (const hook of ["prerouting", "output"] as const)
  table.chain({ chain: hook, base: { type: "nat", hook, priority: "dstnat" }, rules: [{ statements: dnat }] });
const hairpin: Statement[] = [
  { field: "ip daddr", value: "198.51.100.0/24" },
  { field: "ct status", value: "dnat" },
];
table.chain({
  chain: "postrouting",
  base: { type: "nat", hook: "postrouting", priority: "srcnat" },
  rules: [
    {
      statements: [containers, { field: "oifname", op: "!=", value: "behind" }, { action: "masquerade", random: true }],
    },
    { statements: [containers, ...hairpin, { action: "masquerade" }] },
  ],
});
const forward: Statement[] = [
  { field: "ct state", value: ["established", "related"] },
  { field: "ct status", value: "dnat" },
  { field: "iifname", value: "behind" },
];
table.chain({
  chain: "forward",
  base: { type: "filter", hook: "forward", priority: "filter", policy: "drop" },
  rules: forward.map((match) => ({ statements: [match, { action: "counter" }, accept] })),
});
console.log((await table.apply()).transactions);
await kernel.close();
