/**
 * The inputs of one family's table besides services: this node's addresses, its pods' addresses or interfaces, and the
 * addresses on which node ports answer. Pure functions of the configuration, the Node object and the interfaces.
 */
import { FAMILY_NAMES } from "../base/ip-families.js";
import { expandNodePortAddresses, isLoopbackCIDR } from "../config/node-port-addresses.js";
import { type ProxyConfig } from "../config/proxy-config.js";
import { familyOf, type IpFamily, parseAddress, parseCIDR, prefixContains } from "../base/ip.js";
import type { NodeContext } from "../model/categorize-endpoints.js";
import type { NodeRecord } from "../objects/records.js";

/** Addresses for node ports on loopback. */
export interface LocalhostNodePorts {
  /** CIDRs of loopback addresses on which node ports answer; canonical, at least one. */
  readonly nets: readonly string[];
  /**
   * An address of this node. Packets to these node ports have it as source while they are routed, and ClientIP affinity
   * sees it as the client.
   */
  readonly source: string;
}

/** Tells traffic of this node's pods from other traffic, for one family. */
export type LocalDetector =
  | { readonly kind: "none" }
  | { readonly kind: "cidr"; readonly cidrs: readonly string[] }
  /** The packet's incoming interface; a trailing `*` makes the name a prefix. The node's own packets are then never local. */
  | { readonly kind: "interface"; readonly name: string };

/** An interface address of the node, canonical text. */
export interface LocalAddress {
  readonly family: IpFamily;
  readonly address: string;
}

export interface NodeFacts {
  readonly context: NodeContext;
  /** The node's own IP of each family, canonical; the loopback address if unknown. */
  readonly nodeIPs: Readonly<Record<IpFamily, string>>;
  /** Whether the Node lists an IP that cannot be read. */
  readonly unreadableIP: boolean;
  /** The family of `bindAddress`, otherwise of the Node's first address, otherwise IPv4. */
  readonly primary: IpFamily;
  /** Canonical; invalid ones are ignored. */
  readonly podCIDRs: readonly string[];
}

export const isUnspecified = (address: string): boolean => address === "0.0.0.0" || address === "::";
/** fe80::/10 (RFC 4291): useless without an interface. */
export const isLinkLocal = (address: string): boolean => /^fe[89ab]/.test(address);
export const isLoopback = (address: string): boolean => address.startsWith("127.") || address === "::1";

/**
 * Facts from the configuration, and from the Node object if it exists. A `bindAddress` that is not a wildcard overrides the
 * Node's own IP of its family, and makes that family the primary one.
 */
export function nodeFacts(config: ProxyConfig, nodeName: string, node: NodeRecord | undefined): NodeFacts {
  const bind = config.bindAddress === "" ? undefined : parseAddress(config.bindAddress);
  const given = [...(node?.hostIPs ?? [])];
  if (bind !== undefined && !isUnspecified(bind)) given.unshift(bind);
  const ipOf = (family: IpFamily): string | undefined => given.find((address) => familyOf(address) === family);
  const { zone = "", unreadableIP = false, podCIDRs = [] } = node ?? {};
  return {
    context: zone === "" ? { nodeName } : { nodeName, zone },
    nodeIPs: { ip: ipOf("ip") ?? "127.0.0.1", ip6: ipOf("ip6") ?? "::1" },
    unreadableIP,
    primary: given.length === 0 ? "ip" : familyOf(given[0]),
    podCIDRs: podCIDRs.map(({ prefix }) => prefix.text),
  };
}

function cidrsOf(family: IpFamily, cidrs: readonly string[]): string[] {
  return cidrs.filter((cidr) => cidr.includes(":") === (family === "ip6"));
}

/** How to tell traffic of this node's pods from other traffic, in one family. */
export function localDetector(config: ProxyConfig, facts: NodeFacts, family: IpFamily): LocalDetector {
  const byCidr = (cidrs: readonly string[]): LocalDetector => {
    const own = cidrsOf(family, cidrs);
    return own.length === 0 ? { kind: "none" } : { kind: "cidr", cidrs: own };
  };
  switch (config.detectLocalMode) {
    case "ClusterCIDR":
      return byCidr(config.clusterCIDRs);
    case "NodeCIDR":
      return byCidr(facts.podCIDRs);
    case "BridgeInterface":
      return { kind: "interface", name: config.detectLocal.bridgeInterface };
    case "InterfaceNamePrefix":
      return { kind: "interface", name: `${config.detectLocal.interfaceNamePrefix}*` };
  }
}

