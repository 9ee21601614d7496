/** Decodes a Service into its record, and fills in the API server's defaults. */
import { FAMILY_NAMES } from "../../base/ip-families.js";
import { familyOf, type IpFamily, mergePrefixes, type Prefix, specialKindOf } from "../../base/ip.js";
import type { Pieces } from "../../base/time-slice.js";
import { type Fields, isFields } from "../../base/unknown.js";
import type { FamilyRecord, ServicePortRecord, ServiceRecord } from "../records.js";
import { annotationField, annotationNumber, notText, reportUnknown } from "./annotations.js";
import { readBalance } from "./balance.js";
import { readLimits } from "./limit-annotations.js";
import {
  addressOf,
  choiceOf,
  cidrsOf,
  creationTimeOf,
  type DecodeOptions,
  type FieldProblems,
  fieldsOf,
  listOf,
  metadataOf,
  portOf,
  protocolOf,
  readList,
  show,
  textOf,
} from "./field-problems.js";

/** "true": reset established TCP connections to an endpoint of this service once the endpoint is gone. */
const RESET_ANNOTATION = annotationField("reset-removed-endpoints");
const DRAIN_ANNOTATION = annotationField("drain-seconds");
const PROXY_NAME_LABEL = "service.kubernetes.io/service-proxy-name";
/** API default for sessionAffinityConfig.clientIP.timeoutSeconds: three hours. */
const DEFAULT_AFFINITY_SECONDS = 10800;
/** The API server's upper limit for it: a day. */
const MAX_AFFINITY_SECONDS = 86400;
/** A day. */
const MAX_DRAIN_SECONDS = 86_400;
const NONE: readonly never[] = Object.freeze([]);
const POLICIES = ["Cluster", "Local"] as const;
const TYPES = ["ClusterIP", "NodePort", "LoadBalancer"] as const;

/**
 * The record of a Service. Returns undefined if the service is not served: its label assigns it to another proxy, it is
 * ExternalName or headless, or nothing in it can be served.
 */
export function* decodeService(
  name: string,
  fields: Fields,
  options: DecodeOptions,
  problems: FieldProblems,
): Pieces<ServiceRecord | undefined> {
  const metadata = metadataOf(fields, problems);
  if (!readable(metadata, "labels", problems) || !readable(metadata, "annotations", problems)) return undefined;
  const labels = metadata["labels"];
  if (isFields(labels) && Object.hasOwn(labels, PROXY_NAME_LABEL)) {
    return problems.skip(`its label ${PROXY_NAME_LABEL} assigns it to another proxy`);
  }
  const spec = fieldsOf(fields["spec"], "spec", problems);
  if (spec["type"] === "ExternalName") return problems.skip("its type ExternalName is only a DNS name");
  if (spec["clusterIP"] === "None") return problems.skip("it is headless, so its clients connect to its pods");
  const clusterIPs = readClusterIPs(spec, problems);
  if (clusterIPs === undefined) return undefined;

  const ports = yield* readPorts(spec, options, problems);
  // The type decides nothing but whether policy Local counts. With an unknown one, it does.
  const type = choiceOf(spec["type"], TYPES, "ClusterIP", "spec.type", problems, "NodePort");
  const external = options.allowExternalIPs ? yield* readExternalIPs(spec, problems) : NONE;
  const balancer = yield* readLoadBalancerIPs(fields, problems);
  const ranges = readSourceRanges(spec, problems);
  const ip = yield* familyRecord("ip", clusterIPs.ip, external, balancer, ranges, problems);
  const ip6 = yield* familyRecord("ip6", clusterIPs.ip6, external, balancer, ranges, problems);
  if (ports.length === 0 || (ip === undefined && ip6 === undefined)) return undefined;
  // Like kube-proxy's ExternalPolicyLocal: node ports or status that type ClusterIP should not have do not count.
  const listed = spec["externalIPs"];
  const reachable = type !== "ClusterIP" || (Array.isArray(listed) && listed.length > 0);
  const internalPolicy = choiceOf(
    spec["internalTrafficPolicy"],
    POLICIES,
    "Cluster",
    "spec.internalTrafficPolicy",
    problems,
    "Local",
  );
  const externalPolicy = choiceOf(
    spec["externalTrafficPolicy"],
    POLICIES,
    "Cluster",
    "spec.externalTrafficPolicy",
    problems,
    "Local",
  );
  const affinitySeconds = readAffinity(spec, problems);
  const drainSeconds = readDrain(metadata, problems);
  const { annotations } = metadata;
  if (isFields(annotations)) reportUnknown(annotations, problems);
  return {
    name,
    uid: textOf(metadata["uid"], "metadata.uid", problems),
    created: creationTimeOf(metadata, problems),
    ports,
    ip,
    ip6,
    internalPolicyLocal: internalPolicy === "Local",
    externalPolicyLocal: externalPolicy === "Local" && reachable,
    affinitySeconds,
    limits: readLimits(metadata, problems),
    balance: readBalance(metadata, affinitySeconds > 0, problems),
    resetRemovedEndpoints: readReset(metadata, drainSeconds, problems),
    drainSeconds,
    healthCheckPort:
      type === "LoadBalancer" && externalPolicy === "Local"
        ? portOf(spec["healthCheckNodePort"], "spec.healthCheckNodePort", problems)
        : 0,
  };
}

