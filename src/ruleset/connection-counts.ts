/**
 * Connections counted by the maps of services. The NAT hooks only see the first packet of each connection, so each element
 * counts the connections that it was found for. A packet that was not rewritten passes `services` a second time (skeleton.ts).
 * This only affects the count if policy Local has no endpoint for the packet. For such a VIP or node port the two lists after
 * it count instead, because each packet is found in only one of them.
 */
import type { EndpointList } from "../objects/endpoint-list.js";
import type { IpFamily } from "../base/ip.js";
import type { ServiceAddress } from "../model/service-address.js";
import { type KeyPacker, packNumber, unpackServiceKey } from "./key-packer.js";
import { shardOf } from "./list-values.js";
import { LOCAL_INDEX_BASE } from "./names.js";
import { forEachAddress, placesOf } from "./service-expander.js";
import type { PortName, ServicePortState } from "./service-port-state.js";
import type { ElementSets } from "./element-sets.js";
import { LIST_KINDS, NUMBERED, numberOf } from "./affinity-numbers.js";

/** Connections of a service's ports as of the last reading, each computed on demand. Undefined if they are not counted. */
export interface ConnectionCounts {
  /** Since the elements of the port were created. `before`: the number as of the previous reading. */
  readonly ofPort: (port: PortName) => readonly [now: number, before: number] | undefined;
  /** By "address port", since the endpoint took its place in the service's lists. */
  readonly ofEndpoints: (port: PortName) => ReadonlyMap<string, number> | undefined;
}

export const NOT_COUNTED: ConnectionCounts = { ofPort: () => undefined, ofEndpoints: () => undefined };

const COUNTING = [
  ...["services", "servicesCluster", "servicesLocal"],
  ...["nodePorts", "nodePortsCluster", "nodePortsLocal"],
] as readonly (keyof ElementSets & (`services${string}` | `nodePorts${string}`))[];

/** Returns the addresses that got connections between the last two readings, some of them more than once. */
export function busyAddresses(family: IpFamily, sets: ElementSets): ServiceAddress[] {
  const found: ServiceAddress[] = [];
  for (const role of COUNTING) {
    sets[role].forEachGrown((key) => {
      const address = unpackServiceKey(key, family);
      if (address !== undefined) found.push(address);
    });
  }
  return found;
}

export function connectionsOf(
  { view }: ServicePortState,
  sets: ElementSets,
  keys: KeyPacker,
): readonly [now: number, before: number] {
  let now = 0;
  let before = 0;
  forEachAddress(view, keys, ({ service }, roles, isExternal) => {
    const counting = isExternal && view.externalPolicyLocal ? [roles.cluster, roles.local] : [roles.services];
    for (const role of counting) {
      now += sets[role].count(service);
      before += sets[role].countBefore(service);
    }
  });
  return [now, before];
}

export function connectionsOfEndpoints(
  state: ServicePortState,
  sets: ElementSets,
  keys: KeyPacker,
): ReadonlyMap<string, number> {
  const { affinity } = state;
  const counted = new Map<string, number>();
  const add = (list: EndpointList, count: (index: number) => number): void => {
    let index = 0;
    for (const { address, port } of list) {
      const key = `${address} ${port}`;
      counted.set(key, (counted.get(key) ?? 0) + count(index++));
    }
  };
  if (affinity !== undefined) {
    for (const kind of LIST_KINDS) {
      add(state[kind], (index) => sets[NUMBERED[kind]].count(packNumber(numberOf(affinity, state[kind], index))));
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
