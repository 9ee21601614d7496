/** Types for the tables of the older iptables (ip_tables, ip6_tables), which nf_tables knows nothing of. */

/** The names of a program's chains in one table of the older iptables. */
export interface LegacyChainNames {
  /** Those that built-in chains jump to: such a jump is the program's own, whatever else the rule matches. */
  readonly entries: readonly string[];
  readonly others: readonly string[];
  /** Of chains that are many. */
  readonly prefixes: readonly string[];
}

/** What was taken out of a table of the older iptables. */
export interface LegacyRemoval {
  /** How many chains. */
  readonly chains: number;
  /** How many rules of built-in chains, which jumped to them. */
  readonly jumps: number;
  /** Chains that another program's rules jump to: they stay, with all that they lead to. `user`: "a rule of chain DOCKER". */
  readonly kept: readonly { readonly chain: string; readonly user: string }[];
  /** False when another process changed the table right behind: the counters of all rules in it begin at 0. */
  readonly countersKept: boolean;
  /** Why the lock was not taken; absent: it was. */
  readonly unlocked?: string;
}
