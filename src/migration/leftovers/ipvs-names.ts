/**
 * Recognizes kube-proxy's objects in IPVS and ipset (pkg/proxy/ipvs: ipset.go, proxier.go, in the releases 1.9 to
 * 1.36). kube-proxy binds each address of a service to an interface of its own. It creates one virtual server per service address,
 * and one per node port and node address. Virtual servers have no names, so a server
 * that is neither belongs to another program (such as keepalived). `kube-proxy --cleanup` flushes everything and would
 * remove that, too.
 */
import { IP_FAMILIES } from "../../base/ip-families.js";
import { type IpFamily, type Prefix, prefixContains } from "../../base/ip.js";
import { type Protocol } from "../../base/protocols.js";
import type { PortElement } from "../../netlink/ipset-table.js";
import type { VirtualServer } from "../../netlink/ipvs-table.js";

/** The interface with the addresses of all services. */
export const IPVS_INTERFACE = "kube-ipvs0";

/** Sets, without the prefix "KUBE-" or, for IPv6, "KUBE-6-". */
const SETS = [
  "LOOP-BACK",
  "CLUSTER-IP",
  "EXTERNAL-IP",
  "EXTERNAL-IP-LOCAL",
  "LOAD-BALANCER",
  "LOAD-BALANCER-LOCAL",
  "LOAD-BALANCER-FW",
  "LOAD-BALANCER-SOURCE-IP",
  "LOAD-BALANCER-SOURCE-CIDR",
  "NODE-PORT-TCP",
  "NODE-PORT-LOCAL-TCP",
  "NODE-PORT-UDP",
  "NODE-PORT-LOCAL-UDP",
  "NODE-PORT-SCTP",
  "NODE-PORT-LOCAL-SCTP",
  "NODE-PORT-SCTP-HASH",
  "NODE-PORT-LOCAL-SCTP-HASH",
  "HEALTH-CHECK-NODE-PORT",
  "IPVS-IPS",
];

/** Sets of all node ports, with the protocol of their elements. */
const NODE_PORT_SETS: readonly (readonly [string, Protocol])[] = [
  ["NODE-PORT-TCP", "TCP"],
  ["NODE-PORT-UDP", "UDP"],
  ["NODE-PORT-SCTP", "SCTP"],
  ["NODE-PORT-SCTP-HASH", "SCTP"],
];

const PREFIX: Readonly<Record<IpFamily, string>> = { ip: "KUBE-", ip6: "KUBE-6-" };
/** IPSET_MAXNAMELEN without its NUL. kube-proxy truncates longer names. */
const LONGEST_NAME = 31;

const named = (family: IpFamily, set: string): string => `${PREFIX[family]}${set}`.slice(0, LONGEST_NAME);

const FAMILY_OF_SET = new Map(
  IP_FAMILIES.flatMap((family) => SETS.map((set) => [named(family, set), family] as const)),
);

/** Returns the family of a set of kube-proxy. Returns undefined if the set is not kube-proxy's. */
export function familyOfSet(name: string): IpFamily | undefined {
  return FAMILY_OF_SET.get(name);
}

/** Returns the sets with a family's node ports, and their protocol. */
export function nodePortSets(family: IpFamily): readonly (readonly [string, Protocol])[] {
  return NODE_PORT_SETS.map(([set, protocol]) => [named(family, set), protocol]);
}

/** Returns node ports as keys for `ownerOf`. */
export function nodePortKeys(family: IpFamily, protocol: Protocol, elements: readonly PortElement[]): string[] {
  return elements.map(({ port }) => keyOf(family, protocol, port));
}

const keyOf = (family: IpFamily, protocol: Protocol | undefined, port: number): string =>
  `${family} ${protocol} ${port}`;

/** Distinguishes kube-proxy's virtual servers from others. */
interface OwnMarks {
  /** Canonical addresses of `IPVS_INTERFACE`. */
  readonly bound: ReadonlySet<string>;
  /** Keys from `nodePortKeys`. */
  readonly nodePorts: ReadonlySet<string>;
  /** `ipvs.excludeCIDRs`: kube-proxy never removes virtual servers in these. */
  readonly excluded: readonly Prefix[];
}

/**
 * - kube-proxy: its address is on kube-proxy's interface, or its port is one of kube-proxy's node ports.
 * - excluded: in `excludeCIDRs`, so it is kept.
 * - foreign: another program's. Includes all servers by firewall mark.
 */
type ServerOwner = "kube-proxy" | "excluded" | "foreign";

export function ownerOf({ family, fwmark, protocol, address, port }: VirtualServer, marks: OwnMarks): ServerOwner {
  if (fwmark !== 0 || protocol === undefined) return "foreign";
  if (isExcluded(address, marks.excluded)) return "excluded";
  const own = marks.bound.has(address) || marks.nodePorts.has(keyOf(family, protocol, port));
  return own ? "kube-proxy" : "foreign";
}

export function isExcluded(address: string, excluded: readonly Prefix[]): boolean {
  return excluded.some((prefix) => prefixContains(prefix, address));
}

/** "TCP 10.96.0.1:443", "TCP [fd00::1]:443", "mark 7". */
export function serverText({ fwmark, protocol, address, port }: VirtualServer): string {
  if (fwmark !== 0) return `mark ${fwmark}`;
  return `${protocol ?? "?"} ${address.includes(":") ? `[${address}]` : address}:${port}`;
}
