/**
 * Slots: for such a list, the map does not contain the endpoints themselves, but hundreds of places with one endpoint each. A
 * packet draws a place at random, or by a hash of its source. With a hash, each place has the same endpoint on every node,
 * because it only depends on the endpoints (rendezvous.ts). With random choice, only an endpoint's number of slots matters, so
 * endpoints keep their slots.
 */
import { allWeights, type EndpointBalance, slotsFor, sum } from "./balance/endpoint-balance.js";
import type { EndpointList } from "../objects/endpoint-list.js";
import type { ServicePortView } from "./service-port-view.js";
import type { Pieces } from "../base/time-slice.js";
import { hashesOf } from "./balance/hash.js";
import { rendezvous } from "./balance/rendezvous.js";

export type ListKind = "cluster" | "local";

/** Per list: the index of each slot's endpoint. */
export type Slots = Readonly<Record<ListKind, Uint16Array>>;

export type BalancedView = ServicePortView & { readonly balance: EndpointBalance };

/** The view's list, in no particular order. */
export function endpointsOf({ clusterEndpoints, localEndpoints }: ServicePortView, kind: ListKind): EndpointList {
  return kind === "cluster" ? clusterEndpoints : localEndpoints;
}

/**
 * Per list: returns the index of the endpoint that had a slot before. Returns -1 if there was no such slot, or its
 * endpoint is not in the list.
 */
export type Stood = (kind: ListKind) => (slot: number) => number;

/**
 * Slots of the view's lists, in pieces of at most a few ms.
 * @param stood only matters if the choice is random.
 */
export function* slotsOf(view: BalancedView, stood: Stood): Pieces<Slots> {
  const cluster = yield* assign(view, "cluster", stood);
  const local = yield* assign(view, "local", stood);
  return { cluster, local };
}

function* assign(view: BalancedView, kind: ListKind, stood: Stood): Pieces<Uint16Array> {
  const { balance } = view;
  const list = endpointsOf(view, kind);
  if (list.length === 0) return new Uint16Array();
  const weights = allWeights(list, balance);
  const count = slotsFor(weights, balance);
  return balance.by === "chance"
    ? shareSlots(list, count, weights, stood(kind))
    : yield* rendezvous(list, count, weights);
}

/**
 * Assigns the slots for random choice, as `rendezvous` does for hashes. Each endpoint gets its share by weight, rounded up or
 * down, and keeps its former slots.
 * @param stood returns the endpoint that had a slot before, or -1 if it is not in the list.
 */
export function shareSlots(
  list: EndpointList,
  count: number,
  weights: readonly number[],
  stood: (slot: number) => number,
): Uint16Array {
  const total = sum(weights);
  const shares = weights.map((weight) => (weight * count) / total);
  const room = wholeShares(shares, hashesOf(list));
  const slots = new Uint16Array(count);
  const free: number[] = [];
  for (let slot = 0; slot < count; slot++) {
    const endpoint = stood(slot);
    if (endpoint >= 0 && room[endpoint] > 0) {
      room[endpoint]--;
      slots[slot] = endpoint;
    } else free.push(slot);
  }
  let next = 0;
  for (const slot of free) {
    while (room[next] === 0) next++;
    room[next]--;
    slots[slot] = next;
  }
  return slots;
}

/**
 * Rounds shares to whole numbers with the same sum: the largest remainders are rounded up. An endpoint with a share gets at
 * least 1.
 */
function wholeShares(shares: readonly number[], hashes: Int32Array): number[] {
  const whole = shares.map(Math.floor);
  const left = Math.round(sum(shares) - sum(whole));
  const byMost = (of: (i: number) => number): number[] =>
    Array.from(shares.keys()).sort((a, b) => of(b) - of(a) || hashes[a] - hashes[b]);
  for (const i of byMost((i) => shares[i] - whole[i]).slice(0, left)) whole[i]++;
  // Take from the endpoints with most slots.
  const byCount = byMost((i) => whole[i]);
  let at = 0;
  for (let i = 0; i < shares.length; i++) {
    if (shares[i] === 0 || whole[i] > 0) continue;
    while (whole[byCount[at]] < 2) at = (at + 1) % byCount.length;
    whole[byCount[at]]--;
    whole[i] = 1;
    at = (at + 1) % byCount.length;
  }
  return whole;
}
