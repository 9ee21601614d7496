/** What is kept of a Service: only what its meaning depends on, with the API server's defaults filled in. */
import { familyOf, mergePrefixes, parseCIDR, type Prefix } from "./address.js";
import {
  addressOf,
  choiceOf,
  creationTimeOf,
  fieldsOf,
  isFields,
  listOf,
  namespacedName,
  portOf,
  protocolOf,
  show,
  textOf,
  type Fields,
  type Report,
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
  /** Absent: everybody. */
  readonly sourceRanges?: readonly string[];
}

export interface ServiceRecord {
  /** "namespace/name". */
  readonly name: string;
  /** Milliseconds since 1970; Infinity when the object does not say. */
  readonly created: number;
  readonly ports: readonly PortRecord[];
  readonly ip?: FamilyRecord;
  readonly ip6?: FamilyRecord;
  readonly internalPolicyLocal: boolean;
  readonly externalPolicyLocal: boolean;
  /** 0: no affinity. */
  readonly affinitySeconds: number;
}

export interface ServiceReadOptions {
  /** Feature gate AllowServiceExternalIPs. */
  readonly allowExternalIPs: boolean;
  /** One string for equal strings: a port name is in memory once. */
  readonly intern: (text: string) => string;
}

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
  report: Report,
): { name?: string; record?: ServiceRecord } {
  const fields = fieldsOf(object, "", report);
  const metadata = fieldsOf(fields["metadata"], "metadata", report);
  const name = namespacedName(metadata, report);
  if (name === undefined) return {};
  const labels = metadata["labels"];
  if (isFields(labels) && Object.hasOwn(labels, PROXY_NAME_LABEL)) return { name };
  const spec = fieldsOf(fields["spec"], "spec", report);
  if (spec["type"] === "ExternalName" || spec["clusterIP"] === "None") return { name };
  const clusterIPs = readClusterIPs(spec, report);
  if (clusterIPs === undefined) return { name };

  const ports = readPorts(spec, options, report);
  const type = choiceOf(spec["type"], TYPES, "ClusterIP", "spec.type", report);
  const external = options.allowExternalIPs ? readExternalIPs(spec, report) : NONE;
  const balancer = readLoadBalancerIPs(fields, report);
  const ranges = readSourceRanges(spec, report);
  const family = (which: IpFamily): FamilyRecord | undefined => {
    const clusterIP = clusterIPs[which];
    if (clusterIP === undefined) return undefined;
    return familyRecord(which, clusterIP, external, balancer, ranges, report);
  };
  const ip = family("ip");
  const ip6 = family("ip6");
  if (ports.length === 0 || (ip === undefined && ip6 === undefined)) return { name };
  const reachable =
    type !== "ClusterIP" || external.length > 0 || balancer.length > 0 || ports.some((port) => port.nodePort > 0);
  const internalPolicy = choiceOf(
    spec["internalTrafficPolicy"],
    POLICIES,
    "Cluster",
    "spec.internalTrafficPolicy",
    report,
  );
  const externalPolicy = choiceOf(
    spec["externalTrafficPolicy"],
    POLICIES,
    "Cluster",
    "spec.externalTrafficPolicy",
    report,
  );
  const record: ServiceRecord = {
    name,
    created: creationTimeOf(metadata, report),
    ports,
    ...(ip && { ip }),
    ...(ip6 && { ip6 }),
    internalPolicyLocal: internalPolicy === "Local",
    externalPolicyLocal: externalPolicy === "Local" && reachable,
    affinitySeconds: readAffinity(spec, report),
  };
  return { name, record };
}

/**
 * The cluster IP of each family; undefined when there is none at all. `ipFamilies` says which entry of `clusterIPs`
 * is whose; without it every entry is of its own family.
 */
function readClusterIPs(spec: Fields, report: Report): Partial<Record<IpFamily, string>> | undefined {
  const single = textOf(spec["clusterIP"], "spec.clusterIP", report);
  let list = listOf(spec["clusterIPs"], "spec.clusterIPs", report);
  let path = (i: number) => `spec.clusterIPs[${i}]`;
  if (list.length === 0 && single !== "") {
    list = [single];
    path = () => "spec.clusterIP";
  }
  if (list.length === 0) {
    report("spec.clusterIP", "is empty: a service is served from its manifest only with the address written in it");
    return undefined;
  }
  if (list[0] === "None") return undefined;
  const families = listOf(spec["ipFamilies"], "spec.ipFamilies", report);
  const result: Partial<Record<IpFamily, string>> = {};
  list.forEach((item, i) => {
    const address = addressOf(item, path(i), report);
    if (address === undefined) return;
    const family = familyOf(address);
    if (families.length > 0) {
      const declared = families[i];
      if (declared === undefined) return;
      if (declared !== (family === "ip" ? "IPv4" : "IPv6")) {
        report(path(i), `${address} is not of the family that spec.ipFamilies[${i}] says, ${show(declared)}`);
        return;
      }
    }
    if (result[family] === undefined) result[family] = address;
    else report(path(i), `${address} is a second cluster IP of its family`);
  });
  return result;
}

