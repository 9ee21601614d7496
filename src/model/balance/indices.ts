/**
 * Which endpoint stands at which index of a list. A change of the list should move as few endpoints as possible: every
 * move is two element operations for each VIP.
 */
import type { EndpointList } from "../../objects/endpoint-list.js";

/**
 * The endpoints of `desired` in the order of their indices, given what stood at each index before.
 * Endpoints that stay keep their index when it is still below the new length; the holes are filled first with the
 * endpoints that stood beyond it, then with new ones. Replacing one endpoint so changes one index, growing by one adds
 * one, shrinking by one moves at most the last.
 *
 * @param desired each endpoint once.
 */
export function assignIndices(previous: EndpointList, desired: EndpointList): EndpointList {
  return previous.length === 0 ? desired : arrange(indicesIn(previous, desired), desired);
}

/** Does the same for the ports of one service in turn: ports that have the same endpoints share one order, and the memory that it takes. */
export class IndexAssigner {
  #previous: EndpointList | undefined;
  #desired: EndpointList | undefined;
  #ordered: EndpointList | undefined;

  assign(previous: EndpointList, desired: EndpointList): EndpointList {
    const { ports } = desired;
    if (typeof ports !== "number" || previous.ports !== ports) return assignIndices(previous, desired);
    if (this.#ordered === undefined || !sharesAll(previous, this.#previous) || !sharesAll(desired, this.#desired)) {
      this.#previous = previous;
      this.#desired = desired;
      this.#ordered = assignIndices(previous, desired);
    }
    return this.#ordered.onPort(ports);
  }
}

/** Whether the two have one memory but for their ports, so that nothing has to be compared. */
function sharesAll(list: EndpointList, other: EndpointList | undefined): boolean {
  return list.words === other?.words && list.locals === other.locals && list.length === other.length;
}

/** The same as `assignIndices`, where `stood` tells which of `desired` was at each index; -1: none of them. */
export function arrange(stood: ArrayLike<number>, desired: EndpointList): EndpointList {
  let standing = 0;
  while (standing < desired.length && stood[standing] === standing) standing++;
  if (standing === desired.length) return desired;
  const rest = new Set(Array.from({ length: desired.length }, (_, i) => i));
  const placed = Array.from({ length: desired.length }, (_, i) => (stood[i] === i && rest.delete(i) ? i : -1));
  for (let i = 0; i < Math.min(placed.length, stood.length); i++) {
    if (placed[i] < 0 && rest.delete(stood[i])) placed[i] = stood[i];
  }
  const others = rest.values();
  return desired.pick(placed.map((index) => (index < 0 ? (others.next().value as number) : index)));
}

/** Of each endpoint of `previous` its index in `desired`; -1: it is not there. */
export function indicesIn(previous: EndpointList, desired: EndpointList): Int32Array {
  const indices = new Int32Array(previous.length).fill(-1);
  // Nearly all stand already where the list has them: only the others are looked for.
  const others = new Map<number | string, number>();
  for (let i = 0; i < desired.length; i++) {
    if (i < previous.length && desired.isSame(i, previous, i)) indices[i] = i;
    else others.set(desired.id(i), i);
  }
  if (others.size === 0) return indices;
  for (let i = 0; i < previous.length; i++) if (indices[i] < 0) indices[i] = others.get(previous.id(i)) ?? -1;
  return indices;
}
