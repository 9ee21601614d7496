/** EndpointSlices of one service, and the candidates that they make. */
import { isDeepStrictEqual } from "node:util";
import type { IpFamily } from "../base/ip.js";
import { NO_HINTS, READY, TERMINATING, type CandidateList, type Hints } from "./categorize.js";
import { EndpointList, NO_ENDPOINTS, wordsOf } from "./endpoints.js";
import type { SliceRecord } from "./records.js";
import type { Protocol } from "./service-port-view.js";

/** Whether two records of a slice say the same: asked of every slice that comes again, changed or not. */
export function sameSlice(a: SliceRecord, b: SliceRecord): boolean {
  return (
    a.name === b.name &&
    a.service === b.service &&
    a.family === b.family &&
    sameItems(a.ports, b.ports, (x, y) => x.name === y.name && x.protocol === y.protocol && x.port === y.port) &&
    a.endpoints.equals(b.endpoints) &&
    (a.states === b.states || sameItems(a.states, b.states, (x, y) => x === y)) &&
    isDeepStrictEqual(a.hints, b.hints) &&
    sameZones(a, b)
  );
}

/** Of slices with equally many endpoints. */
function sameZones({ details: a }: SliceRecord, { details: b, endpoints }: SliceRecord): boolean {
  if (a === undefined ? b === undefined : b !== undefined && a.equals(b)) return true;
  for (let i = 0; i < endpoints.length; i++) if ((a?.zone(i) ?? "") !== (b?.zone(i) ?? "")) return false;
  return true;
}

function sameItems<T>(a: readonly T[], b: readonly T[], same: (x: T, y: T) => boolean): boolean {
  return a.length === b.length && a.every((x, i) => same(x, b[i]));
}

/**
 * Of two endpoints with one address and port, the one that is not terminating (a pod network may give a dying pod's
 * address to a new one); then the ready one; then the one that came first.
 */
export function preferred(state: number, than: number): boolean {
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
  const places = placesOf(slices, family, portName, protocol);
  if (places.length === 0) return NO_CANDIDATES;
  if (places.length > 1) return mergePlaces(places, family);
  const [{ slice, port }] = places;
  const { endpoints, states, hints, details } = slice;
  return { endpoints: endpoints.onPort(port), states, hints, zones: details };
}

/** A port of a slice. */
interface SlicePlace {
  readonly slice: SliceRecord;
  readonly port: number;
}

/** Ports of one service's slices from which on an index is faster than a search for each port. */
const INDEXED_PORTS = 64;

/** By list of slices, which is not changed: by family and protocol, then by name of the port. */
const indices = new WeakMap<readonly SliceRecord[], Map<string, Map<string, SlicePlace[]>>>();

const NO_PLACES: readonly SlicePlace[] = Object.freeze([]);

/** Where the slices have a port of this name and protocol, in order. */
export function placesOf(
  slices: readonly SliceRecord[],
  family: IpFamily,
  portName: string,
  protocol: Protocol,
): readonly SlicePlace[] {
  let ports = 0;
  for (let i = 0; i < slices.length; i++) ports += slices[i].ports.length;
  if (ports > INDEXED_PORTS && ports > slices.length) {
    return indexOf(slices).get(`${family} ${protocol}`)?.get(portName) ?? NO_PLACES;
  }
  const places: SlicePlace[] = [];
  for (let i = 0; i < slices.length; i++) {
    const slice = slices[i];
    if (slice.family !== family) continue;
    for (let j = 0; j < slice.ports.length; j++) {
      const { name, protocol: spoken, port } = slice.ports[j];
      if (name === portName && spoken === protocol) places.push({ slice, port });
    }
  }
  return places;
}

function indexOf(slices: readonly SliceRecord[]): Map<string, Map<string, SlicePlace[]>> {
  let index = indices.get(slices);
  if (index !== undefined) return index;
  indices.set(slices, (index = new Map()));
  for (const slice of slices) {
    for (const { name, protocol, port } of slice.ports) {
      const key = `${slice.family} ${protocol}`;
      let byName = index.get(key);
      if (byName === undefined) index.set(key, (byName = new Map()));
      const places = byName.get(name);
      if (places === undefined) byName.set(name, [{ slice, port }]);
      else places.push({ slice, port });
    }
  }
  return index;
}

/** How many of its endpoints are ready. */
export function readyEndpoints({ states }: Pick<SliceRecord, "states">): number {
  let ready = 0;
  for (const state of states) if ((state & READY) !== 0) ready++;
  return ready;
}

const NO_CANDIDATES: CandidateList = { endpoints: NO_ENDPOINTS, states: [], hints: undefined, zones: undefined };

function mergePlaces(places: readonly SlicePlace[], family: IpFamily): CandidateList {
  const merged = new MergedCandidates(family);
  for (const { slice, port } of places) merged.add(slice, port);
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
  readonly #zones: string[] = [];
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
      this.#zones[at] = slice.details?.zone(i) ?? "";
    }
  }

  list(): CandidateList {
    const locals = this.#locals.includes(true) ? this.#locals : undefined;
    const endpoints = new EndpointList(this.#family, this.#ports.length, this.#words, this.#ports, locals);
    const zones = { zone: (index: number) => this.#zones[index] };
    return { endpoints, states: this.#states, hints: this.#hints, zones };
  }
}

/** `slices`, in order of their names, with `record` in the place of its former version. */
export function withSlice(slices: readonly SliceRecord[], record: SliceRecord): readonly SliceRecord[] {
  if (slices.length === 0 || (slices.length === 1 && slices[0]?.name === record.name)) return [record];
  const rest = slices.filter((slice) => slice.name !== record.name);
  const at = rest.findIndex((slice) => slice.name > record.name);
  return at < 0 ? [...rest, record] : rest.toSpliced(at, 0, record);
}
