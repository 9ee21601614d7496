/**
 * Names that kube-proxy's iptables, IPVS and userspace modes have used in iptables' tables, in any release since 1.0
 * (pkg/proxy/{iptables,ipvs,userspace}). Any other name with "KUBE-" belongs to another program or to kubelet.
 * Examples: KUBE-FIREWALL in filter, KUBE-MARK-DROP (which kube-proxy created too, but never removed), KUBE-HOSTPORTS and
 * KUBE-HP-, KUBE-IPTABLES-HINT, KUBE-KUBELET-CANARY.
 */

import type { LegacyChainNames } from "../../netlink/legacy-tables.js";

export type IptablesTable = "nat" | "filter" | "mangle";
export const IPTABLES_TABLES: readonly IptablesTable[] = ["nat", "filter", "mangle"];

/**
 * `entries`: chains that base chains jump to, such as KUBE-SERVICES from PREROUTING. `prefixes`: the chains of each service
 * and endpoint begin with these.
 */
const OWN: Readonly<Record<IptablesTable, LegacyChainNames>> = {
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

/** The names of kube-proxy's chains in the table. */
export function ownChains(table: IptablesTable): LegacyChainNames {
  return OWN[table];
}

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

/**
 * Returns a pattern for grep -E that finds every line of iptables-save about these chains of the table, and no other.
 * It is for one table, because a name may be kube-proxy's in one table and kubelet's in another.
 */
export function savePattern(table: IptablesTable): string {
  const { entries, others, prefixes } = OWN[table];
  const cut = (name: string): string => name.slice("KUBE-".length);
  const names = `(${[...entries, ...others].map(cut).join("|")})( |$)`;
  // Names follow ":" or a space. A chain whose name only ends like one of these is another program's.
  return `[: ]KUBE-(${[names, ...prefixes.map(cut)].join("|")})`;
}
