/**
 * Finds the built-in chains with rules in a table of the older iptables, from the kernel's offsets of their beginnings and
 * ends.
 */
/** Indexed by NF_INET_*. */
const CHAINS = ["PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"] as const;
/** Indices of words: valid hooks, and the first chain offset. */
const [VALID, BEGIN] = [2, 3];

/** A chain that begins with its policy has no rules. `layout` is from `LegacyTables.layout`. */
export function chainsWithRules(layout: string): string[] {
  const words = layout.split(" ").map(Number);
  return CHAINS.filter((_, hook) => {
    const isValid = ((words[VALID] ?? 0) & (1 << hook)) !== 0;
    return isValid && words[BEGIN + hook] !== words[BEGIN + CHAINS.length + hook];
  });
}
