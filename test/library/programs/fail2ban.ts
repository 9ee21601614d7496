// Bans an address for BANTIME ms after three lines "FAIL address"; "UNBAN address" ends a ban. Bans outlive this program.
import { createInterface } from "node:readline";
import { openKernel, Table } from "@nft-proxier/nft";

const kernel = await openKernel({ programName: "f2b" });
const table = new Table(kernel, { family: "inet", name: "f2b" });
const options = { timeoutMs: Number(process.env.BANTIME ?? 20_000), keep: true };
const v4 = table.set({ set: "v4", key: ["ipv4_addr"], ...options });
const v6 = table.set({ set: "v6", key: ["ipv6_addr"], ...options });
table.chain({
  chain: "input",
  base: { type: "filter", hook: "input", priority: -10 },
  rules: (["ip saddr", "ip6 saddr"] as const).map((field) => ({
    statements: [
      { field: [field], op: "in", value: field === "ip saddr" ? "@v4" : "@v6" },
      { action: "counter" },
      { action: "reject" },
    ],
  })),
});
await table.apply();
console.log(JSON.stringify([...v4.keys(), ...v6.keys()]));
const fails = new Map<string, number>();
for await (const line of createInterface({ input: process.stdin })) {
  const [word, address = ""] = line.split(" ");
  const bans = address.includes(":") ? v6 : v4;
  const count = (fails.get(address) ?? 0) + 1;
  fails.set(address, count);
  try {
    if (word === "UNBAN") bans.delete(address);
    else if (count >= 3) bans.put(address);
    await table.apply();
  } catch (error) {
    console.error(String(error));
  }
}
await kernel.close();
