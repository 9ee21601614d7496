/** Which of a few services has each (address, protocol, port) and node port. */
import type { ServicePortView } from "../model/types.js";
import type { ServiceState } from "../ruleset/ruleset.js";

function claimsOf(view: ServicePortView): string[] {
  const { protocol, port, clusterIP, externalIPs, loadBalancerIPs, nodePort } = view;
  const vips = [...(clusterIP === undefined ? [] : [clusterIP]), ...externalIPs, ...loadBalancerIPs];
  const claims = vips.map((address) => `${address} ${protocol} ${port}`);
  return nodePort === 0 ? claims : [...claims, `${protocol} ${nodePort}`];
}

function* claimsIn(...states: readonly ServiceState[]): Generator<string> {
  for (const state of states) for (const { view } of state) yield* claimsOf(view);
}

/** The ports of `state` that have nothing of what `views` claim; `state` itself if that is all of them. */
export function withoutClaims(state: ServiceState, views: readonly ServicePortView[]): ServiceState {
  if (state.length === 0 || views.length === 0) return state;
  const claims = new Set(views.flatMap(claimsOf));
  // Most of a state with thousands of ports need no look at their addresses.
  const numbers = new Set(views.flatMap(({ port, nodePort }) => (nodePort === 0 ? [port] : [port, nodePort])));
  const left = state.filter(
    ({ view }) =>
      !(numbers.has(view.port) || numbers.has(view.nodePort)) || !claimsOf(view).some((claim) => claims.has(claim)),
  );
  return left.length === state.length ? state : left;
}

/** A service that changed. */
export interface Change {
  readonly present: ServiceState;
  /** As the kernel took it last. */
  readonly former: ServiceState;
}

export class ChangedClaims {
  readonly #changes: ReadonlyMap<string, Change>;
  /** By claim, the service that has it now. */
  #holders: Map<string, string> | undefined;

  constructor(changes: ReadonlyMap<string, Change>) {
    this.#changes = changes;
  }

  /** The ports of `former`, which the service had, that have nothing that another of the changed services has come to have. */
  leftOf(service: string, former: ServiceState): ServiceState {
    if (former.length === 0) return former;
    const holders = (this.#holders ??= this.#presentHolders());
    const left = former.filter(({ view }) =>
      claimsOf(view).every((claim) => (holders.get(claim) ?? service) === service),
    );
    return left.length === former.length ? former : left;
  }

  /** The changed services, those together between which a claim passes. */
  groups(): string[][] {
    const groupOf = new Map<string, string[]>();
    const byClaim = new Map<string, string[]>();
    for (const [service, { present, former }] of this.#changes) {
      let group = [service];
      groupOf.set(service, group);
      for (const claim of claimsIn(present, former)) {
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
    for (const [service, { present }] of this.#changes)
      for (const claim of claimsIn(present)) holders.set(claim, service);
    return holders;
  }
}
