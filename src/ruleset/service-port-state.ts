import type { Slots } from "../model/slots.js";
import type { EndpointList } from "../objects/endpoint-list.js";
import type { ServicePortView } from "../model/service-port-view.js";
import type { PortLimits } from "./limit-chains.js";

/** Identifies a service port among those of its service. */
export type PortName = Pick<ServicePortView, "portName" | "protocol">;

/** A service port, with the state that the table must remember between changes. */
export interface ServicePortState {
  readonly view: ServicePortView;
  /** Endpoint at each index of the cluster list. */
  readonly cluster: EndpointList;
  /** Endpoint at each index of the local list (index LOCAL_INDEX_BASE + i in the maps). */
  readonly local: EndpointList;
  /** Endpoint in each slot of the two lists, if the view has a balance. */
  readonly slots?: Slots;
  /** Set if the view has limits. */
  readonly limits?: PortLimits;
  /**
   * Set while the port is added or removed in pieces: the number of endpoints of each list that the kernel has. Nothing leads to
   * them then.
   */
  readonly begun?: number;
  /** Set for affinity: identifies the service port and its endpoints to clients. */
  readonly affinity?: AffinityState;
}

/** The numbers of a service port with affinity in the maps. */
export interface AffinityState {
  /** Identifies its lists: see affinityList. */
  readonly list: number;
  readonly endpoints: ReadonlyMap<number | string, number>;
}
