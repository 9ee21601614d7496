import type { Slots } from "../model/balance/slots.js";
import type { EndpointList } from "../objects/endpoint-list.js";
import type { ServicePortView } from "../model/service-port-view.js";
import type { PortLimits } from "./limits.js";

/** A service port with what the table has to remember of it between changes. */
export interface ServicePortState {
  readonly view: ServicePortView;
  /** Endpoint at each index of the cluster list. */
  readonly cluster: EndpointList;
  /** Endpoint at each index of the local list (index LOCAL_INDEX_BASE + i in the maps). */
  readonly local: EndpointList;
  /** Which endpoint of the two lists stands in each slot, where the view asks for a balance. */
  readonly slots?: Slots;
  /** Where the view asks for limits. */
  readonly limits?: PortLimits;
  /** With affinity: what its clients are remembered with. */
  readonly sticky?: Sticky;
}

/** What a service port with affinity is known by in the maps. */
export interface Sticky {
  /** Tells its lists from others': see stickyList. */
  readonly list: number;
  readonly endpoints: ReadonlyMap<number | string, number>;
}
