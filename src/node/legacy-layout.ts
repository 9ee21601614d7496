/**
 * Finds the built-in chains with rules in a table of the older iptables, from the kernel's offsets of their beginnings and
 * ends.
 */
import type { IpFamily } from "../base/ip.js";

/**
 * Reads numbers separated by spaces (IPT_SO_GET_INFO): a table's length, number of entries and valid hooks, then the offset of
 * each hook's chain, and the offset of its policy. Asked only for tables that exist.
 */
export type ReadLegacyLayout = (family: IpFamily, table: string) => Promise<string>;

/** Indexed by NF_INET_*. */
const CHAINS = ["PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"] as const;
/** Indices of words: valid hooks, and the first chain offset. */
const [VALID, BEGIN] = [2, 3];

/** A chain that begins with its policy has no rules. */
export function chainsWithRules(layout: string): string[] {
  const words = layout.split(" ").map(Number);
  return CHAINS.filter((_, hook) => {
    const isValid = ((words[VALID] ?? 0) & (1 << hook)) !== 0;
    return isValid && words[BEGIN + hook] !== words[BEGIN + CHAINS.length + hook];
  });
}
