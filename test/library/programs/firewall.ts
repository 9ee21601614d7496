// A host's firewall. Arguments: an address to block for 8 seconds.
import { openKernel, Table, type Statement } from "@nft-proxier/nft";

const kernel = await openKernel();
const table = new Table(kernel, { family: "inet", name: "fw" });
await table.set({ set: "admins", key: ["ipv4_addr"], interval: true }).replace(["192.0.2.0/30"]);
table.set({ set: "rate", key: ["ipv4_addr"], dynamic: true, timeoutMs: 60_000, size: 65_535 });
table.set({ set: "blocked", key: ["ipv4_addr"], dynamic: true, timeoutMs: 20_000, size: 65_535 });
const manual = table.set({ set: "manual", key: ["ipv4_addr"], timeoutMs: 0 });
if (process.argv[2] !== undefined) manual.put(process.argv[2], { timeoutMs: 8000 });
const accept: Statement = { action: "verdict", verdict: "accept" };
const drop: Statement = { action: "verdict", verdict: "drop" };
const counter: Statement = { action: "counter" };
const admin: Statement = { field: "ip saddr", value: "@admins" };
const input: Statement[][] = [
  [{ field: "iifname", value: "lo" }, accept],
  [{ field: "ip saddr", value: "@blocked" }, counter, drop],
  [{ field: "ip saddr", value: "@manual" }, counter, drop],
  [
    {
      action: "vmap",
      key: ["ct state"],
      map: [
        ["established", "accept"],
        ["related", "accept"],
        ["invalid", "drop"],
      ],
    },
  ],
  [{ field: "icmp type", value: "echo-request" }, { action: "limit", rate: 5, per: "second", burst: 2 }, accept],
  [
    {
      field: "icmpv6 type",
      value: ["nd-router-solicit", "nd-router-advert", "nd-neighbor-solicit", "nd-neighbor-advert"],
    },
    accept,
  ],
  [
    { field: "tcp dport", value: 22 },
    admin,
    { action: "rate-over", set: "rate", key: ["ip saddr"], timeoutMs: 60_000, rate: 3, per: "minute", burst: 3 },
    { action: "update", set: "blocked", key: ["ip saddr"] },
    { action: "log", prefix: "ssh-flood ", level: "warn" },
    drop,
  ],
  [{ field: "tcp dport", value: [22, { from: 8000, to: 8010 }] }, admin, counter, accept],
  [
    { action: "limit", rate: 10, per: "minute" },
    { action: "log", prefix: "fw-drop ", group: 7 },
  ],
  [{ action: "reject", with: "tcp-reset" }],
  [counter, { action: "reject" }],
];
const base = { type: "filter", hook: "input", priority: "filter", policy: "drop" } as const;
table.chain({ chain: "input", base, rules: input.map((statements) => ({ statements })) });
await table.apply();
await kernel.close();
