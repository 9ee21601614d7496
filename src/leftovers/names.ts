/**
 * What kube-proxy's iptables mode calls its own, by table (pkg/proxy/iptables/proxier.go and cleanup.go). Everything else
 * with "KUBE-" in its name is kubelet's (KUBE-FIREWALL, KUBE-MARK-DROP, KUBE-IPTABLES-HINT, KUBE-KUBELET-CANARY), or
 * some other program's.
 */

export type IptablesTable = "nat" | "filter" | "mangle";
export const IPTABLES_TABLES: readonly IptablesTable[] = ["nat", "filter", "mangle"];

interface OwnChains {
  /** Those that base chains jump to: PREROUTING to KUBE-SERVICES, and so on. */
  readonly entries: readonly string[];
  readonly others: readonly string[];
  /** Of the chains that each service and endpoint has. */
  readonly prefixes: readonly string[];
}

const OWN: Readonly<Record<IptablesTable, OwnChains>> = {
  nat: {
    entries: ["KUBE-SERVICES", "KUBE-POSTROUTING"],
    others: ["KUBE-NODEPORTS", "KUBE-MARK-MASQ", "KUBE-PROXY-CANARY"],
    prefixes: ["KUBE-SVC-", "KUBE-SVL-", "KUBE-SEP-", "KUBE-EXT-", "KUBE-FW-"],
  },
  filter: {
    entries: ["KUBE-SERVICES", "KUBE-EXTERNAL-SERVICES", "KUBE-FORWARD", "KUBE-NODEPORTS", "KUBE-PROXY-FIREWALL"],
    others: ["KUBE-PROXY-CANARY"],
    prefixes: [],
  },
  mangle: { entries: [], others: ["KUBE-PROXY-CANARY"], prefixes: [] },
};

/** Whether the chain is kube-proxy's. */
export function isOwnChain(table: IptablesTable, chain: string): boolean {
  const { entries, others, prefixes } = OWN[table];
  return entries.includes(chain) || others.includes(chain) || prefixes.some((prefix) => chain.startsWith(prefix));
}

/** Whether kube-proxy makes base chains jump to the chain: such a jump is its own, whatever else the rule matches. */
export function isEntryChain(table: IptablesTable, chain: string): boolean {
  return OWN[table].entries.includes(chain);
}

/** A pattern for grep -E that finds every line of iptables-save about these chains, and no other. */
export function savePattern(): string {
  const names = new Set(IPTABLES_TABLES.flatMap((table) => [...OWN[table].entries, ...OWN[table].others]));
  const prefixes = IPTABLES_TABLES.flatMap((table) => OWN[table].prefixes);
  const cut = (name: string): string => name.slice("KUBE-".length);
  // Names follow ":" or a space: a chain that merely ends like one of these is somebody else's.
  return `[: ]KUBE-((${[...names].map(cut).join("|")})( |$)|(${prefixes.map(cut).join("|")}))`;
}
