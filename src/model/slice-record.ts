/** What is kept of an EndpointSlice: parallel arrays, one entry per endpoint, and the candidates they make. */
import { isDeepStrictEqual } from "node:util";
import { type Fields, isFields } from "../base/unknown.js";
import {
  addressOf,
  cut,
  booleanOf,
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
import { NO_HINTS, READY, SERVING, TERMINATING, type CandidateList, type Hints } from "./categorize.js";
import { EndpointList, NO_ENDPOINTS, readAddress, wordsOf } from "./endpoints.js";
import type { IpFamily, Protocol } from "./types.js";

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
  /** At least one. */
  readonly ports: readonly SlicePort[];
  /** With the first of the ports, each address once. Services with one port take them as they are. */
  readonly endpoints: EndpointList;
  /** READY | SERVING | TERMINATING. */
  readonly states: readonly number[];
  /** Undefined when no endpoint has hints. */
  readonly hints: readonly Hints[] | undefined;
}

export interface SliceReadOptions {
  /** One string for equal strings: a port name is in memory once. */
  readonly intern: (text: string) => string;
  /** This node. */
  readonly nodeName: string;
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
  options: SliceReadOptions,
  found: Findings,
): { name?: string; record?: SliceRecord } {
  const fields = fieldsOf(object, "", found);
  const metadata = fieldsOf(fields["metadata"], "metadata", found);
  const name = namespacedName(metadata, found);
  if (name === undefined) return {};
  const labels = fieldsOf(metadata["labels"], "metadata.labels", found);
  const type = fields["addressType"];
  if (Object.hasOwn(labels, HEADLESS_LABEL) || type === "FQDN") return { name };
  const serviceName = labels[SERVICE_NAME_LABEL];
  if (typeof serviceName !== "string" || serviceName === "") {
    found.report(`metadata.labels["${SERVICE_NAME_LABEL}"]`, "is missing: the slice belongs to no service");
    return { name };
  }
  const family = FAMILY_OF_TYPE.get(type);
  if (family === undefined) {
    found.report("addressType", type === undefined ? "is missing" : `${show(type)} is not IPv4, IPv6 or FQDN`);
    return { name };
  }
  const service = `${name.slice(0, name.indexOf("/"))}/${serviceName}`;
  const ports = readSlicePorts(fields, options.intern, found);
  const { endpoints, states, hints } = readEndpoints(fields, family, ports[0]?.port ?? 0, options, found);
  if (ports.length === 0 || endpoints.length === 0) return { name };
  return { name, record: { name, service, family, ports, endpoints, states, hints } };
}

function readSlicePorts(fields: Fields, intern: (text: string) => string, found: Findings): SlicePort[] {
  const items = listOf(fields["ports"], "ports", found);
  const ports = sized<SlicePort>(items.length);
  let count = 0;
  for (let i = 0; i < items.length; i++) {
    const item = items[i];
    found.enter("ports", i);
    if (!isFields(item)) {
      found.report("", `${show(item)} is not an object`);
      continue;
    }
    const protocol = protocolOf(item["protocol"], ".protocol", found);
    // A port without a number means "all ports" to others; there is nothing to send a packet to.
    const port = portOf(item["port"], ".port", found);
    if (protocol === undefined || port === 0) continue;
    const name = intern(textOf(item["name"], ".name", found));
    // An API server has no two of one name and protocol; kube-proxy, given such a slice, uses both.
    if (isRepeated(ports, count, name, protocol, port)) continue;
    ports[count++] = { name, protocol, port };
  }
  found.leave();
  cut(ports, count);
  return ports;
}

function isRepeated(ports: readonly SlicePort[], count: number, name: string, protocol: Protocol, port: number) {
  for (let i = 0; i < count; i++) {
    const other = ports[i];
    if (other.port === port && matches(other, name, protocol)) return true;
  }
  return false;
}

function matches(port: SlicePort, name: string, protocol: Protocol): boolean {
  return port.name === name && port.protocol === protocol;
}

type EndpointColumns = Pick<SliceRecord, "endpoints" | "states" | "hints">;

