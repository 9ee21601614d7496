/**
 * Rules that only some clusters need, for source ranges say, are not there until a map that they look in has elements: every first packet
 * of a connection would pay for them, and every later one for those that ask whether it is the first.
 *
 * They come in the transaction of the first element. A packet that is under way then runs the former rules, and what it looks up is of the new
 * generation: so this is for maps alone whose elements decide on packets that would otherwise fare as before they were there, and not for
 * what leads on what another map has found.
 */
import type { ElementSets } from "./sets.js";
import { Uses } from "./uses.js";

const ROLES = [
  "firewallIPs",
  "resetServices",
  "resetNodePorts",
  "nodePorts",
  "noEndpointServices",
  "noEndpointNodePorts",
  "limitedServices",
  "limitedNodePorts",
] as const satisfies readonly (keyof ElementSets)[];

export type OnDemandRole = (typeof ROLES)[number];

/** Maps whose rules are there. */
export type InUse = Pick<ReadonlyMap<OnDemandRole, unknown>, "has">;

export class RulesOnDemand {
  /** Of each map's rules, by the map while it has elements. */
  readonly #uses = new Uses<OnDemandRole>();
  readonly #sets: ElementSets;

  constructor(sets: ElementSets) {
    this.#sets = sets;
  }

  get inUse(): InUse {
    return this.#uses.present;
  }

  /** After elements were put: what they need is to be in force no later than they are. True: other rules are in use. */
  ensure(): boolean {
    const before = this.#uses.present.size;
    for (let i = 0; i < ROLES.length; i++) {
      if (this.#isFilled(ROLES[i]) && !this.#uses.isUsed(ROLES[i])) this.#uses.add(ROLES[i]);
    }
    return this.#uses.present.size > before;
  }

  /** Drops rules whose maps have been empty for `forMs`, by default a while. `now`: ms, monotonic. True: other rules are in use. */
  collectUnused(now: number, forMs?: number): boolean {
    for (const role of ROLES) if (!this.#isFilled(role)) this.#uses.release(role);
    return [...this.#uses.takeOverdue(now, forMs)].length > 0;
  }

  #isFilled(role: OnDemandRole): boolean {
    return (this.#sets[role]?.size ?? 0) > 0;
  }
}
