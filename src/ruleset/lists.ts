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
 */
export function assignIndices(
  previous: readonly (Endpoint | undefined)[],
  wanted: readonly Endpoint[],
): readonly Endpoint[] {
  if (previous.length === 0 || inPlace(previous, wanted)) return wanted;
  const unplaced = new Map<string, Endpoint>();
  for (const endpoint of wanted) unplaced.set(endpointId(endpoint), endpoint);
  const count = unplaced.size;
  const placed = new Array<Endpoint | undefined>(count).fill(undefined);
  for (let index = 0; index < Math.min(count, previous.length); index++) {
    const before = previous[index];
    if (before === undefined) continue;
    const id = endpointId(before);
    const endpoint = unplaced.get(id);
    if (endpoint === undefined) continue;
    placed[index] = endpoint;
    unplaced.delete(id);
  }
  const rest = unplaced.values();
  return placed.map((endpoint) => endpoint ?? (rest.next().value as Endpoint));
}

/** Whether every endpoint stands where it is wanted. */
function inPlace(previous: readonly (Endpoint | undefined)[], wanted: readonly Endpoint[]): boolean {
  if (previous.length !== wanted.length) return false;
  for (let i = 0; i < wanted.length; i++) {
    const before = previous[i];
    if (before === undefined || before.address !== wanted[i].address || before.port !== wanted[i].port) return false;
  }
  return true;
}
