/**
 * What the maps of services have counted. The NAT hooks see the first packet of each connection alone, so that an element of a map counts
 * the connections that it was found for. A packet passes `services` again where it was not rewritten the first time (skeleton.ts), which
 * shows only where policy Local has nothing for it: of such a VIP or node port the lists behind count, each packet in one of them.
 */
import { type KeyPacker, packNumber, type ServiceKey, unpackNumber } from "./keys.js";
import { isBySource, shardOf } from "./list-values.js";
import { LOCAL_INDEX_BASE } from "./names.js";
import type { ServiceCounters } from "./service-counters.js";
import { placesOf, type ServicePortState } from "./service.js";
import type { ElementSet } from "../table/index.js";
import type { ElementSets } from "./sets.js";
import { numberOf } from "./sticky-numbers.js";

/** Since the elements came; as of the last reading. */
export interface PortConnections {
  readonly portName: string;
  readonly port: number;
  readonly protocol: string;
  readonly connections: number;
  /** The same as of the reading before that. */
  readonly before: number;
  /** By "address port": since the endpoint stands where it does in the service's lists. Absent: they are not counted. */
  readonly endpoints?: ReadonlyMap<string, number>;
}

/** Whether a VIP's element goes on counting: what it counts is another thing with policy Local. */
export function carriesCount(before: Uint8Array, after: Uint8Array): boolean {
  return isBySource(unpackNumber(before)) === isBySource(unpackNumber(after));
}

export function connectionsOf(
  state: ServicePortState,
  sets: ElementSets,
  keys: KeyPacker,
  counters: ServiceCounters,
): PortConnections {
  const { view } = state;
  const counted = new Map<string, number>();
  let connections = 0;
  let before = 0;
  const count = (set: ElementSet, service: Uint8Array): void => {
    connections += set.count(service);
    before += set.countBefore(service);
  };
  const carry = (value: Uint8Array | undefined): void => {
    const packets = value === undefined ? 0 : unpackNumber(value);
    connections += packets;
    before += packets;
  };
  const add = (key: ServiceKey, nodePort: boolean, external: boolean): void => {
    const { services, cluster, local } = nodePort
      ? { services: sets.nodePorts, cluster: sets.nodePortsCluster, local: sets.nodePortsLocal }
      : { services: sets.services, cluster: sets.servicesCluster, local: sets.servicesLocal };
    const { service } = key;
    if (external && view.externalPolicyLocal) {
      count(cluster, service);
      count(local, service);
    } else count(services, service);
    carry((nodePort ? sets.nodePortsCarried : sets.servicesCarried)?.get(service));
    if (counters !== "endpoint" || state.sticky !== undefined) return;
    const endpoints = nodePort ? sets.nodePortEndpoints : sets.endpoints[shardOf(service)];
    for (const [list, base] of [
      [placesOf(state, "cluster"), 0],
      [placesOf(state, "local"), LOCAL_INDEX_BASE],
    ] as const) {
      let index = 0;
      for (const { address, port } of list)
        raise(counted, `${address} ${port}`, endpoints.count(key.at(base + index++)));
    }
  };
  if (view.clusterIP !== undefined) add(keys.vip(view.clusterIP, view.protocol, view.port), false, false);
  for (const address of [...view.externalIPs, ...view.loadBalancerIPs]) {
    add(keys.vip(address, view.protocol, view.port), false, true);
  }
  if (view.nodePort !== 0) add(keys.nodePort(view.protocol, view.nodePort), true, true);
  if (counters === "endpoint" && state.sticky !== undefined) addSticky(state, sets, counted);
  const { portName, port, protocol } = view;
  return { portName, port, protocol, connections, before, ...(counters === "endpoint" && { endpoints: counted }) };
}

function addSticky(state: ServicePortState, sets: ElementSets, counted: Map<string, number>): void {
  const { sticky } = state;
  if (sticky === undefined) return;
  for (const [list, set] of [
    [state.cluster, sets.stickyCluster],
    [state.local, sets.stickyLocal],
  ] as const) {
    let index = 0;
    for (const { address, port } of list) {
      raise(counted, `${address} ${port}`, set.count(packNumber(numberOf(sticky, list, index++))));
    }
  }
}

function raise(counted: Map<string, number>, key: string, by: number): void {
  counted.set(key, (counted.get(key) ?? 0) + by);
}
