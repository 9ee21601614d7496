/**
 * Rules that only some clusters need, for example for source ranges. They do not exist until a map that they use has elements.
 * Otherwise, every first packet of a connection would pay for them, and every later packet for the check whether it is the
 * first.
 *
 * They come in the transaction of the first element. A packet in flight then runs the former rules, but looks up in the new
 * generation of the maps. So this is only for maps whose elements decide on packets that would otherwise be treated as before.
 * It is not for rules that continue the result of another map.
 */
import type { ElementSets } from "./element-sets.js";
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
  "stickyDraws",
] as const satisfies readonly (keyof ElementSets)[];

/** sctp: there has been an SCTP service. */
export type OnDemandRole = (typeof ROLES)[number] | "sctp";

/** Maps whose rules exist. */
export type InUse = Pick<ReadonlyMap<OnDemandRole, unknown>, "has">;

export class RulesOnDemand {
  /** A map uses its rules as long as it has elements. */
  readonly #uses = new Uses<OnDemandRole>();

  constructor(private readonly sets: ElementSets) {}

  get inUse(): InUse {
    return this.#uses.present;
  }

  /**
   * Call it after elements were put: their rules must be active no later than they are. Returns true if the rules in use
   * changed.
   */
  ensure(): boolean {
    const before = this.#uses.present.size;
    for (let i = 0; i < ROLES.length; i++) {
      if (this.#isFilled(ROLES[i]) && !this.#uses.isUsed(ROLES[i])) this.#uses.add(ROLES[i]);
    }
    return this.#uses.present.size > before;
  }

  /** Returns true if this changed the rules in use, which then stay. */
  useSctp(): boolean {
    return this.#uses.add("sctp");
  }

  /**
   * Drops rules whose maps have been empty for `forMs`, by default UNUSED_MS. `now`: ms, monotonic. Returns true if the rules
   * in use changed.
   */
  collectUnused(now: number, forMs?: number): boolean {
    for (const role of ROLES) if (!this.#isFilled(role)) this.#uses.release(role);
    return [...this.#uses.takeOverdue(now, forMs)].length > 0;
  }

  #isFilled(role: (typeof ROLES)[number]): boolean {
    return (this.sets[role]?.size ?? 0) > 0;
  }
}