function readEndpoints(
  fields: Fields,
  family: IpFamily,
  port: number,
  { intern, nodeName }: SliceReadOptions,
  found: Findings,
): EndpointColumns {
  const items = listOf(fields["endpoints"], "endpoints", found);
  const width = wordsOf(family);
  const words = sized<number>(items.length * width);
  const states = sized<number>(items.length);
  let locals: boolean[] | undefined;
  let count = 0;
  let hints: Hints[] | undefined;
  // Up to here a search through the list is faster than a map.
  const seen = items.length > 16 ? new Map<number | string, number>() : undefined;
  for (let i = 0; i < items.length; i++) {
    const item = items[i];
    found.enter("endpoints", i);
    if (!isFields(item)) {
      found.report("", `${show(item)} is not an object`);
      continue;
    }
    // Behind those that there are: it stays where it is unless the address is among them.
    if (!readEndpointAddress(item, family, words, count * width, found)) continue;
    const local = textOf(item["nodeName"], ".nodeName", found) === nodeName;
    const state = readConditions(item, found);
    const hint = item["hints"] === undefined ? NO_HINTS : readHints(item["hints"], intern, found);
    const id = seen && addressId(words, count * width, width);
    let at = seen === undefined ? positionOf(words, count, width) : (seen.get(id ?? 0) ?? -1);
    if (at < 0) {
      at = count++;
      seen?.set(id ?? 0, at);
    } else if (!preferred(state, states[at] ?? 0)) {
      continue;
    }
    states[at] = state;
    if (local) locals ??= items.map(() => false);
    if (locals !== undefined) locals[at] = local;
    if (hint !== NO_HINTS) hints ??= items.map(() => NO_HINTS);
    if (hints !== undefined) hints[at] = hint;
  }
  found.leave();
  cut(words, count * width);
  if (hints !== undefined) cut(hints, count);
  const endpoints = new EndpointList(family, count, words, port, locals);
  return { endpoints, states: sharedStates(states, count), hints };
}

/** By length: states of endpoints that are all ready and serving. */
const HEALTHY: (readonly number[])[] = [];
/** Nearly all lists are shorter than this; longer ones keep their own. */
const MAX_SHARED = 1000;

/** The first `count`, in an array that all slices in good health share. */
function sharedStates(states: number[], count: number): readonly number[] {
  cut(states, count);
  for (let i = 0; i < count; i++) if (states[i] !== (READY | SERVING)) return states;
  return count > MAX_SHARED ? states : (HEALTHY[count] ??= states);
}

/** Position of the address behind the first `count` among these, or -1. */
function positionOf(words: readonly number[], count: number, width: number): number {
  const last = count * width;
  for (let at = 0; at < last; at += width) {
    let i = 0;
    while (i < width && words[at + i] === words[last + i]) i++;
    if (i === width) return at / width;
  }
  return -1;
}

function addressId(words: readonly number[], at: number, width: number): number | string {
  return width === 1 ? words[at] : words.slice(at, at + width).join();
}

/** Whether two records of a slice say the same: asked of every slice that comes again, changed or not. */
export function sameSlice(a: SliceRecord, b: SliceRecord): boolean {
  return (
    a.name === b.name &&
    a.service === b.service &&
    a.family === b.family &&
    sameItems(a.ports, b.ports, (x, y) => x.name === y.name && x.protocol === y.protocol && x.port === y.port) &&
    a.endpoints.equals(b.endpoints) &&
    (a.states === b.states || sameItems(a.states, b.states, (x, y) => x === y)) &&
    isDeepStrictEqual(a.hints, b.hints)
  );
}

function sameItems<T>(a: readonly T[], b: readonly T[], same: (x: T, y: T) => boolean): boolean {
  return a.length === b.length && a.every((x, i) => same(x, b[i]));
}

/** Only the first address of an endpoint counts. False: there is none that can be served. */
function readEndpointAddress(item: Fields, family: IpFamily, into: number[], at: number, found: Findings): boolean {
  const list = item["addresses"];
  const first: unknown = Array.isArray(list) ? list[0] : undefined;
  if (typeof first === "string" && readAddress(first, family, into, at)) return true;
  if (first === undefined) found.report(".addresses", "has no address");
  else {
    const address = addressOf(first, ".addresses[0]", found);
    if (address !== undefined) found.report(".addresses[0]", `${address} is not of the slice's address type`);
  }
  return false;
}

function readConditions(item: Fields, found: Findings): number {
  const value = item["conditions"];
  if (value === undefined || value === null) return READY | SERVING;
  const conditions = fieldsOf(value, ".conditions", found);
  // Conditions that cannot be read say nothing of being ready.
  if (conditions !== value) return 0;
  const ready = booleanOf(conditions["ready"], true, ".conditions.ready", found);
  const serving = booleanOf(conditions["serving"], true, ".conditions.serving", found);
  const terminating = booleanOf(conditions["terminating"], false, ".conditions.terminating", found);
  return (ready ? READY : 0) | (serving ? SERVING : 0) | (terminating ? TERMINATING : 0);
}

