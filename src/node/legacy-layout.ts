/** Which built-in chains of a table of the older iptables have rules, by where the kernel says that they begin and end. */
import type { IpFamily } from "../base/ip.js";

/**
 * Length, number of entries and valid hooks of a table, then where the chain of each hook begins, and where its policy is (IPT_SO_GET_INFO), in one
 * word. Asked only for tables that are there.
 */
export type ReadLegacyLayout = (family: IpFamily, table: string) => Promise<string>;

/** By NF_INET_*. */
const CHAINS = ["PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"] as const;
/** Of the words: valid hooks, and the first of the beginnings. */
const [VALID, BEGIN] = [2, 3];

/** A chain that begins with its policy has none. */
export function chainsWithRules(layout: string): string[] {
  const words = layout.split(" ").map(Number);
  return CHAINS.filter((_, hook) => {
    const isValid = ((words[VALID] ?? 0) & (1 << hook)) !== 0;
    return isValid && words[BEGIN + hook] !== words[BEGIN + CHAINS.length + hook];
  });
}
