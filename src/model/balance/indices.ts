/**
 * Assigns endpoints to indices of a list. A change of the list should move as few endpoints as possible, because every move
 * takes two element operations per VIP.
 */
import { inPieces, type Pieces } from "../../base/time-slice.js";
import type { EndpointList } from "../../objects/endpoint-list.js";

/**
 * The endpoints of `desired` in the order of their indices. Endpoints that stay keep their index if it is below the new length.
 * The holes are filled first with the endpoints from beyond it, then with new ones. So replacing one endpoint changes one
 * index, adding one adds an index, and removing one moves at most the last endpoint.
 *
 * @param previous the endpoints in the order of their former indices.
 * @param desired contains each endpoint once.
 */
export function* assignIndices(previous: EndpointList, desired: EndpointList): Pieces<EndpointList> {
  return previous.length === 0 ? desired : yield* arrange(yield* indicesIn(previous, desired), desired);
}

/** Like `assignIndices`, for the ports of one service in turn. Ports with the same endpoints share one order, and its memory. */
export class IndexAssigner {
  #previous: EndpointList | undefined;
  #desired: EndpointList | undefined;
  #ordered: EndpointList | undefined;

  *assign(previous: EndpointList, desired: EndpointList): Pieces<EndpointList> {
    const { ports } = desired;
    if (typeof ports !== "number" || previous.ports !== ports) return yield* assignIndices(previous, desired);
    if (this.#ordered === undefined || !sharesAll(previous, this.#previous) || !sharesAll(desired, this.#desired)) {
      this.#previous = previous;
      this.#desired = desired;
      this.#ordered = yield* assignIndices(previous, desired);
    }
    return this.#ordered.onPort(ports);
  }
}

/** Whether the two lists share their memory, except for ports, so that nothing must be compared. */
function sharesAll(list: EndpointList, other: EndpointList | undefined): boolean {
  return list.words === other?.words && list.locals === other.locals && list.length === other.length;
}

/** Like `assignIndices`. `stood` contains, by index, the position in `desired` of the former endpoint, or -1. */
export function* arrange(stood: ArrayLike<number>, desired: EndpointList): Pieces<EndpointList> {
  let standing = 0;
  while (standing < desired.length && stood[standing] === standing) standing++;
  if (standing === desired.length) return desired;
  const isPlaced = new Uint8Array(desired.length);
  const placed = new Int32Array(desired.length).fill(-1);
  const place = (index: number, at: number): void => {
    if (placed[at] >= 0 || index < 0 || isPlaced[index] !== 0) return;
    placed[at] = index;
    isPlaced[index] = 1;
  };
  const both = Math.min(desired.length, stood.length);
  yield* inPieces(both, (from, to) => {
    for (let i = from; i < to; i++) if (stood[i] === i) place(i, i);
  });
  yield* inPieces(both, (from, to) => {
    for (let i = from; i < to; i++) place(stood[i], i);
  });
  let other = 0;
  yield* inPieces(placed.length, (from, to) => {
    for (let i = from; i < to; i++) while (placed[i] < 0) place(other++, i);
  });
  return desired.pick(placed);
}

/** The index in `desired` of each endpoint of `previous`, or -1 if it is missing. */
export function* indicesIn(previous: EndpointList, desired: EndpointList): Pieces<Int32Array> {
  const indices = new Int32Array(previous.length).fill(-1);
  // Nearly all endpoints have the same index in both, so only the others need a search.
  const others = new Map<number | string, number>();
  yield* inPieces(desired.length, (from, to) => {
    for (let i = from; i < to; i++) {
      if (i < previous.length && desired.isSame(i, previous, i)) indices[i] = i;
      else others.set(desired.id(i), i);
    }
  });
  if (others.size === 0) return indices;
  yield* inPieces(previous.length, (from, to) => {
    for (let i = from; i < to; i++) if (indices[i] < 0) indices[i] = others.get(previous.id(i)) ?? -1;
  });
  return indices;
}
