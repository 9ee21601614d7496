/** Who of a few services has which (address, protocol, port) and node port. */
import type { ServicePortView } from "../model/types.js";
import type { FamilyRuleset, ServiceState } from "../ruleset/ruleset.js";

function* claimsOf(views: Iterable<ServicePortView>): Generator<string> {
  for (const { protocol, port, clusterIP, externalIPs, loadBalancerIPs, nodePort } of views) {
    if (clusterIP !== undefined) yield `${clusterIP} ${protocol} ${port}`;
    for (const address of externalIPs) yield `${address} ${protocol} ${port}`;
    for (const address of loadBalancerIPs) yield `${address} ${protocol} ${port}`;
    if (nodePort !== 0) yield `${protocol} ${nodePort}`;
  }
}

const viewsOf = (state: ServiceState): readonly ServicePortView[] => state.map(({ view }) => view);

interface Change {
  readonly desired: readonly ServicePortView[];
  readonly former: ServiceState;
}

export class ChangedClaims {
  readonly #changes: ReadonlyMap<string, Change>;
  readonly #ruleset: FamilyRuleset;
  /** By claim, the service that has it now. */
  #holders: Map<string, string> | undefined;

  constructor(changes: ReadonlyMap<string, Change>, ruleset: FamilyRuleset) {
    this.#changes = changes;
    this.#ruleset = ruleset;
  }

  static overlap(views: readonly ServicePortView[], state: ServiceState): boolean {
    const claims = new Set(claimsOf(views));
    return claims.size > 0 && [...claimsOf(viewsOf(state))].some((claim) => claims.has(claim));
  }

  /** Whether another of the changed services has come to have what `former` says the service had. */
  takenFrom(service: string, former: ServiceState): boolean {
    if (former.length === 0) return false;
    const holders = (this.#holders ??= this.#presentHolders());
    return [...claimsOf(viewsOf(former))].some((claim) => {
      const holder = holders.get(claim);
      return holder !== undefined && holder !== service;
    });
  }

  /** The changed services, those together between which a claim passes. */
  groups(): string[][] {
    const groupOf = new Map<string, string[]>();
    const byClaim = new Map<string, string[]>();
    for (const [service, { desired, former }] of this.#changes) {
      let group = [service];
      groupOf.set(service, group);
      for (const claim of claimsOf([...desired, ...viewsOf(former)])) {
        const other = byClaim.get(claim);
        if (other !== undefined && other !== group) {
          other.push(...group);
          for (const member of group) groupOf.set(member, other);
          for (const [key, value] of byClaim) if (value === group) byClaim.set(key, other);
          group = other;
        }
        byClaim.set(claim, group);
      }
    }
    return [...new Set(groupOf.values())];
  }

  #presentHolders(): Map<string, string> {
    const holders = new Map<string, string>();
    for (const service of this.#changes.keys()) {
      for (const claim of claimsOf(viewsOf(this.#ruleset.state(service)))) holders.set(claim, service);
    }
    return holders;
  }
}
