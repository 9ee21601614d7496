import { runAtOnce, TakingTurns } from "../base/time-slice.js";
import { isSameBalance } from "../model/balance/endpoint-balance.js";
import { indicesIn } from "../model/balance/indices.js";
import { type BalancedView, endpointsOf, type Slots, slotsOf, type Stood } from "../model/slots.js";
import type { ServicePortView } from "../model/service-port-view.js";
import type { ServicePortState } from "./service-port-state.js";

export function isBalanced(view: ServicePortView): view is BalancedView {
  return view.balance !== undefined;
}

/** The state of a view with these slots, which refer to the order of the view's lists. */
function slotted(view: BalancedView, slots: Slots): ServicePortState {
  return { view, cluster: view.clusterEndpoints, local: view.localEndpoints, slots };
}

/**
 * Assigns the slots of a view. If the choice is random, endpoints keep their slots. Ports of a service with the same endpoints
 * have the same slots.
 * @param known ports of the same service, former or new, or from `prepareSlots`.
 * @param former the port's former state. If undefined, the port is new, and `stood` returns the slots left by an earlier run.
 */
export function assignSlots(
  view: BalancedView,
  known: readonly ServicePortState[],
  former: ServicePortState | undefined,
  stood: Stood,
): ServicePortState {
  const same = sameSlots(view, known);
  return slotted(view, same ?? runAtOnce(slotsOf(view, former === undefined ? stood : stoodIn(former, view))));
}

/** Preparing holds the event loop for one slice of a few ms, however many services are prepared at once. */
const turns = new TakingTurns();

/**
 * Assigns the slots of those views of one service that use a hash, piece by piece: 1,024 endpoints take about 30 ms. Returns
 * undefined if there is nothing to do.
 * @param before the service's current ports.
 */
export function prepareSlots(
  views: readonly ServicePortView[],
  before: readonly ServicePortState[],
): Promise<readonly ServicePortState[]> | undefined {
  const hashed = views.filter(isBalanced).filter((view) => view.balance.by !== "chance");
  const changed = hashed.filter((view) => sameSlots(view, before) === undefined);
  return changed.length === 0 ? undefined : prepareAll(changed);
}

async function prepareAll(views: readonly BalancedView[]): Promise<ServicePortState[]> {
  const prepared: ServicePortState[] = [];
  for (const view of views) {
    const same = await turns.run(() => sameSlots(view, prepared));
    if (same !== undefined) continue;
    // With a hash, the former slots do not matter.
    const pieces = slotsOf(view, () => () => -1);
    for (;;) {
      const { done, value } = await turns.run(() => pieces.next());
      if (done !== true) continue;
      prepared.push(slotted(view, value));
      break;
    }
  }
  return prepared;
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
    const indices = indicesIn(endpointsOf(former.view, kind), endpointsOf(view, kind));
    return (slot) => (slot < slots.length ? indices[slots[slot]] : -1);
  };
}
