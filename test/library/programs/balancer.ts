// Distributes connections to port 80 over backends with weights. Argument: random, inc or jhash.
import { type Field, openKernel, Table } from "@nft-proxier/nft";

const kernel = await openKernel();
const table = new Table(kernel, { family: "ip", name: "lb" });
const slots = [81, 81, 81, 82, 82, 83].map((port, slot) => [slot, ["198.51.100.2", port]] as const);
const mode = process.argv[2] ?? "random";
const modulus = slots.length;
const field: Field =
  mode === "jhash"
    ? { field: "jhash", of: ["ip saddr", "tcp sport"], modulus, seed: 7 }
    : { field: "numgen", mode: mode === "inc" ? "inc" : "random", modulus };
const address = { key: [field], map: slots, data: "address-port" } as const;
table.chain({
  chain: "pre",
  base: { type: "nat", hook: "prerouting", priority: "dstnat" },
  rules: [
    {
      statements: [
        { field: "ip daddr", value: "192.0.2.1" },
        { field: "tcp dport", value: 80 },
        { action: "dnat", address },
      ],
    },
  ],
});
await table.apply();
await kernel.close();
