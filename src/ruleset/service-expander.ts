/**
 * Expands one service port into its elements. Pure: the same state always yields the same elements, so that a change is the
 * difference between two expansions.
 */
import type { EndpointList } from "../objects/endpoint-list.js";
import type { Verdict } from "../nft/kernel/kernel.js";
import type { ServicePortView } from "../model/service-port-view.js";
import type { ElementSet, TableDeclarations } from "../nft/engine-exports.js";
import { limitChain, type PortLimits } from "./limit-chains.js";
import { expandAffinity, isExternal } from "./affinity-numbers.js";
import type { ServicePortState } from "./service-port-state.js";
import { type KeyPacker, packNumber, type ServiceKey } from "./key-packer.js";
import { bySource, type DrawKind, packList, shardOf, affinityList } from "./list-values.js";
import { ChainName, LOCAL_INDEX_BASE, ownNames } from "./names.js";
import { firewallsOf } from "./source-ranges.js";
import { type AddressRoles, type ElementSets, OF_NODE_PORTS, OF_VIPS } from "./element-sets.js";
import { type Expansion, NOTHING_EXPANDED } from "./expansion.js";

export class ServiceExpander {
  /** @param sets the ones for limits exist once an Expansion's `limits` has been called. */
  constructor(
    private readonly table: TableDeclarations,
    private readonly sets: ElementSets,
    private readonly keys: KeyPacker,
  ) {}

  /** Passes all elements of `state` to `to`. */
  expand(state: ServicePortState, to: Expansion): void {
    const { begun = Infinity } = state;
    if (begun !== Infinity) return this.expandPart(state, 0, begun, to);
    this.#expandLeads(state, to);
    this.#expandNumbered(state, 0, Infinity, to);
  }

  /** Passes all elements, without those of the endpoints before index `from` of each list. */
  expandRest(state: ServicePortState, from: number, to: Expansion): void {
    if (from === 0) return this.expand(state, to);
    this.expandPart(state, from, Infinity, to);
    this.#expandLeads(state, { ...to, endpoints: () => undefined });
  }

  /** Passes the elements of the endpoints of each list from one index up to another. No packet finds them without the rest. */
  expandPart(state: ServicePortState, from: number, end: number, to: Expansion): void {
    this.expandLists(state, {
      ...NOTHING_EXPANDED,
      endpoints: (set, key, base, list) => {
        const part = list.slice(from, end);
        if (part.length > 0) to.endpoints(set, key, base + from, part);
      },
    });
    this.#expandNumbered(state, from, end, to);
  }

