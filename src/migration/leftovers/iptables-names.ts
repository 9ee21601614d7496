/**
 * Names that kube-proxy's iptables, IPVS and userspace modes have used in iptables' tables, in any release since 1.0
 * (pkg/proxy/{iptables,ipvs,userspace}). Any other name with "KUBE-" belongs to another program or to kubelet.
 * Examples: KUBE-FIREWALL in filter, KUBE-MARK-DROP (which kube-proxy created too, but never removed), KUBE-HOSTPORTS and
 * KUBE-HP-, KUBE-IPTABLES-HINT, KUBE-KUBELET-CANARY.
 */

export type IptablesTable = "nat" | "filter" | "mangle";
export const IPTABLES_TABLES: readonly IptablesTable[] = ["nat", "filter", "mangle"];

/** The names of kube-proxy's chains in one table. */
interface ChainNames {
  /** Chains that base chains jump to, such as KUBE-SERVICES from PREROUTING. */
  readonly entries: readonly string[];
  readonly others: readonly string[];
  /** The chains of each service and endpoint begin with these. */
  readonly prefixes: readonly string[];
}

const OWN: Readonly<Record<IptablesTable, ChainNames>> = {
  nat: {
    entries: [
      "KUBE-SERVICES",
      "KUBE-POSTROUTING",
      // userspace mode; the last one before 1.0
      "KUBE-PORTALS-CONTAINER",
      "KUBE-PORTALS-HOST",
      "KUBE-NODEPORT-CONTAINER",
      "KUBE-NODEPORT-HOST",
      "KUBE-PROXY",
    ],
    others: [
      "KUBE-NODEPORTS",
      "KUBE-MARK-MASQ",
      "KUBE-PROXY-CANARY",
      // IPVS mode; the last two in older releases
      "KUBE-NODE-PORT",
      "KUBE-LOAD-BALANCER",
      "KUBE-FIRE-WALL",
      "KUBE-FIREWALL",
    ],
    // XLB: the name of EXT and SVL before 1.24.
    prefixes: ["KUBE-SVC-", "KUBE-SVL-", "KUBE-SEP-", "KUBE-EXT-", "KUBE-XLB-", "KUBE-FW-"],
  },
  filter: {
    entries: [
      "KUBE-SERVICES",
      "KUBE-EXTERNAL-SERVICES",
      "KUBE-FORWARD",
      "KUBE-NODEPORTS",
      "KUBE-PROXY-FIREWALL",
      // IPVS mode
      "KUBE-NODE-PORT",
      "KUBE-IPVS-FILTER",
      "KUBE-IPVS-OUT-FILTER",
      // userspace mode
      "KUBE-NODEPORT-NON-LOCAL",
    ],
    others: ["KUBE-PROXY-CANARY", "KUBE-SOURCE-RANGES-FIREWALL"],
    prefixes: [],
  },
  mangle: { entries: [], others: ["KUBE-PROXY-CANARY"], prefixes: [] },
};

export function isOwnChain(table: IptablesTable, chain: string): boolean {
  const { entries, others, prefixes } = OWN[table];
  return entries.includes(chain) || others.includes(chain) || prefixes.some((prefix) => chain.startsWith(prefix));
}

/**
 * Whether kube-proxy makes base chains jump to the chain. Such a jump is kube-proxy's, whatever else the rule matches.
 */
export function isEntryChain(table: IptablesTable, chain: string): boolean {
  return OWN[table].entries.includes(chain);
}
