/**
 * Rendezvous hashing with bounded loads: a slot belongs to the endpoint that has the highest score for it, unless that has its share and some more
 * already. So an endpoint that goes leaves its own slots, and hardly another moves: less than 2 % with 2 to 2,000 endpoints (docs/balance.md).
 * Maglev's table spreads them more evenly, but moves 6 % of the others' slots with ten endpoints in 251 slots, and 2.3 % in 1,021.
 */
import type { Pieces } from "../base/time-slice.js";
import { sum } from "../model/balance.js";
import type { EndpointList } from "../model/endpoints.js";
import { mix, Preferences } from "./preferences.js";

/** How much more than its share an endpoint may have, but a slot at least: so all of them together can have all slots. */
const MORE = 0.15;
/** How much of its share an endpoint has at least, so that a list in midst of being split is as even as others. */
const LEAST = 0.5;
/** An endpoint that is short of slots looks for some in so many places. */
const DRAWS = 256;
/** A list of more slots gives those that are short four at a time, so that they are the same clients' with 4,096 and with 16,384. */
const MOST_DRAWN = 4096;

export interface Assigned {
  /** Of each slot, the index of its endpoint. */
  readonly slots: Uint16Array;
  /** For the next time: of a list that differs little they make it quick. */
  readonly preferences: Preferences;
}

/**
 * Which of the endpoints stands in each slot: each that has any weight in at least one.
 * @param weights of each: no more than `count` have any: throws RangeError.
 * @param count one of SLOT_COUNTS.
 * @param former of an earlier list: makes no difference but to the time that it takes.
 */
export function* rendezvous(
  list: EndpointList,
  count: number,
  weights: readonly number[],
  former?: Preferences,
): Pieces<Assigned> {
  const preferences = new Preferences(list, count, weights);
  const served = preferences.endpoints.length;
  if (served > count) throw new RangeError(`${served} endpoints for ${count} slots`);
  yield;
  if (former !== undefined) yield* preferences.takeOver(former);
  yield;
  const ranks = yield* new Assignment(preferences, count).run();
  return { slots: ranks.map((rank) => preferences.endpoints.indices[rank]), preferences };
}

/** Endpoints are their ranks here. */
class Assignment {
  readonly #preferences: Preferences;
  /** How many slots each may have, and should have. */
  readonly #bounds: Int32Array;
  readonly #least: Int32Array;
  /** The endpoint that has each slot. */
  readonly #holders: Uint16Array;
  /** What the endpoint's score for the slot is that has it. */
  readonly #scores: Float64Array;
  /** How many endpoints each slot has asked. */
  readonly #asked: Uint16Array;
  /** Of slots that many have turned away: see Preferences.choice. */
  readonly #beyond = new Map<number, number[]>();

  constructor(preferences: Preferences, count: number) {
    this.#preferences = preferences;
    const { hashes, weights } = preferences.endpoints;
    const total = sum(weights);
    this.#bounds = new Int32Array(hashes.length);
    this.#least = new Int32Array(hashes.length);
    for (let i = 0; i < hashes.length; i++) {
      const share = (weights[i] * count) / total;
      // Not all of them at once may have a slot more or less, when the share of all changes.
      const rest = fraction(hashes[i]);
      this.#bounds[i] = Math.floor(share + Math.max(1, MORE * share) + rest);
      this.#least[i] = Math.max(1, Math.floor(LEAST * share + rest));
    }
    this.#holders = new Uint16Array(count);
    this.#scores = new Float64Array(count);
    this.#asked = new Uint16Array(count);
  }

