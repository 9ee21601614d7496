import { runAtOnce, runInSlices } from "../base/time-slice.js";
import { isSameBalance } from "../model/balance.js";
import type { ServicePortView } from "../model/service-port-view.js";
import { indicesIn } from "./indices.js";
import { type BalancedView, endpointsOf, isLong, type Slots, slotsOf, type Stood } from "./slots.js";

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
  return runAtOnce(slotsOf(view, former === undefined ? stood : stoodIn(former, view), former?.slots));
}

/**
 * Does ahead, for views of one service, what takes it so long that other work is not to wait for it: it takes a thousand endpoints a fifth of a
 * second to be assigned slots, if none were before. Undefined: there is nothing of the kind.
 * @param before the service's ports as they are.
 */
export function prepareSlots(
  views: readonly ServicePortView[],
  before: readonly SlottedPort[],
): Promise<readonly SlottedPort[]> | undefined {
  const long = views.filter(isBalanced).filter((view) => takesLong(view) && sameSlots(view, before) === undefined);
  return long.length === 0 ? undefined : prepareLong(long, before);
}

async function prepareLong(views: readonly BalancedView[], before: readonly SlottedPort[]): Promise<SlottedPort[]> {
  const prepared: SlottedPort[] = [];
  for (const view of views) {
    if (sameSlots(view, prepared) !== undefined) continue;
    // Only assignments by hash take long. They do not depend on the former slots.
    const work = slotsOf(view, () => () => -1, portIn(before, view)?.slots);
    prepared.push({ view, slots: await runInSlices(work) });
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

function takesLong({ balance, clusterEndpoints, localEndpoints }: BalancedView): boolean {
  return isLong(balance, clusterEndpoints) || isLong(balance, localEndpoints);
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
    const slots = former.slots?.[kind].slots;
    if (slots === undefined) return () => -1;
    const indices = indicesIn(endpointsOf(former.view, kind), endpointsOf(view, kind));
    return (slot) => (slot < slots.length ? indices[slots[slot]] : -1);
  };
}
