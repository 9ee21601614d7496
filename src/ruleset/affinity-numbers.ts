/**
 * ClientIP affinity. Packets fill one set per service with the client's address and the number of the endpoint that it
 * was sent to. A number stands for one endpoint of one service port, from the moment that it joins until it goes, and never for
 * another. So the elements of `sticky-cluster` and `sticky-local` decide which clients are remembered. When an endpoint goes,
 * its number goes too, and all its clients are forgotten in the same transaction. If it comes back, it gets a new number. The
 * service port's chains (affinity-chains.ts) carry the number as the packet's priority from one lookup to the next.
 *
 * A map from client to number instead of the set would need no rule per endpoint (`meta priority set ip saddr map
 * @clients`, `update @clients { ip saddr : meta priority }`). It works, but it is not used. Every nft lists it, but `nft -j`
 * before 1.0.7 has no JSON for the second statement. It warns about each of them, and 0.9.8 prints the warning amid the JSON. A single
 * such map for all service ports is impossible. Lookups would have to provide both its key (which service port) and its data
 * (which endpoint). But a rule has only one priority to carry them.
 *
 * The last lookup is by the number, which therefore still is the packet's priority after DNAT; postrouting resets it.
 */
import { randomInt } from "node:crypto";
import { inPieces, type Pieces } from "../base/time-slice.js";
import { arrange, assignIndices } from "../model/balance/indices.js";
import { endpointsOf, type ListKind } from "../model/slots.js";
import type { EndpointList } from "../objects/endpoint-list.js";
import type { ServicePortView } from "../model/service-port-view.js";
import type { ElementSet } from "../nft/engine-exports.js";
import { type KeyPacker, packNumber, packNumbers, unpackNumber } from "./key-packer.js";
import { ENDPOINT_NUMBERS, type ListValue, packList, AFFINITY_NUMBERS, affinityList } from "./list-values.js";
import { portHash } from "./names.js";
import type { Expansion } from "./expansion.js";
import type { ServicePortState, AffinityState } from "./service-port-state.js";
import type { ElementSets } from "./element-sets.js";

/** Endpoints read from the kernel's table between two pauses. */
const PAUSE_AFTER = 512;

export const LIST_KINDS: readonly ListKind[] = ["cluster", "local"];

/** Per list: the map of its endpoints by number, and the chain that uses it. */
export const NUMBERED = { cluster: "stickyCluster", local: "stickyLocal" } as const;

/** Whether the service port has an address besides its ClusterIP. */
export function isExternal({ externalIPs, loadBalancerIPs, nodePort }: ServicePortView): boolean {
  return externalIPs.length + loadBalancerIPs.length > 0 || nodePort !== 0;
}

/** The lists that have endpoints, and from which packets to some address of the service port draw. */
export function listsInUse(state: ServicePortState): readonly ListKind[] {
  const { clusterIP, internalPolicyLocal, externalPolicyLocal } = state.view;
  return LIST_KINDS.filter((kind) => {
    const isInternal = clusterIP !== undefined && internalPolicyLocal === (kind === "local");
    return (
      state[kind].length > 0 && (isInternal || (isExternal(state.view) && (kind === "cluster" || externalPolicyLocal)))
    );
  });
}

/** Number of the endpoint at this index of one of the service port's lists. */
export function numberOf({ endpoints }: AffinityState, list: EndpointList, index: number): number {
  const number = endpoints.get(list.id(index));
  if (number === undefined) throw new Error(`no number for ${list.address(index)}`);
  return number;
}

/** List value used to draw a number for the first packet of a client: one of a list's first `count`. */
export function numbersOf(count: number): ListValue {
  return { kind: "affinity", count, shard: 0, nodePort: false };
}

/**
 * Passes this service port's elements in the maps shared by all service ports to `to`, for the endpoints of each list from one
 * index up to another.
 */
export function expandAffinity(
  state: ServicePortState,
  sets: ElementSets,
  keys: KeyPacker,
  from: number,
  end: number,
  to: Expansion,
): void {
  const { affinity } = state;
  if (affinity === undefined) return;
  for (const kind of listsInUse(state)) {
    const endpoints = state[kind];
    const list = affinityList(kind, affinity.list);
    if (from === 0) {
      to.list(packList(numbersOf(endpoints.length)));
      to.list(packList(numbersOf(1)));
    }
    const set = sets[NUMBERED[kind]];
    const { buffer } = keys.endpoints(endpoints);
    for (let index = from; index < Math.min(end, endpoints.length); index++) {
      const number = numberOf(affinity, endpoints, index);
      to.element(sets.stickyDraws, packNumbers(list, index), packNumber(number));
      to.element(set, packNumber(number), new Uint8Array(buffer, index * set.dataLen, set.dataLen));
    }
  }
}