/** Returns false, with a report, if labels or annotations are no object: nobody knows then which proxy or limits they name. */
function readable(metadata: Fields, name: "labels" | "annotations", problems: FieldProblems): boolean {
  const value = metadata[name];
  if (value === undefined || value === null || isFields(value)) return true;
  problems.report(`metadata.${name}`, `${show(value)} is not an object, so the service is not served`);
  return false;
}

/** Annotations are text. A value other than "true" or "false" is reported, and resets nothing. */
function readReset(metadata: Fields, drainSeconds: number, problems: FieldProblems): boolean {
  const annotations = metadata["annotations"];
  if (!isFields(annotations)) return false;
  const value = annotations[RESET_ANNOTATION.key];
  if (value === "false" && drainSeconds > 0) {
    problems.refuse(RESET_ANNOTATION.path, `"false" is ignored: ${DRAIN_ANNOTATION.key} implies "true"`);
  }
  if (value === undefined || value === "true" || value === "false") return value === "true";
  const why = notText(value) ?? `${show(value)} is neither "true" nor "false"`;
  problems.report(RESET_ANNOTATION.path, `${why}; using "${drainSeconds > 0}"`);
  return false;
}

function readDrain(metadata: Fields, problems: FieldProblems): number {
  const annotations = metadata["annotations"];
  return isFields(annotations) ? annotationNumber(annotations, "drain-seconds", MAX_DRAIN_SECONDS, problems) : 0;
}

type ClusterIPs = Record<IpFamily, string | undefined>;

/**
 * The cluster IP of each family. Returns undefined if there is none at all. `ipFamilies` assigns a family to each entry of
 * `clusterIPs`; without it, each entry belongs to its own family.
 */
function readClusterIPs(spec: Fields, problems: FieldProblems): ClusterIPs | undefined {
  const single = textOf(spec["clusterIP"], "spec.clusterIP", problems);
  const list = listOf(spec["clusterIPs"], "spec.clusterIPs", problems);
  const entries = list.length === 0 && single !== "" ? [single] : list;
  if (entries.length === 0) {
    problems.report("spec.clusterIP", "is empty, so there is no address to serve");
    return undefined;
  }
  if (entries[0] === "None") return undefined;
  const families = listOf(spec["ipFamilies"], "spec.ipFamilies", problems);
  const result: ClusterIPs = { ip: undefined, ip6: undefined };
  for (let i = 0; i < entries.length; i++) {
    const field = list.length === 0 ? "spec.clusterIP" : "";
    if (list.length > 0) problems.enter("spec.clusterIPs", i);
    const address = ordinaryAddressOf(entries[i], field, "a cluster IP", problems);
    if (address === undefined) continue;
    const family = familyOf(address);
    const declared = families.length > 0 ? families[i] : FAMILY_NAMES[family];
    if (declared === undefined) continue;
    if (declared !== FAMILY_NAMES[family]) {
      problems.report(field, `${address} does not have the family in spec.ipFamilies[${i}], ${show(declared)}`);
    } else if (result[family] === undefined) {
      result[family] = address;
    } else {
      problems.report(field, `${address} is a second cluster IP of the same family`);
    }
  }
  problems.leave();
  return result;
}

