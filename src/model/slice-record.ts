/** What is kept of an EndpointSlice: parallel arrays, one entry per endpoint, and the candidates they make. */
import { familyOf } from "./address.js";
import {
  addressOf,
  booleanOf,
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
import { NO_HINTS, READY, SERVING, TERMINATING, type CandidateList, type Hints } from "./categorize.js";
import type { Endpoint, IpFamily, Protocol } from "./types.js";

export interface SlicePort {
  readonly name: string;
  readonly protocol: Protocol;
  readonly port: number;
}

export interface SliceRecord {
  /** "namespace/name" of the slice. */
  readonly name: string;
  /** "namespace/name" of its service. */
  readonly service: string;
  readonly family: IpFamily;
  readonly ports: readonly SlicePort[];
  /** Canonical, each once. */
  readonly addresses: readonly string[];
  /** Node names, "" when not said. */
  readonly nodes: readonly string[];
  /** READY | SERVING | TERMINATING. */
  readonly states: readonly number[];
  /** Absent when no endpoint has hints. */
  readonly hints?: readonly Hints[];
}

const SERVICE_NAME_LABEL = "kubernetes.io/service-name";
const HEADLESS_LABEL = "service.kubernetes.io/headless";
const FAMILY_OF_TYPE: ReadonlyMap<unknown, IpFamily> = new Map([
  ["IPv4", "ip"],
  ["IPv6", "ip6"],
]);

/**
 * Reads an EndpointSlice. `name` is absent when the object has none; `record` is absent when the slice is not used:
 * of a headless service, FQDN, of no service, or without a port or endpoint that can be served.
 */
export function readSlice(
  object: unknown,
  intern: (text: string) => string,
  report: Report,
): { name?: string; record?: SliceRecord } {
  const fields = fieldsOf(object, "", report);
  const metadata = fieldsOf(fields["metadata"], "metadata", report);
  const name = namespacedName(metadata, report);
  if (name === undefined) return {};
  const labels = fieldsOf(metadata["labels"], "metadata.labels", report);
  const type = fields["addressType"];
  if (Object.hasOwn(labels, HEADLESS_LABEL) || type === "FQDN") return { name };
  const serviceName = labels[SERVICE_NAME_LABEL];
  if (typeof serviceName !== "string" || serviceName === "") {
    report(`metadata.labels["${SERVICE_NAME_LABEL}"]`, "is missing: the slice belongs to no service");
    return { name };
  }
  const family = FAMILY_OF_TYPE.get(type);
  if (family === undefined) {
    report("addressType", type === undefined ? "is missing" : `${show(type)} is not IPv4, IPv6 or FQDN`);
    return { name };
  }
  const service = `${name.slice(0, name.indexOf("/"))}/${serviceName}`;
  const ports = readSlicePorts(fields, intern, report);
  const endpoints = readEndpoints(fields, family, intern, report);
  if (ports.length === 0 || endpoints.addresses.length === 0) return { name };
  return { name, record: { name, service, family, ports, ...endpoints } };
}

function readSlicePorts(fields: Fields, intern: (text: string) => string, report: Report): SlicePort[] {
  const ports: SlicePort[] = [];
  listOf(fields["ports"], "ports", report).forEach((item, i) => {
    const path = `ports[${i}]`;
    if (!isFields(item)) return report(path, `${show(item)} is not an object`);
    const protocol = protocolOf(item["protocol"], `${path}.protocol`, report);
    // A port without a number means "all ports" to others; there is nothing to send a packet to.
    const port = portOf(item["port"], `${path}.port`, report);
    if (protocol === undefined || port === 0) return;
    const name = intern(textOf(item["name"], `${path}.name`, report));
    if (ports.some((other) => other.name === name && other.protocol === protocol)) {
      return report(`${path}.name`, `${show(name)} is the name of two ${protocol} ports`);
    }
    ports.push({ name, protocol, port });
  });
  return ports;
}

interface EndpointColumns {
  readonly addresses: string[];
  readonly nodes: string[];
  readonly states: number[];
  readonly hints?: Hints[];
}

function readEndpoints(
  fields: Fields,
  family: IpFamily,
  intern: (text: string) => string,
  report: Report,
): EndpointColumns {
  const items = listOf(fields["endpoints"], "endpoints", report);
  const addresses: string[] = [];
  const nodes: string[] = [];
  const states: number[] = [];
  let hints: Hints[] | undefined;
  const seen = new Map<string, number>();
  for (let i = 0; i < items.length; i++) {
    const item = items[i];
    if (!isFields(item)) {
      report(`endpoints[${i}]`, `${show(item)} is not an object`);
      continue;
    }
    const address = readEndpointAddress(item, i, family, report);
    if (address === undefined) continue;
    const node = item["nodeName"];
    const state = readConditions(item, i, report);
    const hint = item["hints"] === undefined ? NO_HINTS : readHints(item["hints"], i, intern, report);
    let at = seen.get(address);
    if (at === undefined) {
      at = addresses.length;
      seen.set(address, at);
    } else if (!preferred(state, states[at] ?? 0)) {
      continue;
    }
    addresses[at] = address;
    nodes[at] = typeof node === "string" ? intern(node) : textOf(node, `endpoints[${i}].nodeName`, report);
    states[at] = state;
    if (hint !== NO_HINTS) hints ??= addresses.map(() => NO_HINTS);
    if (hints !== undefined) hints[at] = hint;
  }
  return { addresses, nodes, states, ...(hints && { hints }) };
}

/** Only the first address of an endpoint counts. */
function readEndpointAddress(item: Fields, i: number, family: IpFamily, report: Report): string | undefined {
  const list = item["addresses"];
  const first: unknown = Array.isArray(list) ? list[0] : undefined;
  if (first === undefined) {
    report(`endpoints[${i}].addresses`, "has no address");
    return undefined;
  }
  const address = addressOf(first, `endpoints[${i}].addresses[0]`, report);
  if (address === undefined || familyOf(address) === family) return address;
  report(`endpoints[${i}].addresses[0]`, `${address} is not of the slice's address type`);
  return undefined;
}

function readConditions(item: Fields, i: number, report: Report): number {
  const value = item["conditions"];
  if (value === undefined || value === null) return READY | SERVING;
  const path = `endpoints[${i}].conditions`;
  const conditions = fieldsOf(value, path, report);
  const ready = booleanOf(conditions["ready"], true, `${path}.ready`, report);
  const serving = booleanOf(conditions["serving"], true, `${path}.serving`, report);
  const terminating = booleanOf(conditions["terminating"], false, `${path}.terminating`, report);
  return (ready ? READY : 0) | (serving ? SERVING : 0) | (terminating ? TERMINATING : 0);
}

function readHints(value: unknown, i: number, intern: (text: string) => string, report: Report): Hints {
  const path = `endpoints[${i}].hints`;
  const fields = fieldsOf(value, path, report);
  const names = (key: "forNodes" | "forZones") =>
    listOf(fields[key], `${path}.${key}`, report).flatMap((item, j) => {
      const name = isFields(item) ? item["name"] : undefined;
      if (typeof name === "string") return intern(name);
      report(`${path}.${key}[${j}].name`, `${show(name)} is not a name`);
      return [];
    });
  const nodes = names("forNodes");
  const zones = names("forZones");
  return nodes.length === 0 && zones.length === 0 ? NO_HINTS : { nodes, zones };
}

/**
 * Of two endpoints with one address and port, the one that is not terminating (a pod network may give a dying pod's
 * address to a new one); then the ready one; then the one that came first.
 */
function preferred(state: number, than: number): boolean {
  const rank = (bits: number) => (bits & TERMINATING ? 0 : 2) + (bits & READY ? 1 : 0);
  return rank(state) > rank(than);
}

/**
 * The endpoints of one service port, merged from the slices of its service in one family. A slice's port matches by
 * name and protocol; the same address and port in two slices is one endpoint. Slices come in order of their names.
 */
export function candidatesOf(
  slices: readonly SliceRecord[],
  family: IpFamily,
  portName: string,
  protocol: Protocol,
  nodeName: string,
): CandidateList {
  const endpoints: Endpoint[] = [];
  const states: number[] = [];
  let hints: Hints[] | undefined;
  let used = 0;
  let seen: Map<number, Map<string, number>> | undefined;
  for (const slice of slices) {
    if (slice.family !== family) continue;
    const match = slice.ports.find((port) => port.name === portName && port.protocol === protocol);
    if (match === undefined) continue;
    // One slice holds an address once; positions need looking up only from the second slice on.
    if (++used === 2) seen = positions(endpoints);
    const onPort = seen && getOrAdd(seen, match.port);
    if (slice.hints !== undefined) hints ??= endpoints.map(() => NO_HINTS);
    for (let i = 0; i < slice.addresses.length; i++) {
      const address = slice.addresses[i] ?? "";
      const state = slice.states[i] ?? 0;
      let at = endpoints.length;
      if (onPort !== undefined) {
        const known = onPort.get(address);
        if (known === undefined) onPort.set(address, at);
        else if (preferred(state, states[known] ?? 0)) at = known;
        else continue;
      }
      endpoints[at] = { address, port: match.port, local: slice.nodes[i] === nodeName };
      states[at] = state;
      if (hints !== undefined) hints[at] = slice.hints?.[i] ?? NO_HINTS;
    }
  }
  return { endpoints, states, ...(hints && { hints }) };
}

function positions(endpoints: readonly Endpoint[]): Map<number, Map<string, number>> {
  const seen = new Map<number, Map<string, number>>();
  endpoints.forEach((endpoint, at) => getOrAdd(seen, endpoint.port).set(endpoint.address, at));
  return seen;
}

function getOrAdd(seen: Map<number, Map<string, number>>, port: number): Map<string, number> {
  let onPort = seen.get(port);
  if (onPort === undefined) seen.set(port, (onPort = new Map()));
  return onPort;
}
