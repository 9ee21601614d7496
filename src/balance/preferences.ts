/**
 * Which endpoints each slot prefers: rendezvous hashing, so that an endpoint's score for a slot depends on these two alone. When the list changes, the
 * best that are known of a slot are its best as before, but for those that went; and those that came are scored: one pass over the slots, where from
 * nothing each endpoint takes one. What comes out is the same.
 */
import type { Pieces } from "../base/time-slice.js";
import { inLeast } from "../model/balance.js";
import { type EndpointList, wordsOf } from "../model/endpoints.js";

/** So many of its best endpoints are kept of each slot, in 16 bits each: hardly one slot in a thousand is turned away by all of them. */
const KNOWN = 8;
/** Scores of endpoints in slots between two pauses: some hundred µs. */
const PIECE = 2 ** 15;

/**
 * Neighbouring slots have their scores in common: a list of any number of slots has 1,024 places, so that clients stay where they are when it takes the
 * step to more slots, but for what the finer bounds move. Beyond 126 endpoints that is too few, and many would go empty: with each endpoint more, one
 * place is split into sixteen.
 */
const PLACES = 1024;
const FINE_PLACES = 16_384;
const SPLIT_BEYOND = 126;
/** Odd: those that are split first are spread over all places. */
const SPLIT_ORDER = 389;

/** Where slots have their scores in common. */
class Places {
  readonly #count: number;
  readonly #split: number;
  readonly #slotsOfOne: number;

  /** @param endpoints as `inLeast` tells. */
  constructor(count: number, endpoints: number) {
    this.#count = count;
    this.#split = Math.min(PLACES, Math.max(0, Math.floor(endpoints) - SPLIT_BEYOND));
    this.#slotsOfOne = Math.max(1, count / PLACES);
  }

  /** How many different ones there are. */
  get number(): number {
    return this.#count <= PLACES ? this.#count : PLACES + this.#split * (this.#slotsOfOne - 1);
  }

  isSplit(slot: number): boolean {
    const place = Math.floor((slot * PLACES) / this.#count);
    return (Math.imul(place, SPLIT_ORDER) & (PLACES - 1)) < this.#split;
  }

  /** The first of the slots that have their scores in common with this one. */
  first(slot: number): number {
    return this.isSplit(slot) ? slot : slot - (slot % this.#slotsOfOne);
  }

  /** What scores are made of. */
  seed(slot: number): number {
    const scale = (this.isSplit(slot) ? FINE_PLACES : PLACES) / this.#count;
    return Math.imul((this.isSplit(slot) ? PLACES : 0) + Math.floor(slot * scale) + 1, 0x9e3779b1);
  }
}

/** Scores that it takes to know from nothing what the slots prefer. */
export function scoresFor(count: number, weights: readonly number[]): number {
  return weights.length * new Places(count, inLeast(weights)).number;
}

/** The endpoints that have any weight, in an order that is the same for any order of the list: by hash. */
export class RankedEndpoints {
  readonly list: EndpointList;
  /** Of each rank, as all of these: the index in the list. */
  readonly indices: Uint32Array;
  readonly hashes: Int32Array;
  readonly weights: readonly number[];
  readonly areAlike: boolean;

  constructor(list: EndpointList, weights: readonly number[]) {
    const hashes = hashesOf(list);
    this.list = list;
    this.indices = byHash(hashes).filter((i) => weights[i] > 0);
    this.hashes = new Int32Array(this.indices.length);
    for (let rank = 0; rank < this.length; rank++) this.hashes[rank] = hashes[this.indices[rank]];
    for (let rank = 1; rank < this.length; rank++) this.#moveUp(rank);
    this.weights = Array.from(this.indices, (i) => weights[i]);
    this.areAlike = this.weights.every((weight) => weight === this.weights[0]);
  }

  /** Before those with the same hash that come after it by address or port. */
  #moveUp(rank: number): void {
    const { list, indices, hashes } = this;
    for (let at = rank; at > 0 && hashes[at - 1] === hashes[at]; at--) {
      if (compare(list, indices[at - 1], list, indices[at]) < 0) return;
      [indices[at - 1], indices[at]] = [indices[at], indices[at - 1]];
    }
  }

  get length(): number {
    return this.indices.length;
  }

  /** Negative: the endpoint at `rank` ranks before the other's at `at`. */
  #compare(rank: number, other: RankedEndpoints, at: number): number {
    const byHash = (this.hashes[rank] >>> 0) - (other.hashes[at] >>> 0);
    return byHash !== 0 ? byHash : compare(this.list, this.indices[rank], other.list, other.indices[at]);
  }