function* readPorts(
  spec: Fields,
  options: DecodeOptions,
  problems: FieldProblems,
): Pieces<readonly ServicePortRecord[]> {
  const items = listOf(spec["ports"], "spec.ports", problems);
  if (items.length === 0) problems.report("spec.ports", "has no port to serve");
  const known = new Set<string>();
  const ports = yield* readList(items, (item, i) => {
    problems.enter("spec.ports", i);
    if (isFields(item)) return readPort(item, known, options, problems);
    problems.report("", `${show(item)} is not an object`);
    return undefined;
  });
  problems.leave();
  return ports;
}

/** Adds a value. Returns false if it was already known. */
function isNew(known: Set<string>, value: string): boolean {
  return known.size < known.add(value).size;
}

/**
 * Reads one port. Returns undefined if it cannot be served, or repeats another one.
 * @param known names, ports and node ports of earlier ports of the service, each with its protocol.
 */
function readPort(
  item: Fields,
  known: Set<string>,
  options: DecodeOptions,
  problems: FieldProblems,
): ServicePortRecord | undefined {
  const protocol = protocolOf(item["protocol"], problems);
  const port = portOf(item["port"], ".port", problems);
  if (port === 0) problems.report(".port", `${show(item["port"] ?? "")} is not a port (1 to 65535)`);
  if (protocol === undefined || port === 0) return undefined;
  const name = options.intern(textOf(item["name"], ".name", problems));
  let nodePort = portOf(item["nodePort"], ".nodePort", problems);
  if (known.has(`name ${protocol} ${name}`)) {
    problems.report(".name", `${show(name)} is the name of another ${protocol} port`);
    return undefined;
  }
  if (!isNew(known, `port ${protocol} ${port}`)) {
    problems.report(".port", `${port}/${protocol} occurs twice`);
    return undefined;
  }
  known.add(`name ${protocol} ${name}`);
  if (nodePort !== 0 && !isNew(known, `node port ${protocol} ${nodePort}`)) {
    problems.report(".nodePort", `${nodePort}/${protocol} occurs twice`);
    nodePort = 0;
  }
  return { name, protocol, port, nodePort };
}

/** Canonical addresses of a list. Invalid ones are reported and ignored. */
function readExternalIPs(spec: Fields, problems: FieldProblems): Pieces<readonly string[]> {
  return readList(listOf(spec["externalIPs"], "spec.externalIPs", problems), (item, i) =>
    ordinaryAddressOf(item, `spec.externalIPs[${i}]`, "an external IP", problems),
  );
}

/**
 * Accepts the addresses that the API server accepts in such a field (ValidateEndpointIP of pkg/apis/core/validation), except
 * multicast ones; the API server only rejects link-local multicast. Reports and ignores anything else.
 */
function ordinaryAddressOf(value: unknown, field: string, what: string, problems: FieldProblems): string | undefined {
  const address = addressOf(value, field, problems);
  const special = address && specialKindOf(address);
  if (special === undefined) return address;
  problems.refuse(field, `${address} is ${special} address, which cannot be ${what}`);
  return undefined;
}

/**
 * Skips entries with only a host name. Entries with `ipMode: Proxy` are skipped too: their packets must reach the balancer. The
 * API server accepts any address here. A loopback address, as `minikube tunnel` writes it, would take a port from the node's
 * own programs.
 */