  #expandNumbered(state: ServicePortState, from: number, end: number, to: Expansion): void {
    expandAffinity(state, this.sets, this.keys, from, end, to);
    const { view, cluster, local } = state;
    // With policy Local, pods of another node draw from the cluster list, without masquerading, through an address of this node.
    this.#hairpins(view, cluster.slice(from, end), view.externalPolicyLocal && isExternal(view), to);
    this.#hairpins(view, local.slice(from, end), false, to);
  }

  /** Passes the elements that lead to endpoints, and those of the endpoints to `to.endpoints`. */
  #expandLeads(state: ServicePortState, to: Expansion): void {
    const { view } = state;
    const keys = this.keys;
    if (view.clusterIP !== undefined) to.element(this.sets.clusterIPs, keys.address(view.clusterIP));
    this.expandLists(state, to);
    for (const { chain, addresses } of firewallsOf(view)) {
      for (const address of addresses) {
        const verdict = this.#verdict({ verdict: "goto", chain });
        to.element(this.sets.firewallIPs, keys.vip(address, view.protocol, view.port).service, verdict);
      }
    }
    if (state.limits !== undefined) this.#limit(state, state.limits, to);
  }

  /** Passes the list of each address, and the endpoints of the lists, to `to`. */
  expandLists(state: ServicePortState, to: Expansion): void {
    const { view } = state;
    forEachAddress(view, this.keys, (key, roles, isExternal) => {
      if (isExternal && view.externalPolicyLocal) this.#serveLocally(state, key, roles, to);
      else this.#serve(state, key, roles, kindOf(view, isExternal), to);
      if (view.resetRemovedEndpoints) to.element(this.sets[roles.resets], key.service);
    });
  }

  /** Policy Local: a packet's source decides on its list. */
  #serveLocally(state: ServicePortState, key: ServiceKey, roles: AddressRoles, to: Expansion): void {
    const { view, cluster, local } = state;
    if (local.length === 0) to.element(this.sets[roles.noEndpoints], key.service, this.#refusal(view));
    if (cluster.length === 0 && local.length === 0) return;
    to.element(this.sets[roles.services], key.service, packNumber(bySource(roles.nodePort)));
    if (cluster.length > 0) this.#list(state, key, roles, "cluster", this.sets[roles.cluster], to);
    if (local.length > 0) this.#list(state, key, roles, "local", this.sets[roles.local], to);
  }

  #serve(state: ServicePortState, key: ServiceKey, roles: AddressRoles, kind: DrawKind, to: Expansion): void {
    if (listOf(state, kind).length > 0) this.#list(state, key, roles, kind, this.sets[roles.services], to);
    else to.element(this.sets[roles.noEndpoints], key.service, this.#refusal(state.view));
  }

  /**
   * Only for addresses with an endpoint: connections rejected for lack of an endpoint must not use up a client's rate. With
   * policy Local, an endpoint in either list is enough, because the limits come before the choice of the list.
   */
  #limit(state: ServicePortState, { limits, number }: PortLimits, to: Expansion): void {
    const { view, local } = state;
    to.limits(limits);
    // A service may still have a former state after its maps are gone.
    if (this.sets.limits === undefined) return;
    to.element(this.sets.limits, packNumber(number), this.#verdict({ verdict: "jump", chain: limitChain(limits) }));
    forEachAddress(view, this.keys, (key, { limited }, isExternal) => {
      const map = this.sets[limited];
      const isServed =
        listOf(state, kindOf(view, isExternal)).length > 0 ||
        (isExternal && view.externalPolicyLocal && local.length > 0);
      if (isServed && map !== undefined) to.element(map, key.service, packNumber(number));
    });
  }

  /**
   * Puts the key's list value into `into`, and the list's places into the endpoint map. With affinity, all VIPs and the node
   * port share the list (affinity-numbers.ts).
   */
  #list(
    state: ServicePortState,
    key: ServiceKey,
    { nodePort }: AddressRoles,
    kind: DrawKind,
    into: ElementSet,
    to: Expansion,
  ): void {
    if (state.affinity !== undefined) {
      const value = affinityList(kind, state.affinity.list);
      to.element(into, key.service, packNumber(value));
      const verdict = this.#verdict({ verdict: "goto", chain: ownNames(state.view).draw[kind] });
      to.element(this.sets.dispatch, packNumber(value), verdict);
      return;
    }
    const list = placesOf(state, kind);
    const shard = nodePort ? 0 : shardOf(key.service);
    const { balance } = state.view;
    const slots = balance === undefined ? {} : { slots: balance.by };
    const value = packList({ kind, count: list.length, shard, nodePort, ...slots });
    to.list(value);
    to.element(into, key.service, packNumber(value));
    const endpoints = nodePort ? this.sets.nodePortEndpoints : this.sets.endpoints[shard];
    to.endpoints(endpoints, key, kind === "local" ? LOCAL_INDEX_BASE : 0, list);
  }

  #refusal(view: ServicePortView): Uint8Array {
    return this.#verdict({ verdict: "goto", chain: view.hasAnyEndpoint ? ChainName.drop : ChainName.reject });
  }

  #verdict(verdict: Verdict): Uint8Array {
    return packNumber(this.table.verdictId(verdict));
  }

  /**
   * Endpoints that may draw themselves. All packets of an endpoint on this node pass here, but an endpoint on another node
   * usually draws there. Listing the latter for all services would double the elements, in one set.
   */
  #hairpins({ protocol }: ServicePortView, list: EndpointList, remote: boolean, to: Expansion): void {
    if (!remote && list.locals === undefined) return;
    for (let i = 0; i < list.length; i++) {
      if (remote || list.isLocal(i)) to.element(this.sets.hairpin, this.keys.hairpin(list, i, protocol));
    }
  }
}

/**
 * Visits the key of each VIP and of the node port. A key is valid until the next is packed. The model ensures that no address
 * is in both lists.
 */
export function forEachAddress(
  { clusterIP, externalIPs, loadBalancerIPs, nodePort, protocol, port }: ServicePortView,
  keys: KeyPacker,
  visit: (key: ServiceKey, roles: AddressRoles, isExternal: boolean) => void,
): void {
  if (clusterIP !== undefined) visit(keys.vip(clusterIP, protocol, port), OF_VIPS, false);
  for (let i = 0; i < externalIPs.length; i++) visit(keys.vip(externalIPs[i], protocol, port), OF_VIPS, true);
  for (let i = 0; i < loadBalancerIPs.length; i++) visit(keys.vip(loadBalancerIPs[i], protocol, port), OF_VIPS, true);
  if (nodePort !== 0) visit(keys.nodePort(protocol, nodePort), OF_NODE_PORTS, true);
}

/**
 * The list for all sources, without externalTrafficPolicy Local. The constant chain before it decides on masquerading for
 * ClusterIPs.
 */
function kindOf({ internalPolicyLocal }: ServicePortView, isExternal: boolean): DrawKind {
  if (isExternal) return "masq";
  return internalPolicyLocal ? "local" : "cluster";
}

function listOf({ cluster, local }: ServicePortState, kind: DrawKind): EndpointList {
  return kind === "local" ? local : cluster;
}

/** Content of the endpoint map: the endpoints, or for slots, the endpoint of each slot. */
export function placesOf(state: ServicePortState, kind: DrawKind): EndpointList {
  const list = listOf(state, kind);
  return state.slots === undefined ? list : list.pick(state.slots[kind === "local" ? "local" : "cluster"]);
}
