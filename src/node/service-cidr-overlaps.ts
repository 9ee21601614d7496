/**
 * Finds networks of pods, nodes and routes that lie in a ServiceCIDR. The rules drop every new connection to an address of
 * a ServiceCIDR that belongs to no service, as kube-proxy's nftables mode does. In kube-proxy's other modes such networks
 * work.
 */
import { parseCIDR, type Prefix, prefixContains, prefixCovers } from "../base/ip.js";
import type { LocalAddress } from "./node-facts.js";
import type { RouteNetwork } from "./routes.js";

export interface OverlapFacts {
  /** CIDRs of both families. */
  readonly serviceCIDRs: readonly string[];
  readonly clusterCIDRs: readonly string[];
  /** The podCIDRs of the Node object. */
  readonly podCIDRs: readonly string[];
  /** Addresses from the Node object. */
  readonly nodeIPs: readonly string[];
  /** Addresses of the node's interfaces. */
  readonly local: readonly LocalAddress[];
  readonly routes: readonly RouteNetwork[];
  /** A service's own address may be on an interface, for example that of a node-local DNS cache. */
  readonly clusterIPs: Pick<ReadonlyMap<string, unknown>, "has">;
}

/** "ServiceCIDR 10.96.0.0/12 overlaps clusterCIDR 10.100.0.0/16". */
export interface Overlap {
  readonly what: string;
}

/** The consequence of an overlap. */
export const OVERLAP_EFFECT =
  "the rules drop new connections to these addresses in forward and output, unless a service has the address";
export const OVERLAP_REMEDY =
  "give services a network that no pod, node or route uses. kube-proxy's nftables mode drops the same packets; its iptables and IPVS modes do not";

/** A network in a ServiceCIDR, and how to name it. */
interface Suspect {
  readonly prefix: Prefix;
  readonly name: string;
}

/**
 * Returns each overlapping network once. A network inside another one that is reported is not reported again.
 *
 * - Ranges of pods overlap in either direction: pods may be given any address of them.
 * - An address of the node overlaps if it lies inside.
 * - A route overlaps if its network is smaller than the ServiceCIDR and lies inside. Packets to services leave programs
 *   through routes to the whole ServiceCIDR or to a larger network, such as the default route.
 */
export function findOverlaps(facts: OverlapFacts): Overlap[] {
  const cidrs = facts.serviceCIDRs.flatMap((text) => parseCIDR(text) ?? []);
  if (cidrs.length === 0) return [];
  const found: Overlap[] = [];
  const reported: Prefix[] = [];
  for (const { prefix, name } of [...podRanges(facts), ...insideOf(facts, cidrs)]) {
    const cidr = cidrs.find((one) => prefixCovers(one, prefix) || prefixCovers(prefix, one));
    if (cidr === undefined || reported.some((one) => prefixCovers(one, prefix))) continue;
    reported.push(prefix);
    found.push({ what: `ServiceCIDR ${cidr.text} overlaps ${name}` });
  }
  return found;
}

function podRanges({ clusterCIDRs, podCIDRs }: OverlapFacts): Suspect[] {
  const named = (texts: readonly string[], what: string): Suspect[] =>
    texts.flatMap((text) => {
      const prefix = parseCIDR(text);
      return prefix === undefined ? [] : [{ prefix, name: `${what} ${prefix.text}` }];
    });
  return [...named(clusterCIDRs, "clusterCIDR"), ...named(podCIDRs, "the Node's podCIDR")];
}

/** Addresses and routes inside a ServiceCIDR. */
function insideOf({ nodeIPs, local, routes, clusterIPs }: OverlapFacts, cidrs: readonly Prefix[]): Suspect[] {
  const isOwn = (address: string): boolean =>
    cidrs.some((cidr) => prefixContains(cidr, address)) && !clusterIPs.has(address);
  const addresses = [...new Set([...nodeIPs, ...local.map(({ address }) => address)])].filter(isOwn);
  const inside = routes.filter(({ prefix }) =>
    cidrs.some((cidr) => prefixCovers(cidr, prefix) && prefix.length > cidr.length),
  );
  return [
    ...inside.flatMap(({ prefix, interfaceName }) => {
      const [address = ""] = prefix.text.split("/");
      if (prefix.length === prefix.bytes.length * 8 && !isOwn(address)) return [];
      return [{ prefix, name: `the route to ${prefix.text} over ${interfaceName}` }];
    }),
    ...addresses.flatMap((address) => {
      const prefix = parseCIDR(`${address}/${address.includes(":") ? 128 : 32}`);
      return prefix === undefined ? [] : [{ prefix, name: `this node's address ${address}` }];
    }),
  ].toSorted((a, b) => a.prefix.length - b.prefix.length);
}