  /** Of each of the former ones the rank that it has here, -1: it is not here with this weight; and the ranks of those that were not there. */
  since(former: RankedEndpoints): { readonly ranks: Int32Array; readonly fresh: number[] } {
    const ranks = new Int32Array(former.length).fill(-1);
    const fresh: number[] = [];
    let at = 0;
    for (let rank = 0; rank < this.length; rank++) {
      while (at < former.length && this.#compare(rank, former, at) > 0) at++;
      const isThere = at < former.length && this.#compare(rank, former, at) === 0;
      if (isThere && this.weights[rank] === former.weights[at]) ranks[at] = rank;
      else fresh.push(rank);
    }
    return { ranks, fresh };
  }
}

export class Preferences {
  readonly endpoints: RankedEndpoints;
  readonly #places: Places;
  readonly #count: number;
  /** KNOWN for each slot that is the first of its place: the ranks of the endpoints that it prefers, and how many are known. */
  readonly #best: Uint16Array;
  readonly #known: Uint8Array;
  /** As many as are looked up at a time, and their scores. */
  readonly #found = new Int32Array(KNOWN);
  readonly #scores = new Float64Array(KNOWN);
  /** Scores and the like since the last pause. */
  work = 0;

  constructor(list: EndpointList, count: number, weights: readonly number[]) {
    this.endpoints = new RankedEndpoints(list, weights);
    this.#places = new Places(count, inLeast(weights));
    this.#count = count;
    this.#best = new Uint16Array(count * KNOWN);
    this.#known = new Uint8Array(count);
  }

  /** Whether to pause. */
  isPieceOver(): boolean {
    if (this.work < PIECE) return false;
    this.work = 0;
    return true;
  }

  /** The first of the slots that prefer the same as this one. */
  first(slot: number): number {
    return this.#places.first(slot);
  }

  /** The rank of the endpoint that comes at `place`, from 0, in the slot's preference. @param first as `first` tells. */
  choice(first: number, place: number, beyond: Map<number, number[]>): number {
    if (place < KNOWN) {
      if (place >= this.#known[first]) {
        this.#known[first] = this.#lookUp(first, -1);
        this.#best.set(this.#found, first * KNOWN);
      }
      return this.#best[first * KNOWN + place];
    }
    let more = beyond.get(first);
    if (more === undefined) beyond.set(first, (more = []));
    if (place - KNOWN >= more.length) {
      const found = this.#lookUp(first, more.at(-1) ?? this.#best[first * KNOWN + KNOWN - 1]);
      more.push(...this.#found.subarray(0, found));
    }
    return more[place - KNOWN];
  }

  score(rank: number, slot: number): number {
    return this.#score(rank, this.#places.seed(slot), -Infinity);
  }

  /**
   * Of two endpoints the one with twice the weight has the higher score twice as often.
   * @param least a score that is no higher may be told as -Infinity: a logarithm takes longer than all else.
   */
  #score(rank: number, seed: number, least: number): number {
    const { hashes, weights, areAlike } = this.endpoints;
    const score = mix(mix(hashes[rank] ^ seed) + hashes[rank]);
    if (areAlike) return score;
    const share = (score + 0.5) / 2 ** 32;
    // No logarithm is above this.
    return (share - 1) / weights[rank] < least ? -Infinity : Math.log(share) / weights[rank];
  }

  /** The best of those that come after `last`; -1: of all. Returns how many there are. */
  #lookUp(slot: number, last: number): number {
    const seed = this.#places.seed(slot);
    const below = last < 0 ? Infinity : this.#score(last, seed, -Infinity);
    let found = 0;
    let least = -Infinity;
    for (let rank = 0; rank < this.endpoints.length; rank++) {
      const score = this.#score(rank, seed, least);
      if (score <= least || score > below || (score === below && rank <= last)) continue;
      found = this.#insert(rank, score, found);
      if (found === KNOWN) least = this.#scores[KNOWN - 1];
    }
    this.work += this.endpoints.length;
    return found;
  }

