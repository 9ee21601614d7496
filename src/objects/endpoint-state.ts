/** Bits of an endpoint's state, from its conditions. */
export const READY = 1;
export const SERVING = 2;
export const TERMINATING = 4;

/** hints.forNodes and hints.forZones of an endpoint. */
export interface Hints {
  readonly nodes: readonly string[];
  readonly zones: readonly string[];
}

export const NO_HINTS: Hints = Object.freeze({ nodes: Object.freeze([]), zones: Object.freeze([]) });

/**
 * Whether an endpoint in one state is preferred to one with the same address and port in the other. A terminating endpoint comes last, because a
 * pod network may give a dying pod's address to a new pod; then a ready one is preferred. Returns false if the states are equal.
 */
export function preferred(state: number, than: number): boolean {
  return rank(state) > rank(than);
}

function rank(state: number): number {
  return (state & TERMINATING ? 0 : 2) + (state & READY ? 1 : 0);
}
