/**
 * One service port, expanded into the elements that serve it. Pure: the same state always gives the same elements, so
 * that a change is the difference between two expansions.
 */
import type { Slots } from "../balance/index.js";
import type { EndpointList } from "../model/endpoints.js";
import type { Verdict } from "../kernel/types.js";
import type { Limits } from "../model/limits.js";
import type { ServicePortView } from "../model/types.js";
import type { ElementSet } from "../table/index.js";
import { limitChain, limitKey, type PortLimits } from "./limits.js";
import { expandSticky, type Sticky } from "./sticky-numbers.js";
import { type KeyPacker, packNumber, type ServiceKey } from "./keys.js";
import { bySource, packList, shardOf, stickyList } from "./list-values.js";
import { ChainName, type DrawKind, LOCAL_INDEX_BASE, ownNames } from "./names.js";
import type { ElementSets, LimitMaps } from "./sets.js";

/** A service port with what the table has to remember of it between changes. */
export interface ServicePortState {
  readonly view: ServicePortView;
  /** Endpoint at each index of the cluster list. */
  readonly cluster: EndpointList;
  /** Endpoint at each index of the local list (index LOCAL_INDEX_BASE + i in the maps). */
  readonly local: EndpointList;
  /** Which endpoint of the two lists stands in each slot, where the view asks for a balance. */
  readonly slots?: Slots | undefined;
  /** Where the view asks for limits. */
  readonly limits?: PortLimits | undefined;
  /** With affinity: what its clients are remembered with. */
  readonly sticky?: Sticky | undefined;
}

/** Where an expansion goes: the same calls, whether elements come, go or are looked for. Bytes are valid during the call only. */
export interface Expansion {
  /** One element, perhaps shared with other service ports; `data` is absent for sets. */
  element(set: ElementSet, key: Uint8Array, data?: Uint8Array): void;
  /** The elements of a list of endpoints: `key`, followed by `base` and the numbers behind it. */
  endpoints(set: ElementSet, key: ServiceKey, base: number, endpoints: EndpointList): void;
  /** One element leads to the chain that draws from such a list (packList). */
  list(value: number): void;
  /** One element leads to the chain of such limits. */
  limits(limits: Limits): void;
}

interface Maps {
  readonly nodePort: boolean;
  readonly services: ElementSet;
  /** Of policy Local. */
  readonly cluster: ElementSet;
  /** Of policy Local. */
  readonly local: ElementSet;
  readonly noEndpoints: ElementSet;
  readonly endpoints: readonly ElementSet[];
}

export class ServiceExpander {
  readonly #sets: ElementSets;
  readonly #limitMaps: () => LimitMaps | undefined;
  readonly #keys: KeyPacker;
  readonly #vips: Maps;
  readonly #nodePorts: Maps;
  readonly #verdictId: (verdict: Verdict) => number;

