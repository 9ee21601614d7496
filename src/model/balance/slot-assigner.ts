import { runAtOnce, TakingTurns } from "../../base/time-slice.js";
import { isSameBalance } from "./endpoint-balance.js";
import type { ServicePortView } from "../service-port-view.js";
import { indicesIn } from "./indices.js";
import { type BalancedView, endpointsOf, type Slots, slotsOf, type Stood } from "./slots.js";

/** A service port with its slots; absent: it asks for no balance. */
export interface SlottedPort {
  readonly view: ServicePortView;
  readonly slots?: Slots;
}

export function isBalanced(view: ServicePortView): view is BalancedView {
  return view.balance !== undefined;
}

/**
 * Slots of the view. Where chance draws, endpoints keep theirs. Ports of a service that have the same endpoints have the same slots.
 * @param known ports of the same service, before or now, or as `prepareSlots` told.
 * @param former the port as it was. If undefined, the port is new, and `stood` returns what an earlier run left.
 */
export function assignSlots(
  view: BalancedView,
  known: readonly SlottedPort[],
  former: SlottedPort | undefined,
  stood: Stood,
): Slots {
  const same = sameSlots(view, known);
  if (same !== undefined) return same;
  return runAtOnce(slotsOf(view, former === undefined ? stood : stoodIn(former, view)));
}

/** However many services are prepared at once, the event loop is held for one slice of a few ms. */
const turns = new TakingTurns();

/**
 * Assigns the slots of views of one service whose clients choose their endpoint, piece by piece: for 1,024 endpoints that takes some 30 ms. Returns
 * undefined if there is nothing to do.
 * @param before the service's ports as they are.
 */
export function prepareSlots(
  views: readonly ServicePortView[],
  before: readonly SlottedPort[],
): Promise<readonly SlottedPort[]> | undefined {
  const hashed = views.filter(isBalanced).filter((view) => view.balance.by !== "chance");
  const changed = hashed.filter((view) => sameSlots(view, before) === undefined);
  return changed.length === 0 ? undefined : prepareAll(changed);
}

async function prepareAll(views: readonly BalancedView[]): Promise<SlottedPort[]> {
  const prepared: SlottedPort[] = [];
  for (const view of views) {
    const same = await turns.run(() => sameSlots(view, prepared));
    if (same !== undefined) continue;
    // A hash does not depend on the former slots.
    const pieces = slotsOf(view, () => () => -1);
    for (;;) {
      const { done, value } = await turns.run(() => pieces.next());
      if (done !== true) continue;
      prepared.push({ view, slots: value });
      break;
    }
  }
  return prepared;
}

/** The port among those of its service that the view is of. */
export function portIn<Port extends { readonly view: ServicePortView }>(
  ports: readonly Port[],
  { portName, protocol }: Pick<ServicePortView, "portName" | "protocol">,
): Port | undefined {
  return ports.find(({ view }) => view.portName === portName && view.protocol === protocol);
}

/** Of a port that has these lists, and a balance that spreads them the same. */
function sameSlots(
  { balance, clusterEndpoints, localEndpoints }: BalancedView,
  known: readonly SlottedPort[],
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

/** Where endpoints of the view stood in the slots of the port as it was. */
function stoodIn(former: SlottedPort, view: ServicePortView): Stood {
  return (kind) => {
    const slots = former.slots?.[kind];
    if (slots === undefined) return () => -1;
    const indices = indicesIn(endpointsOf(former.view, kind), endpointsOf(view, kind));
    return (slot) => (slot < slots.length ? indices[slots[slot]] : -1);
  };
}
