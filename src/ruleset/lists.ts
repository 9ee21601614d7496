/**
 * Which endpoint stands at which index of a list. A change of the list should move as few endpoints as possible: every
 * move is two element operations for each VIP.
 */
import type { Endpoint } from "../model/types.js";

/** Identity of an endpoint within one list. */
export function endpointId(endpoint: Endpoint): string {
  return `${endpoint.address} ${endpoint.port}`;
}

/**
 * The endpoints of `wanted` in the order of their indices, given what stood at each index before.
 * Endpoints that stay keep their index when it is still below the new length; the holes are filled first with the
 * endpoints that stood beyond it, then with new ones. Replacing one endpoint so changes one index, growing by one adds
 * one, shrinking by one moves at most the last.
 *
 * @param previous the endpoint at each index; undefined where nothing known stood.
 * @param wanted each endpoint once.
 */
export function assignIndices(
  previous: readonly (Endpoint | undefined)[],
  wanted: readonly Endpoint[],
): readonly Endpoint[] {
  if (previous.length === 0) return wanted;
  const placed: (Endpoint | undefined)[] = [];
  // Nearly all stand already where the list has them: only the others are looked for.
  const others = new Map<string, Endpoint>();
  for (let index = 0; index < wanted.length; index++) {
    const endpoint = wanted[index];
    const stands = isSame(previous[index], endpoint);
    placed.push(stands ? endpoint : undefined);
    if (!stands) others.set(endpointId(endpoint), endpoint);
  }
  if (others.size === 0) return wanted;
  for (let index = 0; index < Math.min(placed.length, previous.length); index++) {
    const before = previous[index];
    if (placed[index] !== undefined || before === undefined) continue;
    const id = endpointId(before);
    placed[index] = others.get(id);
    others.delete(id);
  }
  const rest = others.values();
  return placed.map((endpoint) => endpoint ?? (rest.next().value as Endpoint));
}

function isSame(a: Endpoint | undefined, b: Endpoint): boolean {
  return a !== undefined && a.address === b.address && a.port === b.port;
}
