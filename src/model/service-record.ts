/** What is kept of a Service: only what its meaning depends on, with the API server's defaults filled in. */
import { type Fields, isFields } from "../base/unknown.js";
import { familyOf, mergePrefixes, parseCIDR, type Prefix } from "../base/ip.js";
import {
  addressOf,
  cut,
  choiceOf,
  creationTimeOf,
  fieldsOf,
  listOf,
  namespacedName,
  portOf,
  protocolOf,
  show,
  sized,
  textOf,
  type Findings,
} from "./fields.js";
import type { IpFamily, Protocol } from "./types.js";

export interface PortRecord {
  readonly name: string;
  readonly protocol: Protocol;
  readonly port: number;
  /** 0: none. */
  readonly nodePort: number;
}

/** The service in one family. No address is in two of the three places. */
export interface FamilyRecord {
  readonly clusterIP: string;
  readonly externalIPs: readonly string[];
  readonly loadBalancerIPs: readonly string[];
  /** Undefined: everybody. */
  readonly sourceRanges: readonly string[] | undefined;
}

export interface ServiceRecord {
  /** "namespace/name". */
  readonly name: string;
  /** metadata.uid; "" when the object does not say. */
  readonly uid: string;
  /** Milliseconds since 1970; Infinity when the object does not say. */
  readonly created: number;
  readonly ports: readonly PortRecord[];
  readonly ip: FamilyRecord | undefined;
  readonly ip6: FamilyRecord | undefined;
  readonly internalPolicyLocal: boolean;
  readonly externalPolicyLocal: boolean;
  /** 0: no affinity. */
  readonly affinitySeconds: number;
  /** Annotation RESET_ANNOTATION: TCP connections to an endpoint that is gone are to be reset. */
  readonly resetRemovedEndpoints: boolean;
  /** What a load balancer asks this node; undefined: nothing. */
  readonly healthCheck: HealthCheckRecord | undefined;
}

/** Only a service of type LoadBalancer with an external policy Local has one. */
export interface HealthCheckRecord {
  readonly port: number;
}

export interface ServiceReadOptions {
  /** Feature gate AllowServiceExternalIPs. */
  readonly allowExternalIPs: boolean;
  /** One string for equal strings: a port name is in memory once. */
  readonly intern: (text: string) => string;
}

/** "true": established TCP connections to an endpoint of this service are torn down once the endpoint is gone. */
export const RESET_ANNOTATION = "nft-proxier.dev/reset-removed-endpoints";
const PROXY_NAME_LABEL = "service.kubernetes.io/service-proxy-name";
/** API default of sessionAffinityConfig.clientIP.timeoutSeconds: three hours. */
const DEFAULT_AFFINITY_SECONDS = 10800;
/** The API server's upper bound of it: a day. */
const MAX_AFFINITY_SECONDS = 86400;
const NONE: readonly never[] = Object.freeze([]);
const POLICIES = ["Cluster", "Local"] as const;
const TYPES = ["ClusterIP", "NodePort", "LoadBalancer"] as const;

/**
 * Reads a Service. `name` is absent when the object has none; `record` is absent when the service is not served:
 * another proxy's by its label, ExternalName, headless, or nothing in it that can be served.
 */
export function readService(
  object: unknown,
  options: ServiceReadOptions,
  found: Findings,
): { name?: string; record?: ServiceRecord } {
  const fields = fieldsOf(object, "", found);
  const metadata = fieldsOf(fields["metadata"], "metadata", found);
  const name = namespacedName(metadata, found);
  if (name === undefined) return {};
  const labels = metadata["labels"];
  if (isFields(labels) && Object.hasOwn(labels, PROXY_NAME_LABEL)) return { name };
  const spec = fieldsOf(fields["spec"], "spec", found);
  if (spec["type"] === "ExternalName" || spec["clusterIP"] === "None") return { name };
  const clusterIPs = readClusterIPs(spec, found);
  if (clusterIPs === undefined) return { name };

  const ports = readPorts(spec, options, found);
  const type = choiceOf(spec["type"], TYPES, "ClusterIP", "spec.type", found);
  const external = options.allowExternalIPs ? readExternalIPs(spec, found) : NONE;
  const balancer = readLoadBalancerIPs(fields, found);
  const ranges = readSourceRanges(spec, found);
  const ip = familyRecord("ip", clusterIPs.ip, external, balancer, ranges, found);
  const ip6 = familyRecord("ip6", clusterIPs.ip6, external, balancer, ranges, found);
  if (ports.length === 0 || (ip === undefined && ip6 === undefined)) return { name };
  // As kube-proxy's ExternalPolicyLocal: a node port or a status that type ClusterIP should not have does not count.
  const listed = spec["externalIPs"];
  const reachable = type !== "ClusterIP" || (Array.isArray(listed) && listed.length > 0);
  const internalPolicy = choiceOf(
    spec["internalTrafficPolicy"],
    POLICIES,
    "Cluster",
    "spec.internalTrafficPolicy",
    found,
  );
  const externalPolicy = choiceOf(
    spec["externalTrafficPolicy"],
    POLICIES,
    "Cluster",
    "spec.externalTrafficPolicy",
    found,
  );
  const record: ServiceRecord = {
    name,
    uid: textOf(metadata["uid"], "metadata.uid", found),
    created: creationTimeOf(metadata, found),
    ports,
    ip,
    ip6,
    internalPolicyLocal: internalPolicy === "Local",
    externalPolicyLocal: externalPolicy === "Local" && reachable,
    affinitySeconds: readAffinity(spec, found),
    resetRemovedEndpoints: readReset(metadata, found),
    healthCheck: type === "LoadBalancer" && externalPolicy === "Local" ? readHealthCheck(spec, found) : undefined,
  };
  return { name, record };
}