function readHints(value: unknown, intern: (text: string) => string, found: Findings): Hints {
  const fields = fieldsOf(value, ".hints", found);
  const names = (key: "forNodes" | "forZones") =>
    listOf(fields[key], `.hints.${key}`, found).flatMap((item, j) => {
      const name = isFields(item) ? item["name"] : undefined;
      if (typeof name === "string") return intern(name);
      found.report(`.hints.${key}[${j}].name`, `${show(name)} is not a name`);
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
  return rank(state) > rank(than);
}

function rank(state: number): number {
  return (state & TERMINATING ? 0 : 2) + (state & READY ? 1 : 0);
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
): CandidateList {
  let only: SliceRecord | undefined;
  let port = 0;
  for (let i = 0; i < slices.length; i++) {
    const slice = slices[i];
    if (slice.family !== family) continue;
    for (let j = 0; j < slice.ports.length; j++) {
      const item = slice.ports[j];
      if (!matches(item, portName, protocol)) continue;
      if (only !== undefined) return mergeSlices(slices, family, portName, protocol);
      only = slice;
      port = item.port;
    }
  }
  if (only === undefined) return NO_CANDIDATES;
  const { endpoints, states, hints } = only;
  return { endpoints: endpoints.onPort(port), states, hints };
}

/** How many of its endpoints are ready. */
export function readyEndpoints({ states }: Pick<SliceRecord, "states">): number {
  let ready = 0;
  for (const state of states) if ((state & READY) !== 0) ready++;
  return ready;
}

const NO_CANDIDATES: CandidateList = { endpoints: NO_ENDPOINTS, states: [], hints: undefined };

function mergeSlices(
  slices: readonly SliceRecord[],
  family: IpFamily,
  portName: string,
  protocol: Protocol,
): CandidateList {
  const merged = new MergedCandidates(family);
  for (const slice of slices) {
    if (slice.family !== family) continue;
    for (const port of slice.ports) if (matches(port, portName, protocol)) merged.add(slice, port.port);
  }
  return merged.list();
}

/** Endpoints of several slices and ports, each address and port once. */
class MergedCandidates {
  readonly #family: IpFamily;
  readonly #words: number[] = [];
  readonly #ports: number[] = [];
  readonly #locals: boolean[] = [];
  readonly #states: number[] = [];
  #hints: Hints[] | undefined;
  /** By EndpointList.id. */
  readonly #positions = new Map<number | string, number>();

  constructor(family: IpFamily) {
    this.#family = family;
  }

  add(slice: SliceRecord, port: number): void {
    if (slice.hints !== undefined) this.#hints ??= this.#states.map(() => NO_HINTS);
    const endpoints = slice.endpoints.onPort(port);
    const width = wordsOf(this.#family);
    for (let i = 0; i < endpoints.length; i++) {
      const state = slice.states[i] ?? 0;
      const id = endpoints.id(i);
      let at = this.#positions.get(id);
      if (at === undefined) {
        at = this.#ports.push(port) - 1;
        this.#positions.set(id, at);
        for (let j = 0; j < width; j++) this.#words.push(endpoints.words[i * width + j]);
      } else if (!preferred(state, this.#states[at] ?? 0)) {
        continue;
      }
      this.#locals[at] = endpoints.isLocal(i);
      this.#states[at] = state;
      if (this.#hints !== undefined) this.#hints[at] = slice.hints?.[i] ?? NO_HINTS;
    }
  }

  list(): CandidateList {
    const locals = this.#locals.includes(true) ? this.#locals : undefined;
    const endpoints = new EndpointList(this.#family, this.#ports.length, this.#words, this.#ports, locals);
    return { endpoints, states: this.#states, hints: this.#hints };
  }
}

/** `slices`, in order of their names, with `record` in the place of its former version. */
export function withSlice(slices: readonly SliceRecord[], record: SliceRecord): readonly SliceRecord[] {
  if (slices.length === 0 || (slices.length === 1 && slices[0]?.name === record.name)) return [record];
  const rest = slices.filter((slice) => slice.name !== record.name);
  const at = rest.findIndex((slice) => slice.name > record.name);
  return at < 0 ? [...rest, record] : rest.toSpliced(at, 0, record);
}
