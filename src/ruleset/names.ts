/**
 * Names inside the table. Names that kube-proxy also uses have its types and flags, so that either program can start on the
 * other's table. kube-proxy must not mistake the other names for its own. It flushes and then deletes every chain with a "/" in
 * its name, and deletes every set whose name begins with `affinity-`. If an element of a map unknown to it still leads to such
 * a chain, the kernel rejects the deletion. kube-proxy then retries with every sync, forever.
 */
import { createHash } from "node:crypto";
import { portId, type ServicePortView } from "../model/service-port-view.js";
import type { ListValue } from "./list-values.js";

/** The table's name in both families; kube-proxy's, deliberately. */
export const TABLE_NAME = "kube-proxy";
/** The table's comment, which is kube-proxy's as well. */
export const TABLE_COMMENT = "rules for kube-proxy";

/** Name of the copy that `handover` leaves (src/migration/handover/). No program that we know uses this table name. */
export const HANDOVER_TABLE = "nft-proxier-handover";

export const SetName = {
  clusterIPs: "cluster-ips",
  nodePortIPs: "nodeport-ips",
  hairpin: "hairpin-connections",
  noEndpointServices: "no-endpoint-services",
  noEndpointNodePorts: "no-endpoint-nodeports",
  firewallIPs: "firewall-ips",
  services: "services",
  servicesCluster: "services-cluster",
  servicesLocal: "services-local",
  nodePorts: "nodeports",
  nodePortsCluster: "nodeports-cluster",
  nodePortsLocal: "nodeports-local",
  dispatch: "dispatch",
  stickyDraws: "sticky-draws",
  stickyCluster: "sticky-cluster",
  stickyLocal: "sticky-local",
  nodePortEndpoints: "nodeport-endpoints",
  serviceCIDRs: "service-cidrs",
  resetServices: "reset-services",
  resetNodePorts: "reset-nodeports",
  limitedServices: "limited-services",
  limitedNodePorts: "limited-nodeports",
  limits: "limits",
} as const;

/** Names of kube-proxy's verdict maps of VIPs and node ports. Earlier versions of this program used them too. */
export const FORMER_SERVICE_MAPS: readonly string[] = ["service-ips", "service-nodeports"];

/** Name of the map with the endpoints of this shard's VIPs. */
export function endpointsName(shard: number): string {
  return `endpoints-${shard.toString(16)}`;
}

export const ChainName = {
  filterPreroutingPreDnat: "filter-prerouting-pre-dnat",
  filterOutputPreDnat: "filter-output-pre-dnat",
  filterInput: "filter-input",
  filterForward: "filter-forward",
  filterOutput: "filter-output",
  natPrerouting: "nat-prerouting",
  natOutput: "nat-output",
  natPostrouting: "nat-postrouting",
  services: "services",
  served: "served",
  // kube-proxy flushes chains with these names when it starts, so that it can delete `nodeport-ips`.
  nodeCheck: "nodeport-endpoints-check",
  serviceCheck: "service-endpoints-check",
  reject: "reject-chain",
  drop: "drop-chain",
  sourceRangesDrop: "source-ranges-drop",
  endpointRefusals: "endpoint-refusals",
  externalLocal: "external-local",
  nodePortLocal: "nodeport-local",
  stickyCluster: "sticky-cluster",
  stickyLocal: "sticky-local",
  localhostNodePorts: "localhost-nodeports",
  localhostPrerouting: "localhost-prerouting",
  localhostInput: "localhost-input",
} as const;

/**
 * Local lists of a service use indices from here on, cluster lists those below. A node cannot hold that many endpoints in
 * memory.
 */
export const LOCAL_INDEX_BASE = 2 ** 24;

/**
 * Name of the chain that draws one of `count` endpoints of a shard. Node ports have separate chains, because their key has no
 * address. A chain of kind "affinity" draws an endpoint's number, for the chains of service ports with affinity.
 */
export function drawChainName({ kind, count, shard, nodePort, slots }: ListValue): string {
  if (kind === "affinity") return `sticky-draw-${count}`;
  const how = slots === undefined ? kind : `${kind}-by-${slots}`;
  return nodePort ? `np-${how}-${count}` : `${how}-${count}-${shard.toString(16)}`;
}

/** Longest chain or set name that we make; the kernel accepts 255 bytes. */
const NAME_LIMIT = 200;
const PLAIN_NAME = /^[a-z0-9][a-z0-9._-]*$/;

function portParts({ service, protocol, portName }: ServicePortView): string[] {
  return [...service.split("/"), protocol.toLowerCase(), ...(portName === "" ? [] : [portName])];
}

function hashOf(parts: readonly string[]): string {
  return createHash("sha256").update(JSON.stringify(parts)).digest("hex").slice(0, 10);
}

/** A number from the first 7 digits of the hash that begins the names of the service port's own chains and sets. */
export function portHash(view: ServicePortView): number {
  return Number.parseInt(hashOf(portParts(view)).slice(0, 7), 16);
}

/**
 * Unique, printable base for the names of a service port's own chains and sets: 10 characters of hash (40 bits), then the
 * readable name. Names from the API are not trusted as text: a name with unusual characters, or a long one, is skipped.
 */
function ownName(parts: readonly string[]): string {
  const text = parts.join("_").toLowerCase();
  const hash = hashOf(parts);
  return PLAIN_NAME.test(text) && text.length <= NAME_LIMIT - hash.length ? `${hash}-${text}` : hash;
}

/** Longest comment that nft prints. */
const COMMENT_BYTES = 128;

/** Comment that names the owner of a chain. Empty for a name that nft could not print. */
export function ownComment(view: ServicePortView): { comment?: string } {
  const id = portId(view);
  return /^[\x20-\x7e]*$/.test(id) && !id.includes('"') ? { comment: id.slice(0, COMMENT_BYTES) } : {};
}

/** Names of the chains and the set that belong to a service port, or to all ports of its service. `sticky` means ClientIP affinity: new names would forget the clients. */
export function ownNames(view: ServicePortView) {
  const parts = portParts(view);
  const base = ownName(parts);
  return {
    /** For load-balancer IPs that no other service guards. */
    firewall: `source-ranges-${base}`,
    /** For a VIP that other services guard too. */
    sharedFirewall: (address: string) => `source-ranges-${ownName([...parts, "shared", address.replaceAll(":", ".")])}`,
    draw: { cluster: `sticky-cluster-${base}`, masq: `sticky-masq-${base}`, local: `sticky-local-${base}` },
    remember: { cluster: `sticky-cluster-remember-${base}`, local: `sticky-local-remember-${base}` },
    /** One for all ports of the service: for each rule with a set, the kernel walks the list of all sets. */
    clients: `sticky-clients-${ownName(view.service.split("/"))}`,
  };
}