/** Annotations are text; what is neither "true" nor "false" asks for nothing, with a report. */
function readReset(metadata: Fields, found: Findings): boolean {
  const annotations = metadata["annotations"];
  if (!isFields(annotations)) return false;
  const value = annotations[RESET_ANNOTATION];
  if (value === undefined || value === "true" || value === "false") return value === "true";
  found.report(
    `metadata.annotations["${RESET_ANNOTATION}"]`,
    `${show(value)} is neither "true" nor "false"; "false" is assumed`,
  );
  return false;
}

type ClusterIPs = Record<IpFamily, string | undefined>;

const NAME_OF_FAMILY: Readonly<Record<IpFamily, string>> = { ip: "IPv4", ip6: "IPv6" };

/**
 * The cluster IP of each family; undefined when there is none at all. `ipFamilies` says which entry of `clusterIPs`
 * is whose; without it every entry is of its own family.
 */
function readClusterIPs(spec: Fields, found: Findings): ClusterIPs | undefined {
  const single = textOf(spec["clusterIP"], "spec.clusterIP", found);
  const list = listOf(spec["clusterIPs"], "spec.clusterIPs", found);
  const entries = list.length === 0 && single !== "" ? [single] : list;
  if (entries.length === 0) {
    found.report("spec.clusterIP", "is empty: there is no address to serve");
    return undefined;
  }
  if (entries[0] === "None") return undefined;
  const families = listOf(spec["ipFamilies"], "spec.ipFamilies", found);
  const result: ClusterIPs = { ip: undefined, ip6: undefined };
  for (let i = 0; i < entries.length; i++) {
    const field = list.length === 0 ? "spec.clusterIP" : "";
    if (list.length > 0) found.enter("spec.clusterIPs", i);
    const address = addressOf(entries[i], field, found);
    if (address === undefined) continue;
    const family = familyOf(address);
    const declared = families.length > 0 ? families[i] : NAME_OF_FAMILY[family];
    if (declared === undefined) continue;
    if (declared !== NAME_OF_FAMILY[family]) {
      found.report(field, `${address} is not of the family that spec.ipFamilies[${i}] says, ${show(declared)}`);
    } else if (result[family] === undefined) {
      result[family] = address;
    } else {
      found.report(field, `${address} is a second cluster IP of its family`);
    }
  }
  found.leave();
  return result;
}

function readPorts(spec: Fields, options: ServiceReadOptions, found: Findings): readonly PortRecord[] {
  const items = listOf(spec["ports"], "spec.ports", found);
  if (items.length === 0) found.report("spec.ports", "has no port to serve");
  const ports = sized<PortRecord>(items.length);
  let count = 0;
  for (let i = 0; i < items.length; i++) {
    const item = items[i];
    found.enter("spec.ports", i);
    const port = isFields(item) ? readPort(item, ports, count, options, found) : undefined;
    if (port !== undefined) ports[count++] = port;
    else if (!isFields(item)) found.report("", `${show(item)} is not an object`);
  }
  found.leave();
  cut(ports, count);
  return ports;
}

/** One port; undefined when it cannot be served, or repeats one of the first `count` of `before`. */
function readPort(
  item: Fields,
  before: readonly PortRecord[],
  count: number,
  options: ServiceReadOptions,
  found: Findings,
): PortRecord | undefined {
  const protocol = protocolOf(item["protocol"], ".protocol", found);
  const port = portOf(item["port"], ".port", found);
  if (port === 0) found.report(".port", `${show(item["port"] ?? "")} is not a port (1 to 65535)`);
  if (protocol === undefined || port === 0) return undefined;
  const name = options.intern(textOf(item["name"], ".name", found));
  let nodePort = portOf(item["nodePort"], ".nodePort", found);
  for (let i = 0; i < count; i++) {
    const other = before[i];
    if (other?.protocol !== protocol) continue;
    if (other.name === name) {
      found.report(".name", `${show(name)} is the name of two ${protocol} ports`);
      return undefined;
    }
    if (other.port === port) {
      found.report(".port", `${port}/${protocol} is there twice`);
      return undefined;
    }
    if (nodePort !== 0 && other.nodePort === nodePort) {
      found.report(".nodePort", `${nodePort}/${protocol} is there twice`);
      nodePort = 0;
    }
  }
  return { name, protocol, port, nodePort };
}

