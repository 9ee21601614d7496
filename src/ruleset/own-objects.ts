import { affinityObjects } from "./affinity-chains.js";
import type { OwnObject } from "./own-object.js";
import type { ServicePortState } from "./service-port-state.js";
import { sourceRangeObjects } from "./source-ranges.js";

const NONE: readonly never[] = Object.freeze([]);

/**
 * The chains and sets that belong to `state`, in an order in which targets come first. Most service ports need none: only
 * source ranges and ClientIP affinity cannot be provided by constant rules.
 */
export function ownObjects(state: ServicePortState): readonly OwnObject[] {
  const { view } = state;
  if (view.sourceRanges === undefined && view.guards === undefined && view.affinitySeconds === 0) return NONE;
  return [...sourceRangeObjects(view), ...affinityObjects(state)];
}
