/** EndpointSlices of one service, and the candidate endpoints in them. */
import type { IpFamily } from "../base/ip.js";
import { type Hints, NO_HINTS, preferred, READY } from "../objects/endpoint-state.js";
import { EndpointList, NO_ENDPOINTS, wordsOf } from "../objects/endpoint-list.js";
import { NOT_SAID, type PodAndNode } from "../objects/endpoint-details.js";
import type { EndpointColumns, SliceRecord } from "../objects/records.js";
import type { Protocol } from "../base/protocols.js";
import { type Pieces, runAtOnce } from "../base/time-slice.js";

/**
 * The endpoints of one service port, merged from the slices of its service in one family. A slice's port matches by name and
 * protocol. If two slices contain the same address and port, that is one endpoint. Slices are in the order of their names.
 */
export function candidatesOf(
  slices: readonly SliceRecord[],
  family: IpFamily,
  portName: string,
  protocol: Protocol,
): EndpointColumns {
  return runAtOnce(candidatesInPieces(slices, family, portName, protocol));
}

/** The same with a pause after each slice, because a Service may have thousands of them. */
export function* candidatesInPieces(
  slices: readonly SliceRecord[],
  family: IpFamily,
  portName: string,
  protocol: Protocol,
): Pieces<EndpointColumns> {
  const places = placesOf(slices, family, portName, protocol);
  if (places.length === 0) return NO_CANDIDATES;
  if (places.length > 1) return yield* mergePlaces(places, family);
  const [{ slice, port }] = places;
  const { endpoints, states, hints, details } = slice;
  return { endpoints: endpoints.onPort(port), states, hints, details };
}

/** A port of a slice. */
interface SlicePlace {
  readonly slice: SliceRecord;
  readonly port: number;
}

/** Number of ports in one service's slices from which on an index is faster than searches. */
const INDEXED_PORTS = 64;

/** Keyed by the list of slices, which is immutable: by family and protocol, then by port name. */
const indices = new WeakMap<readonly SliceRecord[], Map<string, Map<string, SlicePlace[]>>>();

const NO_PLACES: readonly SlicePlace[] = Object.freeze([]);

/** Places of the ports with this name and protocol in the slices, in order. */
function placesOf(
  slices: readonly SliceRecord[],
  family: IpFamily,
  portName: string,
  protocol: Protocol,
): readonly SlicePlace[] {
  let ports = 0;
  for (let i = 0; i < slices.length && ports <= INDEXED_PORTS; i++) ports += slices[i].ports.length;
  if (ports > INDEXED_PORTS) {
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

/** Number of ready endpoints of the slice. */
export function readyEndpoints({ states }: Pick<SliceRecord, "states">): number {
  let ready = 0;
  for (const state of states) if ((state & READY) !== 0) ready++;
  return ready;
}

const NO_CANDIDATES: EndpointColumns = { endpoints: NO_ENDPOINTS, states: [], hints: undefined, details: undefined };

function* mergePlaces(places: readonly SlicePlace[], family: IpFamily): Pieces<EndpointColumns> {
  const merged = new MergedCandidates(family);
  for (const { slice, port } of places) {
    merged.add(slice, port);
    yield;
  }
  return merged.list();
}

/** Endpoints of several slices and ports, each address and port once. */
class MergedCandidates {
  readonly #words: number[] = [];
  readonly #ports: number[] = [];
  readonly #locals: boolean[] = [];
  readonly #states: number[] = [];
  #hints: Hints[] | undefined;
  /** The slice of each endpoint, and its index there. */
  readonly #slices: SliceRecord[] = [];
  readonly #indices: number[] = [];
  /** Keyed by EndpointList.id. */
  readonly #positions = new Map<number | string, number>();

  constructor(private readonly family: IpFamily) {}

  add(slice: SliceRecord, port: number): void {
    if (slice.hints !== undefined) this.#hints ??= this.#states.map(() => NO_HINTS);
    const endpoints = slice.endpoints.onPort(port);
    const width = wordsOf(this.family);
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
      this.#slices[at] = slice;
      this.#indices[at] = i;
    }
  }

  list(): EndpointColumns {
    const locals = this.#locals.includes(true) ? this.#locals : undefined;
    const endpoints = new EndpointList(this.family, this.#ports.length, this.#words, this.#ports, locals);
    const details = { zone: (index: number) => this.#zone(index), all: () => this.#allDetails() };
    return { endpoints, states: this.#states, hints: this.#hints, details };
  }

  #zone(index: number): string {
    return this.#slices[index].details?.zone(this.#indices[index]) ?? "";
  }

  #allDetails(): PodAndNode[] {
    const bySlice = new Map<SliceRecord, readonly PodAndNode[]>();
    return this.#slices.map((slice, at) => {
      let ofSlice = bySlice.get(slice);
      if (ofSlice === undefined) bySlice.set(slice, (ofSlice = slice.details?.all(slice.endpoints.length) ?? []));
      return ofSlice[this.#indices[at]] ?? NOT_SAID;
    });
  }
}

/**
 * The slices after these changes, in the order of their names. A Service may have thousands of slices that change at once, so
 * their changes are collected.
 * @param changes by name. Undefined: the slice is gone.
 */
export function withChanges(
  slices: readonly SliceRecord[],
  changes: ReadonlyMap<string, SliceRecord | undefined>,
): readonly SliceRecord[] {
  const after = slices.filter(({ name }) => !changes.has(name));
  for (const record of changes.values()) if (record !== undefined) after.push(record);
  return after.sort((a, b) => (a.name < b.name ? -1 : 1));
}

/** Says of each endpoint that is a ClusterIP why it gets no packets. @param owners the service of each ClusterIP. */
export function* clusterIPsAmong(endpoints: EndpointList, owners: ReadonlyMap<string, string>): Iterable<string> {
  for (const { address } of endpoints) {
    const owner = owners.get(address);
    if (owner === undefined) continue;
    yield `endpoint ${address} is the ClusterIP of ${owner}, so it cannot be reached`;
  }
}
