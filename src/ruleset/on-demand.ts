/**
 * Rules that only some clusters need, for source ranges say, are not there until a map that they look in has elements: every first packet
 * of a connection would pay for them, and every later one for those that ask whether it is the first.
 *
 * They come in the transaction of the first element. A packet that is under way then runs the former rules, and what it looks up is of the new
 * generation: so this is for maps alone whose elements decide on packets that would otherwise fare as before they were there, and not for
 * what leads on what another map has found.
 */
import type { ElementSets, LimitMaps } from "./sets.js";

/** How long rules stay when the last element is gone, ms: a service that comes and goes must not write rules each time. */
const UNUSED_MS = 60_000;

const ROLES = [
  "firewallIPs",
  "resetServices",
  "resetNodePorts",
  "nodePorts",
  "noEndpointServices",
  "noEndpointNodePorts",
  "limitedServices",
  "limitedNodePorts",
] as const satisfies readonly (keyof ElementSets | keyof LimitMaps)[];

export type OnDemandRole = (typeof ROLES)[number];

/** Maps whose rules are there. */
export type InUse = ReadonlySet<OnDemandRole>;

export class RulesOnDemand {
  readonly inUse: InUse;
  readonly #inUse = new Set<OnDemandRole>();
  readonly #emptySince = new Map<OnDemandRole, number>();
  readonly #sizeOf: (role: OnDemandRole) => number;
  readonly #declare: () => void;

  /**
   * @param sizeOf how many elements the map has; 0 also where it is not there.
   * @param declare declares the rules that `inUse` asks for.
   */
  constructor(sizeOf: (role: OnDemandRole) => number, declare: () => void) {
    this.inUse = this.#inUse;
    this.#sizeOf = sizeOf;
    this.#declare = declare;
  }

  /** After elements were put: what they need is in force no later than they are. */
  ensure(): void {
    const before = this.#inUse.size;
    for (let i = 0; i < ROLES.length; i++) {
      if (this.#sizeOf(ROLES[i]) > 0) this.#inUse.add(ROLES[i]);
    }
    if (this.#inUse.size > before) this.#declare();
  }

  /** Drops rules whose maps have been empty for `forMs`, by default a while. `now`: ms, monotonic. */
  collectUnused(now: number, forMs = UNUSED_MS): void {
    const before = this.#inUse.size;
    for (const role of this.#inUse) {
      if (this.#sizeOf(role) > 0) {
        this.#emptySince.delete(role);
        continue;
      }
      const since = this.#emptySince.get(role) ?? now;
      this.#emptySince.set(role, since);
      if (now - since < forMs) continue;
      this.#emptySince.delete(role);
      this.#inUse.delete(role);
    }
    if (this.#inUse.size < before) this.#declare();
  }
}