  /** @param limitMaps there once an Expansion's `limits` has been told of limits. */
  constructor(
    sets: ElementSets,
    limitMaps: () => LimitMaps | undefined,
    keys: KeyPacker,
    verdictId: (verdict: Verdict) => number,
  ) {
    this.#verdictId = verdictId;
    this.#sets = sets;
    this.#limitMaps = limitMaps;
    this.#keys = keys;
    this.#vips = {
      nodePort: false,
      services: sets.services,
      cluster: sets.servicesCluster,
      local: sets.servicesLocal,
      noEndpoints: sets.noEndpointServices,
      endpoints: sets.endpoints,
    };
    this.#nodePorts = {
      nodePort: true,
      services: sets.nodePorts,
      cluster: sets.nodePortsCluster,
      local: sets.nodePortsLocal,
      noEndpoints: sets.noEndpointNodePorts,
      endpoints: [sets.nodePortEndpoints],
    };
  }

  /** Tells `to` every element that `state` asks for. */
  expand(state: ServicePortState, to: Expansion): void {
    const { view } = state;
    const keys = this.#keys;
    if (view.clusterIP !== undefined) {
      to.element(this.#sets.clusterIPs, keys.address(view.clusterIP));
      // Masquerading is the business of the constant chain in front.
      const kind = view.internalPolicyLocal ? "local" : "cluster";
      this.#serve(state, keys.vip(view.clusterIP, view.protocol, view.port), this.#vips, kind, to);
    }
    // No address is in both lists: the model sees to it.
    this.#externals(state, view.externalIPs, to);
    this.#externals(state, view.loadBalancerIPs, to);
    for (const address of guarded(view)) {
      const names = ownNames(view);
      const isShared = view.guards?.some((guard) => guard.address === address) === true;
      const verdict = this.#goto(isShared ? names.sharedFirewall(address) : names.firewall);
      to.element(this.#sets.firewallIPs, keys.vip(address, view.protocol, view.port).service, verdict);
    }
    if (view.nodePort !== 0) this.#external(state, keys.nodePort(view.protocol, view.nodePort), this.#nodePorts, to);
    if (view.resetRemovedEndpoints) this.#resets(view, to);
    if (state.limits !== undefined) this.#limit(state, state.limits, to);
    expandSticky(state, this.#sets, keys, to);
    this.#hairpins(view, state.cluster, to);
    this.#hairpins(view, state.local, to);
  }

  #externals(state: ServicePortState, addresses: readonly string[], to: Expansion): void {
    const { protocol, port } = state.view;
    for (let i = 0; i < addresses.length; i++) {
      this.#external(state, this.#keys.vip(addresses[i], protocol, port), this.#vips, to);
    }
  }

  #resets(view: ServicePortView, to: Expansion): void {
    const keys = this.#keys;
    const own = view.clusterIP === undefined ? [] : [view.clusterIP];
    for (const address of [...own, ...view.externalIPs, ...view.loadBalancerIPs]) {
      to.element(this.#sets.resetServices, keys.vip(address, view.protocol, view.port).service);
    }
    if (view.nodePort !== 0) {
      to.element(this.#sets.resetNodePorts, keys.nodePort(view.protocol, view.nodePort).service);
    }
  }

  #external(state: ServicePortState, key: ServiceKey, maps: Maps, to: Expansion): void {
    const { view, cluster, local } = state;
    if (!view.externalPolicyLocal) return this.#serve(state, key, maps, "masq", to);
    if (local.length === 0) to.element(maps.noEndpoints, key.service, this.#refusal(view));
    if (cluster.length === 0 && local.length === 0) return;
    to.element(maps.services, key.service, packNumber(bySource(maps.nodePort)));
    if (cluster.length > 0) this.#list(state, key, maps, "cluster", maps.cluster, to);
    if (local.length > 0) this.#list(state, key, maps, "local", maps.local, to);
  }

  /**
   * Of the addresses that have an endpoint: a client that is refused for want of one has not used up its rate when there is one again. With policy Local
   * either list will do: which of the two a packet draws from is known behind the limits alone.
   */
  #limit(state: ServicePortState, limits: PortLimits, to: Expansion): void {
    const keys = this.#keys;
    const { view, cluster, local } = state;
    const { protocol, port, nodePort } = view;
    const isServed = cluster.length > 0 || (view.externalPolicyLocal && local.length > 0);
    const isOwnServed = listOf(state, view.internalPolicyLocal ? "local" : "cluster").length > 0;
    const own = view.clusterIP === undefined || !isOwnServed ? [] : [view.clusterIP];
    const external = isServed ? [...view.externalIPs, ...view.loadBalancerIPs] : [];
    to.limits(limits.limits);
    const maps = this.#limitMaps();
    if (maps === undefined) return;
    to.element(maps.limits, limitKey(limits), this.#jump(limitChain(limits.limits)));
    for (const address of [...own, ...external]) {
      to.element(maps.limitedServices, keys.vip(address, protocol, port).service, limitKey(limits));
    }
    if (nodePort === 0 || !isServed) return;
    to.element(maps.limitedNodePorts, keys.nodePort(protocol, nodePort).service, limitKey(limits));
  }

  #serve(state: ServicePortState, key: ServiceKey, maps: Maps, kind: DrawKind, to: Expansion): void {
    if (listOf(state, kind).length > 0) this.#list(state, key, maps, kind, maps.services, to);
    else to.element(maps.noEndpoints, key.service, this.#refusal(state.view));
  }

  /** Says in `into` which list the key draws from, and what stands in that; with affinity all VIPs and the node port have it in common (sticky-numbers.ts). */
  #list(state: ServicePortState, key: ServiceKey, maps: Maps, kind: DrawKind, into: ElementSet, to: Expansion): void {
    const { nodePort } = maps;
    if (state.sticky !== undefined) {
      const value = stickyList(kind, state.sticky.list);
      to.element(into, key.service, packNumber(value));
      to.element(this.#sets.dispatch, packNumber(value), this.#goto(ownNames(state.view).draw[kind]));
      return;
    }
    const list = placesOf(state, kind);
    const shard = nodePort ? 0 : shardOf(key.service);
    const { balance } = state.view;
    const slots = balance === undefined ? {} : { slots: balance.by };
    const value = packList({ kind, count: list.length, shard, nodePort, ...slots });
    to.list(value);
    to.element(into, key.service, packNumber(value));
    to.endpoints(maps.endpoints[shard], key, kind === "local" ? LOCAL_INDEX_BASE : 0, list);
  }

  #refusal(view: ServicePortView): Uint8Array {
    return view.hasAnyEndpoint ? packNumber(this.#verdictId({ verdict: "drop" })) : this.#goto(ChainName.reject);
  }

  #goto(chain: string): Uint8Array {
    return packNumber(this.#verdictId({ verdict: "goto", chain }));
  }

  #jump(chain: string): Uint8Array {
    return packNumber(this.#verdictId({ verdict: "jump", chain }));
  }

  /** Only an endpoint on this node can send a packet that comes back to itself through this table. */
  #hairpins({ protocol }: ServicePortView, list: EndpointList, to: Expansion): void {
    if (list.locals === undefined) return;
    for (let i = 0; i < list.length; i++) {
      if (list.isLocal(i)) to.element(this.#sets.hairpin, this.#keys.hairpin(list, i, protocol));
    }
  }
}

function listOf({ cluster, local }: ServicePortState, kind: DrawKind): EndpointList {
  return kind === "local" ? local : cluster;
}

/** What stands in the map: the endpoints, or the slots with an endpoint each. */
export function placesOf({ cluster, local, slots }: ServicePortState, kind: DrawKind): EndpointList {
  if (kind === "local") return slots === undefined ? local : local.pick(slots.local);
  return slots === undefined ? cluster : cluster.pick(slots.cluster);
}

const NONE: readonly string[] = Object.freeze([]);

function guarded({ sourceRanges, loadBalancerIPs, guards }: ServicePortView): readonly string[] {
  const own = sourceRanges === undefined ? NONE : loadBalancerIPs;
  if (guards === undefined) return own;
  return [...new Set([...own, ...guards.map(({ address }) => address)])];
}
