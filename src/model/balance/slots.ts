/**
 * Slots: a list that stands in the map not as its endpoints but as hundreds of places, each with one of them. Which place a packet draws is
 * chance, or a hash of where it comes from. With a hash, which endpoint stands there is the same on every node: it depends on the endpoints alone
 * (rendezvous.ts). With chance the number of slots that an endpoint has is all that counts, so that each stays where it stood.
 */
import { allWeights, type EndpointBalance, slotsFor, sum } from "./endpoint-balance.js";
import type { EndpointList } from "../../objects/endpoint-list.js";
import type { ServicePortView } from "../service-port-view.js";
import type { Pieces } from "../../base/time-slice.js";
import { hashesOf } from "./hash.js";
import { rendezvous } from "./rendezvous.js";

export type ListKind = "cluster" | "local";

/** Of each list: the index of each slot's endpoint. */
export type Slots = Readonly<Record<ListKind, Uint16Array>>;

export type BalancedView = ServicePortView & { readonly balance: EndpointBalance };

/** The list of the view, in no order. */
export function endpointsOf({ clusterEndpoints, localEndpoints }: ServicePortView, kind: ListKind): EndpointList {
  return kind === "cluster" ? clusterEndpoints : localEndpoints;
}

/** Of each list, which of its endpoints stood in a slot before; -1: none of them did, or there was no such slot. */
export type Stood = (kind: ListKind) => (slot: number) => number;

/**
 * Of the view's lists, in pieces of at most a few ms.
 * @param stood makes a difference only where chance draws.
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
 * Which of the endpoints stands in each slot where chance draws one, as `rendezvous` tells where a client's hash does: each endpoint has the slots that its weight gives it, to a whole one, and keeps those that it had.
 * @param stood the endpoint that had a slot before; -1: none of these.
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

/** Shares as whole numbers of the same sum: what is left over goes to the largest rests. No endpoint with a share gets none. */
function wholeShares(shares: readonly number[], hashes: Int32Array): number[] {
  const whole = shares.map(Math.floor);
  const left = Math.round(sum(shares) - sum(whole));
  const byMost = (of: (i: number) => number): number[] =>
    Array.from(shares.keys()).sort((a, b) => of(b) - of(a) || hashes[a] - hashes[b]);
  for (const i of byMost((i) => shares[i] - whole[i]).slice(0, left)) whole[i]++;
  // Those that have most give.
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
