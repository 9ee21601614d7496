/** Decodes an EndpointSlice into its record: parallel arrays, one entry per endpoint. */
import { familyNamed } from "../../base/ip-families.js";
import type { IpFamily } from "../../base/ip.js";
import { inPieces, type Pieces } from "../../base/time-slice.js";
import { type Fields, isFields } from "../../base/unknown.js";
import { type Hints, NO_HINTS, preferred, READY, SERVING, TERMINATING } from "../endpoint-state.js";
import { EndpointList, readAddress, specialEndpoint, wordsOf } from "../endpoint-list.js";
import type { EndpointColumns, SliceObject, SlicePort, SliceRecord } from "../records.js";
import {
  addressOf,
  booleanOf,
  cut,
  type DecodeOptions,
  type FieldProblems,
  fieldsOf,
  listOf,
  metadataOf,
  portOf,
  protocolOf,
  readList,
  show,
  sized,
  textOf,
} from "./field-problems.js";

const SERVICE_NAME_LABEL = "kubernetes.io/service-name";
/** Set by the EndpointSlice controller. */
const TRIGGER_ANNOTATION = "endpoints.kubernetes.io/last-change-trigger-time";
const HEADLESS_LABEL = "service.kubernetes.io/headless";

/**
 * Decodes an EndpointSlice. It has no record if it is not used: it belongs to a headless service or to none, is FQDN, or has no
 * port or endpoint that can be served.
 */
export function* decodeSlice(
  name: string,
  fields: Fields,
  options: DecodeOptions,
  problems: FieldProblems,
): Pieces<SliceObject> {
  const metadata = metadataOf(fields, problems);
  const labels = fieldsOf(metadata["labels"], "metadata.labels", problems);
  const type = fields["addressType"];
  const family = familyNamed(type);
  const serviceName = labels[SERVICE_NAME_LABEL];
  const hasService = typeof serviceName === "string" && serviceName !== "";
  const counted = family !== undefined && hasService;
  const trigger = family && readTrigger(metadata, family);
  const decoded = (record?: SliceRecord): SliceObject => ({
    kind: "EndpointSlice",
    name,
    record,
    counted,
    trigger,
    problems: problems.all,
    refused: problems.refused,
  });
  if (Object.hasOwn(labels, HEADLESS_LABEL) || type === "FQDN") return decoded();
  if (!hasService) {
    problems.report(`metadata.labels["${SERVICE_NAME_LABEL}"]`, "is missing, so the slice belongs to no service");
    return decoded();
  }
  if (family === undefined) {
    problems.report("addressType", type === undefined ? "is missing" : `${show(type)} is not IPv4, IPv6 or FQDN`);
    return decoded();
  }
  const service = `${name.slice(0, name.indexOf("/"))}/${serviceName}`;
  const ports = yield* readSlicePorts(fields, options.intern, problems);
  const columns = yield* readEndpoints(name, fields, family, ports[0]?.port ?? 0, options, problems);
  const { endpoints, states, hints, details } = columns;
  if (ports.length === 0 || endpoints.length === 0) return decoded();
  return decoded({ name, service, family, ports, endpoints, states, hints, details });
}

function readTrigger(metadata: Fields, family: IpFamily): SliceObject["trigger"] {
  const { annotations } = metadata;
  const text = isFields(annotations) ? annotations[TRIGGER_ANNOTATION] : undefined;
  const at = typeof text === "string" ? Date.parse(text) : NaN;
  return Number.isNaN(at) ? undefined : { family, at };
}

function* readSlicePorts(
  fields: Fields,
  intern: (text: string) => string,
  problems: FieldProblems,
): Pieces<readonly SlicePort[]> {
  const known = new Set<string>();
  const ports = yield* readList(listOf(fields["ports"], "ports", problems), (item, i): SlicePort | undefined => {
    problems.enter("ports", i);
    if (!isFields(item)) {
      problems.report("", `${show(item)} is not an object`);
      return undefined;
    }
    const protocol = protocolOf(item["protocol"], problems);
    // A port without a number means "all ports" to other programs. A packet needs a number.
    const port = portOf(item["port"], ".port", problems);
    if (protocol === undefined || port === 0) return undefined;
    const name = intern(textOf(item["name"], ".name", problems));
    // The API server allows no two ports with the same name and protocol. Given such a slice, kube-proxy uses both.
    if (known.size === known.add(`${protocol} ${port} ${name}`).size) return undefined;
    return { name, protocol, port };
  });
  problems.leave();
  return ports;
}

