/**
 * Assigns slots to endpoints by bounded rendezvous hashing. Each endpoint claims slots in an order and at times that only
 * depend on its own address, port and weight. A slot belongs to the first endpoint that claims it and still has room:
 *
 *     time     0         1         2         3
 *     A        ·  7      ·  2      ·  7      ·  4       7, 2, 4: the second claim of 7 is void
 *     B           · 5       · 7       · 1       · 2     5, 1: A was first to claim 7 and 2
 *
 * If an endpoint goes, later claims get its slots, and few other slots move: only slots of endpoints that are now full without
 * them.
 */
import { counted } from "../../base/counted.js";
import type { Pieces } from "../../base/time-slice.js";
import { inLeast, sum } from "./endpoint-balance.js";
import { type EndpointList, wordsOf } from "../../objects/endpoint-list.js";
import { draw, hashesOf } from "./hash.js";

/** How much an endpoint may exceed its share, but at least one slot. So all endpoints together have room for all slots. */
const MORE = 0.15;
/** Minimum part of its share that each endpoint gets. */
const LEAST = 0.5;

/**
 * Endpoints claim places. A list has 1,024 places, whatever its number of slots, so that clients keep their endpoints when a
 * list gets more slots. This is too coarse beyond 126 endpoints. For each further endpoint one place is split, so that its
 * slots are claimed one by one.
 */
const PLACES = 1024;
const FINE_PLACES = 16_384;
const SPLIT_BEYOND = 126;
/** Odd, so that the first places to be split are spread evenly. */
const SPLIT_ORDER = 389;

/** The race ends when only this part of the slots is free, because few claims hit one of them. */
const LEFT = 1 / 1024;
/** A race takes 8 to 40 rounds. Each round has as many claims as there are slots or places. */
const MOST_ROUNDS = 256;
/** Claims or scores between two pauses: takes some tenths of a ms. */
const PIECE = 4096;

/**
 * The index of each slot's endpoint. Each endpoint with a weight gets at least one slot.
 * @param weights of the endpoints. Throws RangeError if more than `count` of them are not 0.
 * @param count one of SLOT_COUNTS.
 */
export function* rendezvous(list: EndpointList, count: number, weights: readonly number[]): Pieces<Uint16Array> {
  const indices = inOrder(list).filter((i) => weights[i] > 0);
  if (indices.length > count)
    throw new RangeError(`${counted(indices.length, "endpoint")} do not fit ${counted(count, "slot")}`);
  const hashes = hashesOf(list);
  const assignment = new Assignment(
    indices.map((i) => hashes[i]),
    indices.map((i) => weights[i]),
    count,
  );
  yield;
  yield* assignment.race();
  yield* assignment.giveRest();
  return assignment.holders.map((endpoint) => indices[endpoint]);
}

/** Indices sorted by address and port, so that the order of the list does not matter. */
function inOrder(list: EndpointList): number[] {
  const count = wordsOf(list.family);
  return Array.from({ length: list.length }, (_, i) => i).sort((a, b) => {
    for (let word = 0; word < count; word++) {
      const difference = list.words[a * count + word] - list.words[b * count + word];
      if (difference !== 0) return difference;
    }
    return list.port(a) - list.port(b);
  });
}

const FREE = 0xffff;

class Assignment {
  /** The endpoint of each slot, or FREE. */
  readonly holders: Uint16Array;
  readonly #total: number;
  readonly #slotsOfPlace: number;
  readonly #split: number;
  /** Number of slots that each endpoint may still get, and must still get. */
  readonly #room: Int32Array;
  readonly #need: Int32Array;
  #free: number;
  /** Slots that endpoints must still get in total. Never more than the free ones. */
  #needed = 0;

  constructor(
    private readonly hashes: readonly number[],
    private readonly weights: readonly number[],
    private readonly count: number,
  ) {
    this.holders = new Uint16Array(count).fill(FREE);
    this.#total = sum(weights);
    this.#slotsOfPlace = Math.max(1, count / PLACES);
    this.#split = Math.min(PLACES, Math.max(0, Math.floor(inLeast(weights)) - SPLIT_BEYOND));
    this.#room = new Int32Array(hashes.length);
    this.#need = new Int32Array(hashes.length);
    this.#free = count;
    for (let i = 0; i < hashes.length; i++) {
      const share = (weights[i] * count) / this.#total;
      // Spread by hash, so that when all shares change, not all endpoints gain or lose a slot at once.
      const rest = phase(hashes[i]);
      this.#room[i] = Math.floor(share + Math.max(1, MORE * share) + rest);
      this.#need[i] = Math.max(1, Math.floor(LEAST * share + rest));
      this.#needed += this.#need[i];
    }
  }

