/**
 * Connections counted by the maps of services. The NAT hooks only see the first packet of each connection, so each element
 * counts the connections that it was found for. A packet that was not rewritten passes `services` a second time (skeleton.ts).
 * This only affects the count if policy Local has no endpoint for the packet. For such a VIP or node port the two lists after
 * it count instead, because each packet is found in only one of them.
 */
import type { EndpointList } from "../objects/endpoint-list.js";
import type { ServicePortView } from "../model/service-port-view.js";
import { type KeyPacker, packNumber } from "./keys.js";
import { shardOf } from "./list-values.js";
import { LOCAL_INDEX_BASE } from "./names.js";
import { forEachAddress, placesOf } from "./service.js";
import { type ServicePortState } from "./service-port-state.js";
import type { ElementSets } from "./sets.js";
import type { ServiceCounters } from "./service-counters.js";
import { LIST_KINDS, NUMBERED, numberOf } from "./sticky-numbers.js";

/** Connections counted since the elements of a service port were created, as of the last reading. */
export interface PortConnections {
  readonly connections: number;
  /** `connections` as of the previous reading. */
  readonly before: number;
  /** Keyed by "address port". Counted since the endpoint took its place in the service's lists. Absent if not counted. */
  readonly endpoints?: ReadonlyMap<string, number>;
}

/** Counts of a service's ports, computed on demand. */
export type PortCounts = (port: Pick<ServicePortView, "portName" | "protocol">) => PortConnections | undefined;

export function connectionsOf(
  state: ServicePortState,
  sets: ElementSets,
  keys: KeyPacker,
  counters: ServiceCounters,
): PortConnections {
  const { view } = state;
  let connections = 0;
  let before = 0;
  forEachAddress(view, keys, ({ service }, roles, isExternal) => {
    const counting = isExternal && view.externalPolicyLocal ? [roles.cluster, roles.local] : [roles.services];
    for (const role of counting) {
      connections += sets[role].count(service);
      before += sets[role].countBefore(service);
    }
  });
  const endpoints = counters === "endpoint" && { endpoints: connectionsOfEndpoints(state, sets, keys) };
  return { connections, before, ...endpoints };
}

function connectionsOfEndpoints(state: ServicePortState, sets: ElementSets, keys: KeyPacker): Map<string, number> {
  const { sticky } = state;
  const counted = new Map<string, number>();
  const add = (list: EndpointList, count: (index: number) => number): void => {
    let index = 0;
    for (const { address, port } of list) {
      const key = `${address} ${port}`;
      counted.set(key, (counted.get(key) ?? 0) + count(index++));
    }
  };
  if (sticky !== undefined) {
    for (const kind of LIST_KINDS) {
      add(state[kind], (index) => sets[NUMBERED[kind]].count(packNumber(numberOf(sticky, state[kind], index))));
    }
    return counted;
  }
  const [cluster, local] = [placesOf(state, "cluster"), placesOf(state, "local")];
  forEachAddress(state.view, keys, (key, { nodePort }) => {
    const endpoints = nodePort ? sets.nodePortEndpoints : sets.endpoints[shardOf(key.service)];
    add(cluster, (index) => endpoints.count(key.at(index)));
    add(local, (index) => endpoints.count(key.at(LOCAL_INDEX_BASE + index)));
  });
  return counted;
}
