/**
 * Chains of a service port's own, for the two rare things that constant rules cannot do: source ranges, and ClientIP
 * affinity.
 *
 * Affinity has a set of clients for each service port, filled by the packets themselves, and for each of its lists a chain with a rule for
 * each endpoint. What those lead to are elements of shared maps (affinity.ts says how, and why the rules are not one as well): no chain or set
 * is an endpoint's own, as the kernel looks sets up by walking the list of all that the table has.
 */
import { parseCIDR, prefixContains } from "../base/ip.js";
import type { EndpointList } from "../model/endpoints.js";
import type { ServicePortView, SharedGuard } from "../model/types.js";
import type { ChainSpec, Field, FieldType, Rule, SetSpec, Statement, TableDeclarations } from "../table/index.js";
import { numberOf, usesList } from "./affinity.js";
import { stickyList } from "./list-values.js";
import { ChainName, drawChainName, type DrawKind, ownComment, ownName, portParts } from "./names.js";
import type { ServicePortState } from "./service.js";
import { markForMasquerade, type SkeletonOptions } from "./skeleton.js";

type OwnChainOptions = Pick<SkeletonOptions, "family" | "masqueradeBit" | "nodeIP">;

export interface OwnNames {
  /** Of the load-balancer IPs that no other service guards too. */
  readonly firewall: string;
  readonly draw: Readonly<Record<DrawKind, string>>;
  readonly remember: Readonly<Record<"cluster" | "local", string>>;
  readonly clients: string;
  /** Of a VIP that other services guard too. */
  sharedFirewall(address: string): string;
}

export function ownNames(view: ServicePortView): OwnNames {
  const parts = portParts(view);
  const base = ownName(parts);
  return {
    firewall: `source-ranges-${base}`,
    draw: { cluster: `sticky-cluster-${base}`, masq: `sticky-masq-${base}`, local: `sticky-local-${base}` },
    remember: { cluster: `sticky-cluster-remember-${base}`, local: `sticky-local-remember-${base}` },
    clients: `sticky-clients-${base}`,
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

function verdict(how: "goto" | "jump", chain: string): Statement {
  return { action: "verdict", verdict: { verdict: how, chain } };
}

/**
 * Clients that a service port remembers: spoofed ones can make it no more. A multiple of 65,536 on purpose: the kernel reserves buckets
 * for the last 16 bits of a set's size (rhashtable_params.nelem_hint), a megabyte for 65,535 and nothing for this.
 */
const MAX_CLIENTS = 2 ** 20;

interface StickyList {
  readonly list: number;
  /** Numbers of its endpoints, in an order that does not depend on that of events. */
  readonly numbers: readonly number[];
  /** Set of the service port's clients, each with the number of its endpoint. */
  readonly clients: string;
  /** Rewrites to the endpoint whose number the packet has, if that is in this list. */
  readonly rewrite: string;
  readonly timeoutMs: number;
}

/** The client's endpoint if it has one in this list, else one at random. */
function listRules({ list, numbers, clients }: StickyList, remember: string): Rule[] {
  const key = CLIENT_KEY;
  const known = numbers.map((value): Statement[] => [
    { action: "set-priority", value },
    { match: "in-set", key, set: clients },
    verdict("goto", remember),
  ]);
  return [...known, draw(list, numbers.length), [verdict("goto", remember)]].map((statements) => ({ statements }));
}

/**
 * Remembers the client, also when the set is full, and rewrites. The last rules are for packets that are under way while the list
 * shrinks: they run these rules, but look up in the new generation of the maps, where what they drew may be gone. At the first
 * index there is always one.
 */
function rememberRules({ list, clients, rewrite, timeoutMs }: StickyList): Rule[] {
  const jump = verdict("jump", rewrite);
  const update: Statement = { action: "update", set: clients, key: CLIENT_KEY, timeoutMs };
  return [[update], [jump], draw(list, 1), [jump]].map((statements) => ({ statements }));
}

const CLIENT_KEY: readonly Field[] = ["saddr", "priority"];

function draw(list: number, count: number): Statement[] {
  const chain = drawChainName({ kind: "sticky", count, shard: 0, nodePort: false });
  return [{ action: "set-priority", value: list }, verdict("jump", chain)];
}

export interface OwnObject {
  readonly kind: "chain" | "set";
  readonly name: string;
}

export type OwnObjects = readonly OwnObject[];

/** Most service ports need none. */
export function needsOwnObjects({ sourceRanges, guards, affinitySeconds }: ServicePortView): boolean {
  return sourceRanges !== undefined || guards !== undefined || affinitySeconds > 0;
}

/** Declares the chains and sets that `state` needs for itself, and names them. */
export function declareOwnObjects(
  table: TableDeclarations,
  state: ServicePortState,
  options: OwnChainOptions,
): OwnObjects {
  const { view } = state;
  const objects = new Objects(table);
  const names = ownNames(view);
  declareFirewalls(objects, view, names, options.nodeIP);
  if (view.affinitySeconds > 0) declareAffinity(objects, state, names, options);
  return objects.made;
}

class Objects {
  readonly made: OwnObject[] = [];
  constructor(readonly table: TableDeclarations) {}

  chain(spec: ChainSpec): void {
    this.table.chain(spec);
    this.made.push({ kind: "chain", name: spec.chain });
  }

  set(spec: SetSpec): void {
    this.table.set(spec);
    this.made.push({ kind: "set", name: spec.set });
  }
}

function declareAffinity(objects: Objects, state: ServicePortState, names: OwnNames, options: OwnChainOptions): void {
  const { view, sticky } = state;
  if (sticky === undefined) return;
  const key: readonly FieldType[] = [options.family === "ip" ? "ipv4_addr" : "ipv6_addr", "classid"];
  objects.set({ set: names.clients, key, dynamic: true, timeoutMs: 0, size: MAX_CLIENTS });
  for (const kind of ["cluster", "local"] as const) {
    if (state[kind].length === 0 || !usesList(view, kind)) continue;
    const list: StickyList = {
      list: stickyList(kind, sticky.list),
      numbers: byAddress(state[kind]).map((index) => numberOf(sticky, state[kind], index)),
      clients: names.clients,
      rewrite: kind === "cluster" ? ChainName.stickyCluster : ChainName.stickyLocal,
      timeoutMs: view.affinitySeconds * 1000,
    };
    objects.chain({ chain: names.remember[kind], rules: rememberRules(list) });
    objects.chain({ chain: names.draw[kind], rules: listRules(list, names.remember[kind]), ...ownComment(view.id) });
    if (kind === "cluster" && !view.externalPolicyLocal) {
      const mark = markForMasquerade(options.masqueradeBit);
      const rules = [{ statements: [mark] }, { statements: [verdict("goto", names.draw.cluster)] }];
      objects.chain({ chain: names.draw.masq, rules });
    }
  }
}

/** Indices in an order that does not depend on that of events, as the rules of a list must not. */
function byAddress(list: EndpointList): number[] {
  const ids = Array.from({ length: list.length }, (_, index) => list.id(index));
  return Array.from(ids.keys()).sort((a, b) => (ids[a] < ids[b] ? -1 : 1));
}