function readPorts(spec: Fields, options: ServiceReadOptions, report: Report): readonly PortRecord[] {
  const ports: PortRecord[] = [];
  const items = listOf(spec["ports"], "spec.ports", report);
  if (items.length === 0) report("spec.ports", "has no port to serve");
  items.forEach((item, i) => {
    const path = `spec.ports[${i}]`;
    if (!isFields(item)) return report(path, `${show(item)} is not an object`);
    const protocol = protocolOf(item["protocol"], `${path}.protocol`, report);
    const port = portOf(item["port"], `${path}.port`, report);
    if (port === 0 && (item["port"] === undefined || item["port"] === null || item["port"] === 0)) {
      report(`${path}.port`, "is missing");
    }
    if (protocol === undefined || port === 0) return;
    const name = options.intern(textOf(item["name"], `${path}.name`, report));
    let nodePort = portOf(item["nodePort"], `${path}.nodePort`, report);
    for (const other of ports) {
      if (other.protocol !== protocol) continue;
      if (other.name === name) return report(`${path}.name`, `${show(name)} is the name of two ${protocol} ports`);
      if (other.port === port) return report(`${path}.port`, `${port}/${protocol} is there twice`);
      if (nodePort !== 0 && other.nodePort === nodePort) {
        report(`${path}.nodePort`, `${nodePort}/${protocol} is there twice`);
        nodePort = 0;
      }
    }
    ports.push({ name, protocol, port, nodePort });
  });
  return ports;
}

function readExternalIPs(spec: Fields, report: Report): readonly string[] {
  const items = listOf(spec["externalIPs"], "spec.externalIPs", report);
  if (items.length === 0) return NONE;
  return items.flatMap((item, i) => addressOf(item, `spec.externalIPs[${i}]`, report) ?? []);
}

/** Entries with a host name alone are somebody else's; `ipMode: Proxy` wants the packets to reach the balancer. */
function readLoadBalancerIPs(fields: Fields, report: Report): readonly string[] {
  if (fields["status"] === undefined) return NONE;
  const status = fieldsOf(fields["status"], "status", report);
  const balancer = fieldsOf(status["loadBalancer"], "status.loadBalancer", report);
  const items = listOf(balancer["ingress"], "status.loadBalancer.ingress", report);
  if (items.length === 0) return NONE;
  return items.flatMap((item, i) => {
    const path = `status.loadBalancer.ingress[${i}]`;
    const entry = fieldsOf(item, path, report);
    if (entry["ip"] === undefined || entry["ip"] === null || entry["ip"] === "") return [];
    if (choiceOf(entry["ipMode"], ["VIP", "Proxy"], "VIP", `${path}.ipMode`, report) === "Proxy") return [];
    return addressOf(entry["ip"], `${path}.ip`, report) ?? [];
  });
}

function readSourceRanges(spec: Fields, report: Report): readonly Prefix[] {
  const items = listOf(spec["loadBalancerSourceRanges"], "spec.loadBalancerSourceRanges", report);
  if (items.length === 0) return NONE;
  return items.flatMap((item, i) => {
    const prefix = typeof item === "string" ? parseCIDR(item.trim()) : undefined;
    if (prefix === undefined) report(`spec.loadBalancerSourceRanges[${i}]`, `${show(item)} is not a CIDR`);
    return prefix ?? [];
  });
}

function readAffinity(spec: Fields, report: Report): number {
  const affinity = choiceOf(spec["sessionAffinity"], ["None", "ClientIP"], "None", "spec.sessionAffinity", report);
  if (affinity === "None") return 0;
  const path = "spec.sessionAffinityConfig";
  const config = fieldsOf(spec["sessionAffinityConfig"], path, report);
  const seconds = fieldsOf(config["clientIP"], `${path}.clientIP`, report)["timeoutSeconds"];
  if (seconds === undefined || seconds === null) return DEFAULT_AFFINITY_SECONDS;
  if (typeof seconds === "number" && Number.isInteger(seconds) && seconds > 0 && seconds <= MAX_AFFINITY_SECONDS) {
    return seconds;
  }
  report(
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
  clusterIP: string,
  external: readonly string[],
  balancer: readonly string[],
  ranges: readonly Prefix[],
  report: Report,
): FamilyRecord {
  const own = (addresses: readonly string[], field: string, taken: readonly string[]): readonly string[] => {
    if (addresses.length === 0) return NONE;
    const kept = new Set<string>();
    for (const address of addresses) {
      if (familyOf(address) !== family || taken.includes(address)) continue;
      if (address === clusterIP) report(field, `${address} is the cluster IP of the service`);
      else kept.add(address);
    }
    return kept.size === 0 ? NONE : [...kept];
  };
  const loadBalancerIPs = own(balancer, "status.loadBalancer.ingress", NONE);
  const externalIPs = own(external, "spec.externalIPs", loadBalancerIPs);
  const mine = ranges.filter((range) => range.family === family);
  // A range of length 0 lets everybody in: the same as no range.
  const restricted = mine.length > 0 && mine.every((range) => range.length > 0);
  return { clusterIP, externalIPs, loadBalancerIPs, ...(restricted && { sourceRanges: mergePrefixes(mine) }) };
}