  /** Of equal scores the lower rank's goes first. Returns how many there are then. */
  #insert(rank: number, score: number, found: number): number {
    const [ranks, scores] = [this.#found, this.#scores];
    let at = found;
    while (at > 0 && (scores[at - 1] < score || (scores[at - 1] === score && ranks[at - 1] > rank))) at--;
    if (at === KNOWN) return found;
    const end = Math.min(found, KNOWN - 1);
    for (let to = end; to > at; to--) {
      scores[to] = scores[to - 1];
      ranks[to] = ranks[to - 1];
    }
    scores[at] = score;
    ranks[at] = rank;
    return end + 1;
  }

  /** Knows from now on what of another list's preferences is true of these, too. */
  *takeOver(former: Preferences): Pieces<void> {
    if (former.#count !== this.#count) return;
    const { ranks, fresh } = this.endpoints.since(former.endpoints);
    yield;
    if (fresh.length === this.endpoints.length) return;
    for (let slot = 0; slot < this.#count; slot++) {
      if (former.#known[slot] === 0 || former.#places.isSplit(slot) !== this.#places.isSplit(slot)) continue;
      this.#takeOverAt(slot, former, ranks, fresh);
      if (this.isPieceOver()) yield;
    }
  }

  /** Keeps the rank of endpoints that stay, and adds those new ones that rank before the last one kept. */
  #takeOverAt(slot: number, former: Preferences, ranks: Int32Array, fresh: readonly number[]): void {
    const from = slot * KNOWN;
    let known = 0;
    for (let i = from; i < from + former.#known[slot]; i++) {
      const rank = ranks[former.#best[i]];
      if (rank >= 0) this.#best[from + known++] = rank;
    }
    this.#known[slot] = known;
    this.work += KNOWN + fresh.length;
    if (known === 0) return;
    const seed = this.#places.seed(slot);
    const last = this.#best[from + known - 1];
    // Of a list so short that all of it was known, all that came is known now.
    const isAll = former.#known[slot] === former.endpoints.length;
    const least = isAll ? -Infinity : this.#score(last, seed, -Infinity);
    const better = fresh.filter((rank) => {
      const score = this.#score(rank, seed, least);
      return score > least || (score === least && rank < last);
    });
    if (better.length > 0) this.#known[slot] = this.#merge(from, known, better, seed);
  }

  #merge(from: number, known: number, better: readonly number[], seed: number): number {
    let found = 0;
    for (const rank of [...this.#best.subarray(from, from + known), ...better]) {
      found = this.#insert(rank, this.#score(rank, seed, -Infinity), found);
    }
    this.#best.set(this.#found, from);
    return found;
  }
}

/** Of each endpoint's address and port. */
export function hashesOf(list: EndpointList): Int32Array {
  // Int32Array.from takes ten times as long.
  const hashes = new Int32Array(list.length);
  for (let i = 0; i < hashes.length; i++) hashes[i] = hashOf(list, i);
  return hashes;
}

/** Indices in the order of the hashes. */
function byHash(hashes: Int32Array): Uint32Array {
  const keys = new Float64Array(hashes.length);
  for (let i = 0; i < keys.length; i++) keys[i] = (hashes[i] >>> 0) * 2 ** 20 + i;
  keys.sort();
  const indices = new Uint32Array(keys.length);
  for (let i = 0; i < keys.length; i++) indices[i] = keys[i] % 2 ** 20;
  return indices;
}

function hashOf(list: EndpointList, index: number): number {
  const count = wordsOf(list.family);
  let hash = list.port(index);
  for (let i = 0; i < count; i++) hash = Math.imul(mix(hash) ^ list.words[index * count + i], 0x9e3779b1);
  return mix(hash) | 0;
}

/** MurmurHash3's last step: each bit of the number changes half of the result's. */
export function mix(number: number): number {
  let hash = number ^ (number >>> 16);
  hash = Math.imul(hash, 0x85ebca6b);
  hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2ae35);
  return (hash ^ (hash >>> 16)) >>> 0;
}

function compare(a: EndpointList, i: number, b: EndpointList, j: number): number {
  const count = wordsOf(a.family);
  for (let word = 0; word < count; word++) {
    const difference = a.words[i * count + word] - b.words[j * count + word];
    if (difference !== 0) return difference;
  }
  return a.port(i) - b.port(j);
}
