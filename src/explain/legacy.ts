/** What of the older iptables decides over packets: its rules can be counted, but not read. */
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import type { IpFamily } from "../model/types.js";
import type { ReadLegacyForward, ReadLegacyRules } from "../node/forwarding.js";

export interface LegacyReaders {
  readonly legacyRules: ReadLegacyRules;
  readonly legacyForwardDrops: ReadLegacyForward;
}

/** Built-in chains of its tables (net/ipv4/netfilter/iptable_*.c). */
const CHAINS: Readonly<Record<string, readonly string[]>> = {
  raw: ["PREROUTING", "OUTPUT"],
  mangle: ["PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"],
  nat: ["PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"],
  filter: ["INPUT", "FORWARD", "OUTPUT"],
  security: ["INPUT", "FORWARD", "OUTPUT"],
};

/** "1 rule in PREROUTING of table raw of iptables-legacy, which cannot be read"; a table that cannot be read is one of them. Never rejects. */
export async function legacyObstacles(readers: LegacyReaders, family: IpFamily, root = "/"): Promise<string[]> {
  const names = await readFile(join(root, `proc/net/${family}_tables_names`), "utf8").catch(() => "");
  const program = `${family === "ip" ? "iptables" : "ip6tables"}-legacy`;
  const found: string[] = [];
  for (const table of names.split("\n").filter((name) => Object.hasOwn(CHAINS, name))) {
    try {
      for (const chain of CHAINS[table] ?? []) {
        const rules = await readers.legacyRules(family, table, chain);
        if (rules === 0) continue;
        found.push(
          `${rules} ${rules === 1 ? "rule" : "rules"} in chain ${chain} of table ${table} of ${program}, which cannot be read`,
        );
      }
      if (CHAINS[table]?.includes("FORWARD") && (await readers.legacyForwardDrops(family, table)))
        found.push(`the policy of chain FORWARD of table ${table} of ${program}: drop`);
    } catch {
      found.push(`table ${table} of ${program}, which cannot be read`);
    }
  }
  return found;
}
