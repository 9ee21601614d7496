/**
 * Slots: a list that stands in the map not as its endpoints but as hundreds of places, each with one of them. Which place a packet draws is
 * chance, or a hash of where it comes from; which endpoint stands there is the same on every node, as it depends on the endpoints alone.
 *
 * Rendezvous hashing with bounded loads: a slot belongs to the endpoint that has the highest score for it, unless that has its share and a tenth
 * already. So an endpoint that goes leaves its own slots, and hardly another moves: at most 2 % with 2 to 1,000 endpoints.
 * Maglev's table spreads them more evenly, but moves 6 % of the others' slots with ten endpoints in 251 slots, and 2.3 % in 1,021.
 */
import { type Balance, type EndpointBalance, weightsOf } from "../model/balance.js";
import { type EndpointList, wordsOf } from "../model/endpoints.js";

/** Up to so many endpoints, a list has so many slots. */
const STEPS: readonly (readonly [endpoints: number, slots: number])[] = [
  [32, 1024],
  [128, 4096],
  [Infinity, 16_384],
];

/**
 * So many scores an endpoint has in lists of so many slots: neighbours have theirs in common. Those of 1,024 and of 4,096 slots are the same, so that
 * clients stay where they are when a list takes the step, but for what the finer bounds move. More endpoints would go empty with so few.
 */
const SCORES: Readonly<Record<number, number>> = { 256: 1024, 1024: 1024, 4096: 1024, 16_384: 16_384 };

/** How much more than its share an endpoint may have. */
const BOUND = 1.1;

/** @param endpoints of lists with weights: how many of the least weight there would be. */
export function slotCount(endpoints: number, { slots }: Pick<Balance, "slots">): number {
  if (slots >= endpoints && slots > 0) return slots;
  return STEPS.find(([most]) => endpoints <= most)?.[1] ?? 0;
}

/** Of each list the index of the endpoint in each slot. */
export interface Slots {
  readonly cluster: Uint16Array;
  readonly local: Uint16Array;
}

const EMPTY = new Uint16Array();

/** Of lists as a view has them. */
export function slotsOf(balance: EndpointBalance, cluster: EndpointList, local: EndpointList): Slots {
  const assign = (list: EndpointList): Uint16Array => {
    if (list.length === 0) return EMPTY;
    const weights = weightsOf(list, balance);
    const count = slotCount(weights === undefined ? list.length : Math.ceil(sum(weights) / least(weights)), balance);
    return assignSlots(list, count, weights, balance.by === "chance");
  };
  return { cluster: assign(cluster), local: assign(local) };
}

function sum(numbers: readonly number[]): number {
  return numbers.reduce((total, number) => total + number, 0);
}

function least(weights: readonly number[]): number {
  return Math.min(...weights.filter((weight) => weight > 0));
}

/**
 * Which of the endpoints stands in each slot.
 * @param exact each has its share and no more, which moves more of them when one goes: for draws by chance.
 */
export function assignSlots(
  list: EndpointList,
  count: number,
  weights?: readonly number[],
  exact = false,
): Uint16Array {
  return new Assignment(list, count, weights, exact).run();
}

/** So many of its best endpoints a slot looks up at a time: each look goes over all of the list. */
const LOOKED_UP = 4;

class Assignment {
  readonly #hashes: Int32Array;
  readonly #weights: readonly number[] | undefined;
  /** How many slots each may have. */
  readonly #bounds: readonly number[];
  readonly #slots: Uint16Array;
  /** Of the endpoint that each slot has, and of those that have turned it away: only lower ones are asked. */
  readonly #scores: Float64Array;
  /** LOOKED_UP for each slot, highest scores first: the endpoints that it asks next, and what their scores are. */
  readonly #next: Int32Array;
  readonly #nextScores: Float64Array;
  /** Of each slot, how many of them there are, and how many have been asked. */
  readonly #found: Uint8Array;
  readonly #asked: Uint8Array;
  /** How many neighbouring scores make a slot, or how many slots have one in common. */
  readonly #scoreOf: (slot: number) => number;

  constructor(list: EndpointList, count: number, weights: readonly number[] | undefined, exact: boolean) {
    this.#hashes = Int32Array.from({ length: list.length }, (_, i) => hashOf(list, i));
    this.#weights = weights;
    const total = weights === undefined ? list.length : sum(weights);
    const shares = Array.from({ length: list.length }, (_, i) => ((weights?.[i] ?? 1) * count) / total);
    this.#bounds = exact ? wholeShares(shares, this.#hashes) : shares.map((share) => Math.ceil(BOUND * share));
    this.#slots = new Uint16Array(count);
    this.#scores = new Float64Array(count).fill(Infinity);
    this.#next = new Int32Array(count * LOOKED_UP);
    this.#nextScores = new Float64Array(count * LOOKED_UP);
    this.#found = new Uint8Array(count);
    this.#asked = new Uint8Array(count);
    const scale = (SCORES[count] ?? count) / count;
    this.#scoreOf = (slot) => Math.floor(slot * scale);
  }

