import { affinityObjects } from "./affinity-chains.js";
import type { OwnObject } from "./own-object.js";
import type { ServicePortView } from "../model/service-port-view.js";
import type { ServicePortState } from "./service-port-state.js";
import { sourceRangeObjects } from "./source-ranges.js";

const NONE: readonly never[] = Object.freeze([]);

/** Most service ports have none: only source ranges and ClientIP affinity cannot be provided by constant rules. */
export function hasOwnObjects({ sourceRanges, guards, affinitySeconds }: ServicePortView): boolean {
  return sourceRanges !== undefined || guards !== undefined || affinitySeconds > 0;
}

/**
 * The chains and sets that belong to `state`, in an order in which targets come first. A port that is added or removed in
 * pieces has none.
 */
export function ownObjects(state: ServicePortState): readonly OwnObject[] {
  if (!hasOwnObjects(state.view) || state.begun !== undefined) return NONE;
  return [...sourceRangeObjects(state.view), ...affinityObjects(state)];
}