  /**
   * Gives slots to the endpoints that claim them first, until few are free. An endpoint with weight 2 claims twice as often as
   * one with weight 1.
   */
  *race(): Pieces<void> {
    const made = new Int32Array(this.hashes.length);
    const roundTime = Math.min(PIECE, this.count) / this.#total;
    for (let round = 0; round < MOST_ROUNDS && !this.#isOver(); round++) {
      for (const endpoint of this.#claimsIn(round, roundTime, made)) {
        if (this.#isOver()) return;
        this.#claim(endpoint, made[endpoint]++);
      }
      yield;
    }
  }

  #isOver(): boolean {
    return this.#free <= Math.max(this.#needed, this.count * LEFT);
  }

  /** The endpoints in the order of their claims in this round. @param made number of earlier claims by each endpoint. */
  #claimsIn(round: number, roundTime: number, made: Int32Array): number[] {
    const times: number[] = [];
    for (let i = 0; i < made.length; i++) {
      if (this.#room[i] === 0) continue;
      const first = phase(this.hashes[i]);
      for (let claim = made[i]; ; claim++) {
        const time = (first + claim) / this.weights[i] / roundTime - round;
        if (time >= 1) break;
        // Numbers with the endpoint in the last 16 bits sort many times as fast as pairs.
        times.push(Math.floor(time * 2 ** 36) * 2 ** 16 + i);
      }
    }
    return Array.from(Float64Array.from(times).sort(), (time) => time % 2 ** 16);
  }

  #claim(endpoint: number, number: number): void {
    const slot = Math.floor(((draw(this.hashes[endpoint], number) >>> 18) * this.count) / FINE_PLACES);
    const from = this.#first(slot);
    const to = from + (this.#isSplit(slot) ? 1 : this.#slotsOfPlace);
    for (let one = from; one < to; one++) if (this.holders[one] === FREE) this.#give(one, endpoint);
  }

  #isSplit(slot: number): boolean {
    const place = Math.floor((slot * PLACES) / this.count);
    return (Math.imul(place, SPLIT_ORDER) & (PLACES - 1)) < this.#split;
  }

  /** The first of the slots that are claimed together with this one. */
  #first(slot: number): number {
    return this.#isSplit(slot) ? slot : slot - (slot % this.#slotsOfPlace);
  }

  /** Leaves the slot free if the endpoint has no room, or if others need it more. */
  #give(slot: number, endpoint: number): void {
    if (!this.#mayHave(endpoint)) return;
    this.holders[slot] = endpoint;
    this.#free--;
    this.#room[endpoint]--;
    if (this.#need[endpoint] === 0) return;
    this.#need[endpoint]--;
    this.#needed--;
  }

  #mayHave(endpoint: number): boolean {
    return (this.#free > this.#needed ? this.#room : this.#need)[endpoint] > 0;
  }

  /**
   * Gives each free slot to the endpoint with the highest score among those that may have it. There is always one, because the
   * total room exceeds the number of slots.
   */
  *giveRest(): Pieces<void> {
    for (let slot = 0, work = 0; slot < this.count; slot++) {
      if (this.holders[slot] !== FREE) continue;
      this.#give(slot, this.#best(slot));
      work += this.hashes.length;
      if (work < PIECE) continue;
      yield;
      work = 0;
    }
  }

  #best(slot: number): number {
    const place = (this.#first(slot) * FINE_PLACES) / this.count;
    let best = -1;
    let highest = -1;
    for (let i = 0; i < this.hashes.length; i++) {
      if (!this.#mayHave(i)) continue;
      // Claims have no negative numbers, so this number is unused.
      const score = draw(this.hashes[i], -1 - place);
      if (score > highest) [best, highest] = [i, score];
    }
    return best;
  }
}

/** Time of an endpoint's first claim, from 0 to 1. */
function phase(hash: number): number {
  return draw(hash, 0x5bd1e995) / 2 ** 32;
}