  *run(): Pieces<Uint16Array> {
    const held: number[][] = [];
    for (let i = 0; i < this.#bounds.length; i++) held.push([]);
    let asking: ArrayLike<number> = this.#asked.map((_, slot) => slot);
    while (asking.length > 0) {
      const full = new Set<number>();
      for (let i = 0; i < asking.length; i++) {
        const endpoint = this.#ask(asking[i]);
        if (held[endpoint].push(asking[i]) > this.#bounds[endpoint]) full.add(endpoint);
        if (this.#preferences.isPieceOver()) yield;
      }
      const turnedAway: number[] = [];
      for (const endpoint of full) {
        turnedAway.push(...this.#turnAway(held[endpoint], this.#bounds[endpoint]));
        if (this.#preferences.isPieceOver()) yield;
      }
      asking = turnedAway;
    }
    const counts = new Int32Array(held.length);
    for (let endpoint = 0; endpoint < held.length; endpoint++) {
      counts[endpoint] = held[endpoint].length;
      for (const slot of held[endpoint]) this.#holders[slot] = endpoint;
    }
    yield* this.#giveLeast(counts);
    return this.#holders;
  }

  /** The endpoint that it prefers of those that have not turned it away. There is one: all of them have room for more than all slots. */
  #ask(slot: number): number {
    const first = this.#preferences.first(slot);
    const endpoint = this.#preferences.choice(first, this.#asked[slot]++, this.#beyond);
    this.#scores[slot] = this.#preferences.score(endpoint, first);
    this.#preferences.work += 4;
    return endpoint;
  }

  /** Those beyond the bound, lowest scores first; of slots with a score in common the later ones. */
  #turnAway(slots: number[], bound: number): number[] {
    slots.sort((a, b) => this.#scores[b] - this.#scores[a] || a - b);
    this.#preferences.work += 8 * slots.length;
    return slots.splice(bound);
  }

  /**
   * Chance leaves some with little, and of thousands some with nothing: they take slots of endpoints that have twice what these should have, or of any that
   * has two where an endpoint would have none. In an order and from places that hashes tell, so that one endpoint more or less moves hardly another.
   * @param counts how many slots each has.
   */
  *#giveLeast(counts: Int32Array): Pieces<void> {
    for (let endpoint = 0; endpoint < counts.length; endpoint++) {
      if (counts[endpoint] >= this.#least[endpoint]) continue;
      const drawn = Math.min(this.#holders.length, MOST_DRAWN);
      const slotsOfOne = this.#holders.length / drawn;
      const seed = this.#preferences.endpoints.hashes[endpoint];
      for (let i = 1; i <= DRAWS && counts[endpoint] < this.#least[endpoint]; i++) {
        const from = Math.floor(fraction(seed + Math.imul(i, 0x9e3779b1)) * drawn) * slotsOfOne;
        for (let slot = from; slot < from + slotsOfOne; slot++) this.#take(slot, endpoint, counts);
      }
      if (counts[endpoint] === 0) this.#takeAny(endpoint, counts);
      if (this.#preferences.isPieceOver()) yield;
    }
  }

  #take(slot: number, endpoint: number, counts: Int32Array): void {
    const from = this.#holders[slot];
    this.#preferences.work++;
    if (counts[endpoint] >= this.#least[endpoint] || from === endpoint || counts[from] < 2 * this.#least[from]) return;
    this.#give(slot, endpoint, counts);
  }

  /** There are no more endpoints than slots: where one has none, another has two. */
  #takeAny(endpoint: number, counts: Int32Array): void {
    const count = this.#holders.length;
    let slot = Math.floor(fraction(this.#preferences.endpoints.hashes[endpoint]) * count);
    while (counts[this.#holders[slot]] < 2) {
      slot = (slot + 1) % count;
      this.#preferences.work++;
    }
    this.#give(slot, endpoint, counts);
  }

  #give(slot: number, endpoint: number, counts: Int32Array): void {
    counts[this.#holders[slot]]--;
    counts[endpoint]++;
    this.#holders[slot] = endpoint;
  }
}

/** From 0 to 1. */
function fraction(number: number): number {
  return mix(number ^ 0x5bd1e995) / 2 ** 32;
}
