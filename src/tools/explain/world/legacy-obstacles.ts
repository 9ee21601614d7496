/** Finds rules of the older iptables that decide over packets. Their existence is visible, but not their content. */
import type { IpFamily } from "../../../base/ip.js";
import type { LegacyTables } from "../../../nft/kernel/legacy-tables.js";
import { IPTABLES } from "../../../node/forwarding.js";
import { chainsWithRules } from "../../../node/legacy-layout.js";
import { legacyTableNames } from "../../../node/proc-file.js";

/**
 * Returns texts such as "rules in chain PREROUTING of table raw of iptables-legacy, which cannot be read". Tables that
 * cannot be read are included. Never rejects.
 */
export async function legacyObstacles(
  legacy: Pick<LegacyTables, "forwardDrops" | "layout">,
  family: IpFamily,
): Promise<string[]> {
  const program = `${IPTABLES[family]}-legacy`;
  const found: string[] = [];
  for (const table of await legacyTableNames(family)) {
    try {
      for (const chain of chainsWithRules(await legacy.layout(family, table))) {
        found.push(`rules in chain ${chain} of table ${table} of ${program}, which cannot be read`);
      }
      if (await legacy.forwardDrops(family, table)) {
        found.push(`the drop policy of chain FORWARD of table ${table} of ${program}`);
      }
    } catch {
      found.push(`table ${table} of ${program}, which cannot be read`);
    }
  }
  return found;
}
