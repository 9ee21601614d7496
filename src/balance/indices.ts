/**
 * Which endpoint stands at which index of a list. A change of the list should move as few endpoints as possible: every
 * move is two element operations for each VIP.
 */
import type { EndpointList } from "../model/endpoints.js";

/**
 * The endpoints of `desired` in the order of their indices, given what stood at each index before.
 * Endpoints that stay keep their index when it is still below the new length; the holes are filled first with the
 * endpoints that stood beyond it, then with new ones. Replacing one endpoint so changes one index, growing by one adds
 * one, shrinking by one moves at most the last.
 *
 * @param desired each endpoint once.
 */
export function assignIndices(previous: EndpointList, desired: EndpointList): EndpointList {
  if (previous.length === 0) return desired;
  // Nearly all stand already where the list has them: only the others are looked for.
  const others = new Map<number | string, number>();
  for (let i = 0; i < desired.length; i++) {
    if (i >= previous.length || !desired.isSame(i, previous, i)) others.set(desired.id(i), i);
  }
  if (others.size === 0) return desired;
  const stood: number[] = [];
  for (let i = 0; i < previous.length; i++) {
    const stands = i < desired.length && desired.isSame(i, previous, i);
    stood.push(stands ? i : (others.get(previous.id(i)) ?? -1));
  }
  return arrange(stood, desired);
}

/** The same, where `stood` tells which of `desired` was at each index; -1: none of them. */
export function arrange(stood: readonly number[], desired: EndpointList): EndpointList {
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
  const indices = new Map<number | string, number>();
  for (let i = 0; i < desired.length; i++) indices.set(desired.id(i), i);
  return Int32Array.from({ length: previous.length }, (_, i) => indices.get(previous.id(i)) ?? -1);
}