/** Addresses on which node ports answer, in one family. */
export interface NodePortPlaces {
  /** "all": every local address except loopback. */
  readonly addresses: "all" | readonly string[];
  /** Absent if node ports do not answer on loopback. */
  readonly localhost?: LocalhostNodePorts;
  readonly warning?: string;
}

/**
 * Node ports answer on the interface addresses inside `nodePortAddresses`, and on the loopback addresses that it names. If
 * the family has no entry, or 0.0.0.0/0 or ::/0, they answer on every local address except loopback. If `primary` is the
 * only entry, and the address that it stands for cannot be read, they answer on none.
 */
export function nodePortAddresses(
  config: ProxyConfig,
  facts: NodeFacts,
  family: IpFamily,
  local: readonly LocalAddress[],
): NodePortPlaces {
  const version = FAMILY_NAMES[family];
  const listed = expandNodePortAddresses(config.nodePortAddresses);
  const nodeIP = facts.nodeIPs[family];
  const primary = !listed.includes("primary") ? [] : isLoopback(nodeIP) ? undefined : [hostPrefix(nodeIP)];
  const cidrs = [
    ...(primary ?? []),
    ...cidrsOf(
      family,
      listed.filter((entry) => entry !== "primary"),
    ),
  ];
  const unknown = `no ${version} address of this node is known`;
  if (cidrs.length === 0) {
    if (primary !== undefined) return { addresses: "all" };
    if (facts.unreadableIP) {
      return {
        addresses: [],
        warning: `an IP of the Node cannot be read, so node ports are not reachable on any ${version} address`,
      };
    }
    return {
      addresses: "all",
      warning: `${unknown}, so node ports are reachable on all of its local ${version} addresses`,
    };
  }
  const loopback = cidrs.filter(isLoopbackCIDR);
  const { warning: problem, ...localhost } = localhostOf(config, { family, nets: loopback, nodeIP, local });
  const others = cidrs.filter((cidr) => !isLoopbackCIDR(cidr));
  const networks = others.flatMap((text) => parseCIDR(text) ?? []);
  if (networks.some(({ length }) => length === 0)) {
    return { addresses: "all", ...localhost, warning: problem };
  }
  const own = local.map(({ address }) => address).filter((address) => !isLoopback(address));
  const inside = own.filter((address) => networks.some((network) => prefixContains(network, address)));
  const addresses = [...new Set(inside)].sort();
  if (addresses.length === 0 && others.length > 0) {
    const warning = `no interface has an address inside ${others.join(", ")}, so node ports are not reachable on any ${version} address`;
    return { addresses, ...localhost, warning: "localhost" in localhost ? `${warning} except loopback` : warning };
  }
  const missing =
    primary === undefined
      ? `${unknown}, so node ports are not reachable on any ${version} address except loopback`
      : undefined;
  const warning = problem ?? (addresses.length === 0 ? missing : undefined);
  return { addresses, ...localhost, warning };
}

function hostPrefix(address: string): string {
  return `${address}/${address.includes(":") ? 128 : 32}`;
}

interface LocalhostParts {
  readonly family: IpFamily;
  /** The requested loopback CIDRs. */
  readonly nets: readonly string[];
  readonly nodeIP: string;
  readonly local: readonly LocalAddress[];
}

/**
 * Node ports on loopback need an address of this node as the source while packets are routed: its own IP, if an interface
 * has that.
 */
function localhostOf(
  { localhostNodePorts }: ProxyConfig,
  { family, nets, nodeIP, local }: LocalhostParts,
): Pick<NodePortPlaces, "localhost" | "warning"> {
  if (nets.length === 0 || !localhostNodePorts) return {};
  const own = local
    .filter((one) => one.family === family)
    .map(({ address }) => address)
    .filter((address) => !isLoopback(address) && !isLinkLocal(address));
  const source = own.includes(nodeIP) ? nodeIP : own.toSorted()[0];
  if (source === undefined) {
    return {
      warning: `node ports are not reachable on ${nets.join(", ")}, because no interface has an address that can be the source of their packets`,
    };
  }
  return { localhost: { nets, source } };
}
