import { type Pieces, runAtOnce } from "../base/time-slice.js";
import { isSameBalance } from "../model/balance/endpoint-balance.js";
import { indicesIn } from "../model/balance/indices.js";
import { type BalancedView, endpointsOf, type Slots, slotsOf, type Stood } from "../model/slots.js";
import type { ServicePortView } from "../model/service-port-view.js";
import type { ServicePortState } from "./service-port-state.js";

export function isBalanced(view: ServicePortView): view is BalancedView {
  return view.balance !== undefined;
}

/**
 * Assigns the slots of a view, piece by piece: for 1,024 endpoints, a hash takes about 30 ms. If the choice is random, endpoints keep their slots. Ports of a service with the same endpoints
 * have the same slots.
 * @param known ports of the same service, former or new.
 * @param former the port's former state. If undefined, the port is new, and `stood` returns the slots left by an earlier run.
 */
export function* assignSlots(
  view: BalancedView,
  known: readonly ServicePortState[],
  former: ServicePortState | undefined,
  stood: Stood,
): Pieces<ServicePortState> {
  const same = sameSlots(view, known);
  const slots = same ?? (yield* slotsOf(view, former === undefined ? stood : stoodIn(former, view)));
  return { view, cluster: view.clusterEndpoints, local: view.localEndpoints, slots };
}

/** Slots of a known port with the same lists and an equivalent balance. */
function sameSlots(
  { balance, clusterEndpoints, localEndpoints }: BalancedView,
  known: readonly ServicePortState[],
): Slots | undefined {
  return known.find(
    ({ view, slots }) =>
      slots !== undefined &&
      isBalanced(view) &&
      isSameBalance(view.balance, balance) &&
      view.clusterEndpoints.equals(clusterEndpoints) &&
      view.localEndpoints.equals(localEndpoints),
  )?.slots;
}

/** Positions of the view's endpoints in the port's former slots. */
function stoodIn(former: ServicePortState, view: ServicePortView): Stood {
  return (kind) => {
    const slots = former.slots?.[kind];
    if (slots === undefined) return () => -1;
    const indices = runAtOnce(indicesIn(endpointsOf(former.view, kind), endpointsOf(view, kind)));
    return (slot) => (slot < slots.length ? indices[slots[slot]] : -1);
  };
}