/** Canonical addresses of a list, what is none left out. */
function readExternalIPs(spec: Fields, found: Findings): readonly string[] {
  const items = listOf(spec["externalIPs"], "spec.externalIPs", found);
  if (items.length === 0) return NONE;
  return items.flatMap((item, i) => addressOf(item, `spec.externalIPs[${i}]`, found) ?? []);
}

/** Entries with a host name alone are somebody else's; `ipMode: Proxy` wants the packets to reach the balancer. */
function readLoadBalancerIPs(fields: Fields, found: Findings): readonly string[] {
  if (fields["status"] === undefined) return NONE;
  const status = fieldsOf(fields["status"], "status", found);
  const balancer = fieldsOf(status["loadBalancer"], "status.loadBalancer", found);
  const items = listOf(balancer["ingress"], "status.loadBalancer.ingress", found);
  if (items.length === 0) return NONE;
  return items.flatMap((item, i) => {
    const path = `status.loadBalancer.ingress[${i}]`;
    const entry = fieldsOf(item, path, found);
    if (entry["ip"] === undefined || entry["ip"] === null || entry["ip"] === "") return [];
    if (choiceOf(entry["ipMode"], ["VIP", "Proxy"], "VIP", `${path}.ipMode`, found) === "Proxy") return [];
    return addressOf(entry["ip"], `${path}.ip`, found) ?? [];
  });
}

function readSourceRanges(spec: Fields, found: Findings): readonly Prefix[] {
  const items = listOf(spec["loadBalancerSourceRanges"], "spec.loadBalancerSourceRanges", found);
  if (items.length === 0) return NONE;
  return items.flatMap((item, i) => {
    const prefix = typeof item === "string" ? parseCIDR(item.trim()) : undefined;
    if (prefix === undefined) found.report(`spec.loadBalancerSourceRanges[${i}]`, `${show(item)} is not a CIDR`);
    return prefix ?? [];
  });
}

/** None while the API server has not given it a port. */
function readHealthCheck(spec: Fields, found: Findings): HealthCheckRecord | undefined {
  const port = portOf(spec["healthCheckNodePort"], "spec.healthCheckNodePort", found);
  return port === 0 ? undefined : { port };
}

function readAffinity(spec: Fields, found: Findings): number {
  const affinity = choiceOf(spec["sessionAffinity"], ["None", "ClientIP"], "None", "spec.sessionAffinity", found);
  if (affinity === "None") return 0;
  const path = "spec.sessionAffinityConfig";
  const config = fieldsOf(spec["sessionAffinityConfig"], path, found);
  const seconds = fieldsOf(config["clientIP"], `${path}.clientIP`, found)["timeoutSeconds"];
  if (seconds === undefined || seconds === null) return DEFAULT_AFFINITY_SECONDS;
  if (typeof seconds === "number" && Number.isInteger(seconds) && seconds > 0 && seconds <= MAX_AFFINITY_SECONDS) {
    return seconds;
  }
  found.report(
    `${path}.clientIP.timeoutSeconds`,
    `${show(seconds)} is not a number of seconds from 1 to ${MAX_AFFINITY_SECONDS}; ${DEFAULT_AFFINITY_SECONDS} is assumed`,
  );
  return DEFAULT_AFFINITY_SECONDS;
}

/**
 * One family's share. An address that is an external IP and a load-balancer IP is kept as the latter: both lead to the
 * same place, and the source ranges guard it. The service's own cluster IP is neither.
 */
function familyRecord(
  family: IpFamily,
  clusterIP: string | undefined,
  external: readonly string[],
  balancer: readonly string[],
  ranges: readonly Prefix[],
  found: Findings,
): FamilyRecord | undefined {
  if (clusterIP === undefined) return undefined;
  const loadBalancerIPs = ownAddresses(family, clusterIP, balancer, NONE, "status.loadBalancer.ingress", found);
  const externalIPs = ownAddresses(family, clusterIP, external, loadBalancerIPs, "spec.externalIPs", found);
  if (ranges.length === 0) return { clusterIP, externalIPs, loadBalancerIPs, sourceRanges: undefined };
  const mine = ranges.filter((range) => range.family === family);
  // A range of length 0 lets everybody in: the same as no range.
  const restricted = mine.length > 0 && mine.every((range) => range.length > 0);
  return { clusterIP, externalIPs, loadBalancerIPs, sourceRanges: restricted ? mergePrefixes(mine) : undefined };
}

/** Those of a family, each once, without those in `taken`. */
function ownAddresses(
  family: IpFamily,
  clusterIP: string,
  addresses: readonly string[],
  taken: readonly string[],
  field: string,
  found: Findings,
): readonly string[] {
  if (addresses.length === 0) return NONE;
  const kept = new Set<string>();
  for (const address of addresses) {
    if (familyOf(address) !== family || taken.includes(address)) continue;
    if (address === clusterIP) found.report(field, `${address} is the cluster IP of the service`);
    else kept.add(address);
  }
  return kept.size === 0 ? NONE : [...kept];
}