  run(): Uint16Array {
    const held: number[][] = Array.from(this.#bounds, () => []);
    let asking = Array.from(this.#slots.keys());
    while (asking.length > 0) {
      for (const slot of asking) {
        const endpoint = this.#ask(slot);
        held[endpoint < 0 ? this.#withRoom(held) : endpoint].push(slot);
      }
      asking = held.flatMap((slots, endpoint) => this.#turnAway(slots, this.#bounds[endpoint]));
    }
    for (const [endpoint, slots] of held.entries()) for (const slot of slots) this.#slots[slot] = endpoint;
    return this.#slots;
  }

  /** The next best endpoint; -1: all have been asked, but for one whose score is another's too. */
  #ask(slot: number): number {
    if (this.#asked[slot] === this.#found[slot]) this.#lookUp(slot);
    const at = slot * LOOKED_UP + this.#asked[slot];
    const isAny = this.#asked[slot] < this.#found[slot];
    this.#scores[slot] = isAny ? this.#nextScores[at] : -Infinity;
    if (!isAny) return -1;
    this.#asked[slot]++;
    return this.#next[at];
  }

  /** Those with the highest scores below the slot's; of equal ones the first. */
  #lookUp(slot: number): void {
    const place = Math.imul(this.#scoreOf(slot) + 1, 0x9e3779b1);
    const below = this.#scores[slot];
    const from = slot * LOOKED_UP;
    let found = 0;
    let least = -Infinity;
    for (let i = 0; i < this.#hashes.length; i++) {
      const score = this.#score(i, place, least);
      if (score <= least || score >= below) continue;
      found = this.#insert(i, score, from, found);
      if (found === LOOKED_UP) least = this.#nextScores[from + LOOKED_UP - 1];
    }
    this.#found[slot] = found;
    this.#asked[slot] = 0;
  }

  /** Returns how many there are then. */
  #insert(endpoint: number, score: number, from: number, found: number): number {
    const scores = this.#nextScores;
    let at = from + found;
    while (at > from && scores[at - 1] < score) at--;
    if (at > from && scores[at - 1] === score) return found;
    const end = from + Math.min(found, LOOKED_UP - 1);
    for (let to = end; to > at; to--) {
      scores[to] = scores[to - 1];
      this.#next[to] = this.#next[to - 1];
    }
    scores[at] = score;
    this.#next[at] = endpoint;
    return end - from + 1;
  }

  /**
   * Of two endpoints the one with twice the weight has the higher score twice as often.
   * @param least a score that is no higher may be told as -Infinity: a logarithm takes longer than all else.
   */
  #score(endpoint: number, place: number, least: number): number {
    const score = mix(mix(this.#hashes[endpoint] ^ place) + this.#hashes[endpoint]);
    if (this.#weights === undefined) return score;
    const weight = this.#weights[endpoint];
    const share = (score + 0.5) / 2 ** 32;
    // No logarithm is above this.
    return weight === 0 || (share - 1) / weight <= least ? -Infinity : Math.log(share) / weight;
  }

  #withRoom(held: readonly (readonly number[])[]): number {
    const room = (endpoint: number): number => this.#bounds[endpoint] - held[endpoint].length;
    return held.reduce((most, _, endpoint) => (room(endpoint) > room(most) ? endpoint : most), 0);
  }

  /** Those beyond the bound, lowest scores first; slots with a score in common in an order of their own. */
  #turnAway(slots: number[], bound: number): number[] {
    if (slots.length <= bound) return [];
    slots.sort((a, b) => compare(this.#scores[b], this.#scores[a]) || mix(b) - mix(a));
    return slots.splice(bound);
  }
}

/** Shares as whole numbers of the same sum: what is left over goes to the largest rests. */
function wholeShares(shares: readonly number[], hashes: Int32Array): number[] {
  const whole = shares.map(Math.floor);
  const left = Math.round(sum(shares) - sum(whole));
  const rest = (i: number): number => shares[i] - whole[i];
  const byRest = Array.from(shares.keys()).sort((a, b) => rest(b) - rest(a) || hashes[a] - hashes[b]);
  for (const i of byRest.slice(0, left)) whole[i]++;
  return whole;
}

/** Where none was left to ask the score is -Infinity. */
function compare(a: number, b: number): number {
  return a === b ? 0 : a - b;
}

/** Of an endpoint's address and port. */
function hashOf(list: EndpointList, index: number): number {
  const count = wordsOf(list.family);
  let hash = list.port(index);
  for (let i = 0; i < count; i++) hash = Math.imul(mix(hash) ^ list.words[index * count + i], 0x9e3779b1);
  return mix(hash) | 0;
}

/** MurmurHash3's last step: each bit of the number changes half of the result's. */
function mix(number: number): number {
  let hash = number ^ (number >>> 16);
  hash = Math.imul(hash, 0x85ebca6b);
  hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2ae35);
  return (hash ^ (hash >>> 16)) >>> 0;
}