function* readLoadBalancerIPs(fields: Fields, problems: FieldProblems): Pieces<readonly string[]> {
  if (fields["status"] === undefined) return NONE;
  const status = fieldsOf(fields["status"], "status", problems);
  const balancer = fieldsOf(status["loadBalancer"], "status.loadBalancer", problems);
  const items = listOf(balancer["ingress"], "status.loadBalancer.ingress", problems);
  return yield* readList(items, (item, i) => {
    const path = `status.loadBalancer.ingress[${i}]`;
    const entry = fieldsOf(item, path, problems);
    if (entry["ip"] === undefined || entry["ip"] === null || entry["ip"] === "") return undefined;
    const mode = choiceOf(entry["ipMode"], ["VIP", "Proxy"], "VIP", `${path}.ipMode`, problems, "Proxy");
    if (mode === "Proxy") return undefined;
    const address = addressOf(entry["ip"], `${path}.ip`, problems);
    if (address === undefined || specialKindOf(address) !== "a loopback") return address;
    problems.refuse(`${path}.ip`, `${address} is a loopback address, whose ports belong to the node`);
    return undefined;
  });
}

/** Source ranges of both families. */
interface SourceRanges {
  readonly ranges: readonly Prefix[];
  /** Whether some of them cannot be read. They allow no client. */
  readonly unreadable: boolean;
}

function readSourceRanges(spec: Fields, problems: FieldProblems): SourceRanges {
  const path = "spec.loadBalancerSourceRanges";
  const value = spec["loadBalancerSourceRanges"];
  if (value === undefined || value === null) return { ranges: NONE, unreadable: false };
  if (!Array.isArray(value)) {
    problems.report(path, `${show(value)} is not a list, so load-balancer IPs accept no client`);
    return { ranges: NONE, unreadable: true };
  }
  const ranges = cidrsOf(value, path, problems, ", so it allows no client");
  return { ranges, unreadable: ranges.length < value.length };
}

function readAffinity(spec: Fields, problems: FieldProblems): number {
  const affinity = choiceOf(spec["sessionAffinity"], ["None", "ClientIP"], "None", "spec.sessionAffinity", problems);
  if (affinity === "None") return 0;
  const path = "spec.sessionAffinityConfig";
  const config = fieldsOf(spec["sessionAffinityConfig"], path, problems);
  const seconds = fieldsOf(config["clientIP"], `${path}.clientIP`, problems)["timeoutSeconds"];
  if (seconds === undefined || seconds === null) return DEFAULT_AFFINITY_SECONDS;
  if (typeof seconds === "number" && Number.isInteger(seconds) && seconds > 0 && seconds <= MAX_AFFINITY_SECONDS) {
    return seconds;
  }
  problems.report(
    `${path}.clientIP.timeoutSeconds`,
    `${show(seconds)} is not a number of seconds from 1 to ${MAX_AFFINITY_SECONDS}; using ${DEFAULT_AFFINITY_SECONDS}`,
  );
  return DEFAULT_AFFINITY_SECONDS;
}

/**
 * The service's part in one family. An address that is both an external IP and a load-balancer IP is kept as the latter: both
 * have the same effect, and the source ranges protect it. The service's own cluster IP is kept as neither.
 */
function* familyRecord(
  family: IpFamily,
  clusterIP: string | undefined,
  external: readonly string[],
  balancer: readonly string[],
  { ranges, unreadable }: SourceRanges,
  problems: FieldProblems,
): Pieces<FamilyRecord | undefined> {
  if (clusterIP === undefined) return undefined;
  const known = new Set([clusterIP]);
  const own = (addresses: readonly string[], field: string): Pieces<readonly string[]> =>
    readList(addresses, (address) => {
      if (address === clusterIP) problems.refuse(field, `${address} is the cluster IP of the service`);
      return familyOf(address) === family && isNew(known, address) ? address : undefined;
    });
  const loadBalancerIPs = yield* own(balancer, "status.loadBalancer.ingress");
  const externalIPs = yield* own(external, "spec.externalIPs");
  const mine = ranges.filter((range) => range.family === family);
  // A range of length 0 allows every client, so it is the same as no range. An unreadable one may belong to either family.
  const restricted = (mine.length > 0 || unreadable) && mine.every((range) => range.length > 0);
  return { clusterIP, externalIPs, loadBalancerIPs, sourceRanges: restricted ? mergePrefixes(mine) : undefined };
}
