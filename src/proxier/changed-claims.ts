/** Determines which of a few services has each address and port (with its protocol) or node port. */
import type { IpFamily } from "../base/ip.js";
import { type AddressKey, addressesOf, keyOf } from "../model/service-address.js";
import type { ServicePortView } from "../model/service-port-view.js";
import type { ServiceState } from "../ruleset/family-ruleset.js";

function claimsOf(family: IpFamily, view: ServicePortView): AddressKey[] {
  return Array.from(addressesOf(family, view), keyOf);
}

/** Yields the claims of all ports in these states: addresses with protocol and port, and node ports. */
export function* claimsIn(
  family: IpFamily,
  ...states: readonly (readonly Pick<ServiceState[number], "view">[])[]
): Generator<AddressKey> {
  for (const state of states) for (const { view } of state) yield* claimsOf(family, view);
}

/** Returns the ports of `state` that share no claim with `views`. Returns `state` itself if that is all of them. */
export function withoutClaims(family: IpFamily, state: ServiceState, views: readonly ServicePortView[]): ServiceState {
  if (state.length === 0 || views.length === 0) return state;
  const claims = new Set(views.flatMap((view) => claimsOf(family, view)));
  // For most ports of a state with thousands, the port number alone shows that there is no conflict.
  const numbers = new Set(views.flatMap(({ port, nodePort }) => (nodePort === 0 ? [port] : [port, nodePort])));
  const left = state.filter(
    ({ view }) =>
      !(numbers.has(view.port) || numbers.has(view.nodePort)) ||
      !claimsOf(family, view).some((claim) => claims.has(claim)),
  );
  return left.length === state.length ? state : left;
}

/** The change of a service. */
export interface Change {
  readonly present: ServiceState;
  /** The state that the kernel last accepted. */
  readonly former: ServiceState;
}

/** Determines which of some services has each address and node port. */
export class ChangedClaims {
  #holders: Map<AddressKey, string> | undefined;

  constructor(
    private readonly family: IpFamily,
    private readonly services: Iterable<readonly [service: string, state: ServiceState]>,
  ) {}

  /** Returns the service's ports in `former` that share no claim with another one of the services. */
  leftOf(service: string, former: ServiceState): ServiceState {
    if (former.length === 0) return former;
    const holders = (this.#holders ??= this.#findHolders());
    const left = former.filter(({ view }) =>
      claimsOf(this.family, view).every((claim) => (holders.get(claim) ?? service) === service),
    );
    return left.length === former.length ? former : left;
  }

  #findHolders(): Map<AddressKey, string> {
    const holders = new Map<AddressKey, string>();
    for (const [service, state] of this.services)
      for (const claim of claimsIn(this.family, state)) holders.set(claim, service);
    return holders;
  }
}
