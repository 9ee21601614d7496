/**
 * Chains of a service port's own, for the two rare things that constant rules cannot do: source ranges, and ClientIP
 * affinity.
 *
 * Affinity is kube-proxy's: a set of clients for each endpoint, filled by the packets themselves. A constant rule with
 * one map of client -> endpoint would be O(1) on a hit, but cannot tell whether the endpoint is in the list that the VIP in
 * use draws from, nor forget an endpoint's clients atomically with the endpoint: both would need a lookup whose key is
 * another lookup's result, which no nft can print.
 */
import { parseCIDR, prefixContains } from "../model/address.js";
import type { Endpoint, ServicePortView, SharedGuard } from "../model/types.js";
import type { Table } from "../table/index.js";
import type { ChainSpec, ElementSet, FieldType, Rule, SetSpec, Statement } from "../table/types.js";
import { packNumber } from "./keys.js";
import { type DrawKind, ownComment, ownName } from "./names.js";
import type { ServicePortState } from "./service.js";
import { markForMasquerade, resetPriority } from "./skeleton.js";

/** What a fill-in of the constant rules needs to know of its family. */
export interface OwnChainOptions {
  readonly addressType: FieldType;
  readonly masqueradeBit: number;
  /** This node's IP of the family, when known: see `sourceNets`. */
  readonly nodeIP?: string;
}

/** Names of a service port's own chains and sets. */
export interface OwnNames {
  /** Of the load-balancer IPs that no other service guards too. */
  readonly firewall: string;
  readonly draw: Readonly<Record<DrawKind, string>>;
  readonly drawMap: Readonly<Record<"cluster" | "local", string>>;
  endpoint(endpoint: Endpoint): string;
  /** Of a VIP that other services guard too. */
  sharedFirewall(address: string): string;
}

function baseParts(view: ServicePortView): string[] {
  return [...view.service.split("/"), view.protocol.toLowerCase(), ...(view.portName === "" ? [] : [view.portName])];
}

export function ownNames(view: ServicePortView): OwnNames {
  const parts = baseParts(view);
  const base = ownName(parts);
  return {
    firewall: `source-ranges-${base}`,
    draw: { cluster: `sticky-cluster-${base}`, masq: `sticky-masq-${base}`, local: `sticky-local-${base}` },
    drawMap: { cluster: `sticky-cluster-map-${base}`, local: `sticky-local-map-${base}` },
    endpoint: (endpoint) =>
      `sticky-endpoint-${ownName([...parts, endpoint.address.replaceAll(":", "."), String(endpoint.port)])}`,
    sharedFirewall: (address) => `source-ranges-${ownName([...parts, "shared", address.replaceAll(":", ".")])}`,
  };
}

/**
 * Networks that may reach the load-balancer IPs. The load-balancer IPs themselves are allowed when a range contains the node's
 * IP: where the VIP is a local address, the node's own requests to it have the VIP as their source.
 */
function sourceNets({ sourceRanges, loadBalancerIPs }: Guard, nodeIP: string | undefined): readonly string[] {
  if (nodeIP === undefined) return sourceRanges;
  const containsNode = sourceRanges.some((range) => {
    const prefix = parseCIDR(range);
    return prefix !== undefined && prefixContains(prefix, nodeIP);
  });
  return containsNode ? [...sourceRanges, ...loadBalancerIPs] : sourceRanges;
}

function firewallRule(guard: Guard, nodeIP: string | undefined): Rule {
  return {
    statements: [
      { match: "address", direction: "source", nets: sourceNets(guard, nodeIP), negate: true },
      { action: "verdict", verdict: { verdict: "drop" } },
    ],
  };
}

type Guard = SharedGuard["sources"][number];

/** The service port's own ranges for its load-balancer IPs; none: everybody may reach them. */
function ownGuards({ sourceRanges, loadBalancerIPs }: ServicePortView): readonly Guard[] {
  return sourceRanges === undefined || loadBalancerIPs.length === 0 ? [] : [{ sourceRanges, loadBalancerIPs }];
}

/** Every claimant of an address lets packets in, or none gets through. */
function declareFirewalls(objects: Objects, view: ServicePortView, names: OwnNames, nodeIP: string | undefined): void {
  const own = ownGuards(view);
  const declare = (chain: string, guards: readonly Guard[]): void => {
    objects.chain({ chain, rules: guards.map((guard) => firewallRule(guard, nodeIP)), ...ownComment(view.id) });
  };
  if (own.length > 0) declare(names.firewall, own);
  for (const { address, sources } of view.guards ?? []) {
    const mine = view.loadBalancerIPs.includes(address) ? own : [];
    declare(names.sharedFirewall(address), [...mine, ...sources]);
  }
}

const goto = (chain: string): Statement => ({ action: "verdict", verdict: { verdict: "goto", chain } });