/**
 * Assigns the numbers. An endpoint keeps its number from the last state, or otherwise from the kernel's table. Others get new
 * numbers.
 */
export class AffinityNumbers {
  #last: number;
  /** `AffinityState.list` of the service ports whose states are being made. */
  readonly #reserved = new Set<number>();

  /** @param first random by default: otherwise a new run could reuse a number that clients remember for another endpoint. */
  constructor(
    private readonly sets: ElementSets,
    private readonly keys: KeyPacker,
    first = randomInt(ENDPOINT_NUMBERS.count),
  ) {
    this.#last = first;
  }

  /**
   * The state of a service port with affinity. @param taken `AffinityState.list` of the same service's other ports; this port's value
   * is added.
   */
  *order(view: ServicePortView, before: ServicePortState | undefined, taken: Set<number>): Pieces<ServicePortState> {
    const list = before?.affinity?.list ?? this.#list(view, taken);
    taken.add(list);
    this.#reserved.add(list);
    try {
      return yield* this.#ordered(view, before, list);
    } finally {
      this.#reserved.delete(list);
    }
  }

  *#ordered(view: ServicePortView, before: ServicePortState | undefined, list: number): Pieces<ServicePortState> {
    const inKernel = new Map<number | string, number>();
    const order = (kind: ListKind): Pieces<EndpointList> =>
      before?.affinity === undefined
        ? this.#inKernel(list, kind, endpointsOf(view, kind), inKernel)
        : assignIndices(before[kind], endpointsOf(view, kind));
    const [cluster, local] = [yield* order("cluster"), yield* order("local")];
    const known = before?.affinity?.endpoints ?? inKernel;
    const endpoints = new Map<number | string, number>();
    for (const ordered of [cluster, local]) {
      yield* inPieces(ordered.length, (from, to) => {
        for (let i = from; i < to; i++) {
          const id = ordered.id(i);
          if (!endpoints.has(id)) endpoints.set(id, known.get(id) ?? this.#fresh());
        }
      });
    }
    return { view, cluster, local, affinity: { list, endpoints } };
  }

  /** The same after a restart, unless two hashes are equal. */
  #list(view: ServicePortView, taken: ReadonlySet<number>): number {
    const { stickyDraws } = this.sets;
    const free = (list: number): boolean =>
      !taken.has(list) &&
      !this.#reserved.has(list) &&
      LIST_KINDS.every((kind) => !stickyDraws.has(packNumbers(affinityList(kind, list), 0)));
    let list = portHash(view) % AFFINITY_NUMBERS;
    while (!free(list)) list = (list + 1) % AFFINITY_NUMBERS;
    return list;
  }

  /** The endpoints in the order of the kernel's table, which an earlier run may have written. Adds their numbers to `known`. */
  *#inKernel(
    list: number,
    kind: ListKind,
    desired: EndpointList,
    known: Map<number | string, number>,
  ): Pieces<EndpointList> {
    const indexOf = this.keys.finder(desired);
    const stood: number[] = [];
    for (;;) {
      const drawn = this.sets.stickyDraws.kernelValue(packNumbers(affinityList(kind, list), stood.length));
      if (drawn === undefined) return yield* arrange(stood, desired);
      if (stood.length % PAUSE_AFTER === 0) yield;
      const number = unpackNumber(drawn);
      const index = indexOf(this.sets[NUMBERED[kind]].kernelValue(packNumber(number)));
      stood.push(index);
      if (index >= 0) known.set(desired.id(index), number);
    }
  }

  #fresh(): number {
    for (;;) {
      this.#last = (this.#last + 1) % ENDPOINT_NUMBERS.count;
      const number = ENDPOINT_NUMBERS.value + this.#last;
      const isUsed = (set: ElementSet): boolean =>
        set.has(packNumber(number)) || set.kernelValue(packNumber(number)) !== undefined;
      if (!LIST_KINDS.some((kind) => isUsed(this.sets[NUMBERED[kind]]))) return number;
    }
  }
}