function* readEndpoints(
  name: string,
  fields: Fields,
  family: IpFamily,
  port: number,
  { intern, nodeName, details }: DecodeOptions,
  problems: FieldProblems,
): Pieces<Pick<SliceRecord, keyof EndpointColumns>> {
  const items = listOf(fields["endpoints"], "endpoints", problems);
  const width = wordsOf(family);
  const words = sized<number>(items.length * width);
  const states = sized<number>(items.length);
  let locals: boolean[] | undefined;
  let count = 0;
  let hints: Hints[] | undefined;
  const namespace = name.slice(0, name.indexOf("/"));
  const pods = sized<string>(items.length + 1);
  details.begin(items.length);
  // Up to this length, searching the list is faster than a map.
  const seen = items.length > 16 ? new Map<number | string, number>() : undefined;
  yield* inPieces(items.length, (from, to) => {
    for (let i = from; i < to; i++) {
      const item = items[i];
      problems.enter("endpoints", i);
      if (!isFields(item)) {
        problems.report("", `${show(item)} is not an object`);
        continue;
      }
      // Write the address after the existing ones. It stays there unless it is already among them.
      if (!readEndpointAddress(item, family, words, count * width, problems)) continue;
      const node = textOf(item["nodeName"], ".nodeName", problems);
      const state = readConditions(item, problems);
      const zone = item["zone"] === undefined ? "" : textOf(item["zone"], ".zone", problems);
      const hint = item["hints"] === undefined ? NO_HINTS : readHints(item["hints"], intern, problems);
      const id = seen && addressId(words, count * width, width);
      let at = seen === undefined ? positionOf(words, count, width) : (seen.get(id ?? 0) ?? -1);
      if (at < 0) {
        at = count++;
        seen?.set(id ?? 0, at);
      } else if (!preferred(state, states[at] ?? 0)) {
        continue;
      }
      states[at] = state;
      pods[at + 1] = podOf(item["targetRef"], namespace);
      details.place(at, node, zone);
      const local = node === nodeName;
      if (local) locals ??= items.map(() => false);
      if (locals !== undefined) locals[at] = local;
      if (hint !== NO_HINTS) hints ??= items.map(() => NO_HINTS);
      if (hints !== undefined) hints[at] = hint;
    }
  });
  problems.leave();
  cut(words, count * width);
  cut(pods, count + 1);
  if (hints !== undefined) cut(hints, count);
  const endpoints = new EndpointList(family, count, words, port, locals);
  return { endpoints, states: sharedStates(states, count), hints, details: details.pack(pods) };
}

/** Returns "" without a pod name. It affects no service, so there is no report. */
function podOf(target: unknown, namespace: string): string {
  if (!isFields(target) || target["kind"] !== "Pod") return "";
  const { name, namespace: own } = target;
  if (typeof name !== "string") return "";
  return typeof own !== "string" || own === "" || own === namespace ? name : `${own}/${name}`;
}

/** Indexed by length: states of endpoints that are all ready and serving. */
const HEALTHY: (readonly number[])[] = [];
/** Nearly all lists are shorter. Longer lists keep their own array. */
const MAX_SHARED = 1000;

/** The first `count` states. All healthy slices share one array per length. */
function sharedStates(states: number[], count: number): readonly number[] {
  cut(states, count);
  for (let i = 0; i < count; i++) if (states[i] !== (READY | SERVING)) return states;
  return count > MAX_SHARED ? states : (HEALTHY[count] ??= states);
}

/** Position, among the first `count` addresses, of an address equal to the one after them; -1 if there is none. */
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

/** Reads an endpoint's first address; the others are ignored. Returns false if it cannot be served. */
function readEndpointAddress(
  item: Fields,
  family: IpFamily,
  into: number[],
  at: number,
  problems: FieldProblems,
): boolean {
  const list = item["addresses"];
  const first: unknown = Array.isArray(list) ? list[0] : undefined;
  if (typeof first === "string" && readAddress(first, family, into, at)) {
    const special = specialEndpoint(into, family, at);
    if (special === undefined) return true;
    problems.refuse(".addresses[0]", `${show(first)} is ${special} address, which no endpoint can have`);
    return false;
  }
  if (first === undefined) problems.report(".addresses", "has no address");
  else {
    const address = addressOf(first, ".addresses[0]", problems);
    if (address !== undefined) problems.report(".addresses[0]", `${address} does not have the slice's address type`);
  }
  return false;
}

function readConditions(item: Fields, problems: FieldProblems): number {
  const value = item["conditions"];
  if (value === undefined || value === null) return READY | SERVING;
  const conditions = fieldsOf(value, ".conditions", problems);
  // Invalid conditions make nothing ready.
  if (conditions !== value) return 0;
  const ready = booleanOf(conditions["ready"], true, ".conditions.ready", problems);
  const serving = booleanOf(conditions["serving"], true, ".conditions.serving", problems);
  const terminating = booleanOf(conditions["terminating"], false, ".conditions.terminating", problems);
  return (ready ? READY : 0) | (serving ? SERVING : 0) | (terminating ? TERMINATING : 0);
}

function readHints(value: unknown, intern: (text: string) => string, problems: FieldProblems): Hints {
  const fields = fieldsOf(value, ".hints", problems);
  const names = (key: "forNodes" | "forZones") =>
    listOf(fields[key], `.hints.${key}`, problems).flatMap((item, j) => {
      const name = isFields(item) ? item["name"] : undefined;
      if (typeof name === "string") return intern(name);
      problems.report(`.hints.${key}[${j}].name`, `${show(name)} is not a name`);
      return [];
    });
  const nodes = names("forNodes");
  const zones = names("forZones");
  return nodes.length === 0 && zones.length === 0 ? NO_HINTS : { nodes, zones };
}
