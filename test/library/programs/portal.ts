// A captive portal: guests come to the portal on port 8000 whatever they open, members are forwarded. Arguments: members.
import { openKernel, Table, type Statement } from "@nft-proxier/nft";

const kernel = await openKernel();
const table = new Table(kernel, { family: "ip", name: "portal" });
const members = table.set({ set: "members", key: ["ipv4_addr"], timeoutMs: 3_600_000, counters: {}, keep: true });
for (const address of process.argv.slice(2)) members.put(address);
const guest: Statement = { field: "ct mark", mask: 0xf0, value: 0x10 };
const marked = (value: number): Statement[] => [
  { action: "set", field: "ct mark", value: { from: "ct mark", mask: 0xffffff0f, xor: value } },
  { action: "set", field: "meta mark", value: { from: "ct mark" } },
];
table.chain({ chain: "gold", rules: [{ statements: marked(0x20) }] });
table.chain({
  chain: "mangle",
  base: { type: "filter", hook: "prerouting", priority: "mangle" },
  rules: [
    {
      statements: [
        { field: "iifname", op: "!=", value: "client" },
        { action: "verdict", verdict: "return" },
      ],
    },
    {
      statements: [
        { field: "ip saddr", value: "@members" },
        { action: "verdict", verdict: "goto gold" },
      ],
    },
    { statements: marked(0x10) },
    {
      statements: [
        { field: "udp dport", value: 53 },
        { action: "tproxy", address: "192.0.2.1", port: 8053 },
      ],
    },
  ],
});
table.chain({
  chain: "nat",
  base: { type: "nat", hook: "prerouting", priority: "dstnat" },
  rules: [
    {
      statements: [
        guest,
        { field: "tcp dport", value: [80, 8080] },
        { action: "counter" },
        { action: "redirect", ports: 8000 },
      ],
    },
  ],
});
table.chain({
  chain: "forward",
  base: { type: "filter", hook: "forward", priority: "filter" },
  rules: [{ statements: [guest, { action: "counter" }, { action: "reject", with: "admin-prohibited" }] }],
});
await table.apply();
await kernel.close();