/** Chain of one endpoint: remembers the client, then rewrites. */
function endpointRules(view: ServicePortView, endpoint: Endpoint, set: string): Rule[] {
  return [
    { statements: [{ action: "update", set, key: ["saddr"], timeoutMs: view.affinitySeconds * 1000 }] },
    {
      statements: [
        { match: "protocol", protocol: view.protocol.toLowerCase() },
        resetPriority,
        { action: "dnat", address: endpoint.address, port: endpoint.port },
      ],
    },
  ];
}

/**
 * Chain of one list: the client's endpoint if it has one in this list, else one of them at random.
 *
 * The last rule is for packets that are under way while the list shrinks: they still run these rules, but look the draw up
 * in the new generation of the map, where the number that they drew may be gone. Rules of one chain are of one generation,
 * so the endpoint that is named here is one that these rules could have drawn.
 */
function listRules(list: readonly Endpoint[], names: OwnNames, map: string): Rule[] {
  const sticky = list.map((endpoint): Rule => {
    const name = names.endpoint(endpoint);
    return { statements: [{ match: "in-set", key: ["saddr"], set: name }, goto(name)] };
  });
  const draw: Statement = { action: "vmap", key: [{ field: "numgen", mode: "random", modulus: list.length }], map };
  return [...sticky, { statements: [draw] }, { statements: [goto(names.endpoint(list[0]))] }];
}

/** One chain or set that a service port has for itself. */
export interface OwnObject {
  readonly kind: "chain" | "set";
  readonly name: string;
}

/** What a service port has for itself. */
export type OwnObjects = readonly OwnObject[];

function usesList(view: ServicePortView, kind: "cluster" | "local"): boolean {
  const external = view.externalIPs.length + view.loadBalancerIPs.length > 0 || view.nodePort !== 0;
  return kind === "cluster"
    ? (!view.internalPolicyLocal && view.clusterIP !== undefined) || external
    : (view.internalPolicyLocal && view.clusterIP !== undefined) || (view.externalPolicyLocal && external);
}

/** Most service ports need none. */
export function needsOwnObjects({ sourceRanges, guards, affinitySeconds }: ServicePortView): boolean {
  return sourceRanges !== undefined || guards !== undefined || affinitySeconds > 0;
}

/** Declares the chains and sets that `state` needs for itself, and names them. */
export function declareOwnObjects(table: Table, state: ServicePortState, options: OwnChainOptions): OwnObjects {
  const { view } = state;
  const objects = new Objects(table);
  const names = ownNames(view);
  declareFirewalls(objects, view, names, options.nodeIP);
  if (view.affinitySeconds > 0) declareAffinity(objects, state, names, options);
  return objects.made;
}

/** Declares in a table, and keeps the list. */
class Objects {
  readonly made: OwnObject[] = [];
  constructor(readonly table: Table) {}

  chain(spec: ChainSpec): void {
    this.table.chain(spec);
    this.made.push({ kind: "chain", name: spec.chain });
  }

  set(spec: SetSpec): ElementSet {
    this.made.push({ kind: "set", name: spec.set });
    return this.table.set(spec);
  }
}

/** Deterministic order: the rules of a list must not depend on the order of events. */
function byAddress(list: Iterable<Endpoint>): Endpoint[] {
  return [...list].sort((a, b) => (a.address < b.address ? -1 : a.address > b.address ? 1 : a.port - b.port));
}

function declareAffinity(objects: Objects, state: ServicePortState, names: OwnNames, options: OwnChainOptions): void {
  const { view } = state;
  const made = new Set<string>();
  for (const kind of ["cluster", "local"] as const) {
    const list = usesList(view, kind) ? byAddress(state[kind]) : [];
    if (list.length === 0) continue;
    for (const endpoint of list) {
      const name = names.endpoint(endpoint);
      if (made.has(name)) continue;
      made.add(name);
      // No size: the kernel reserves buckets for all that one allows, a megabyte for 65,535. The rule that updates a set
      // without one bounds it to that number all the same (nft_dynset_init), and spoofed clients can make it hold no more.
      objects.set({ set: name, key: [options.addressType], dynamic: true, timeoutMs: 0 });
      objects.chain({ chain: name, rules: endpointRules(view, endpoint, name) });
    }
    const map = objects.set({ set: names.drawMap[kind], key: ["index"], data: "verdict" });
    map.clear();
    const index = new Uint32Array(1);
    list.forEach((endpoint, position) => {
      index[0] = position;
      const verdict = objects.table.verdictId({ verdict: "goto", chain: names.endpoint(endpoint) });
      map.put(new Uint8Array(index.buffer), packNumber(verdict));
    });
    objects.chain({
      chain: names.draw[kind],
      rules: listRules(list, names, names.drawMap[kind]),
      ...ownComment(view.id),
    });
    if (kind === "cluster" && !view.externalPolicyLocal) {
      const mark = markForMasquerade(options.masqueradeBit);
      const rules = [{ statements: [mark] }, { statements: [goto(names.draw.cluster)] }];
      objects.chain({ chain: names.draw.masq, rules });
    }
  }
}
