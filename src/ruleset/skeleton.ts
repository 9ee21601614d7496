/**
 * The constant part of the table: base chains, policies, the sets and maps of sets.ts. A service is only elements in the maps
 * (and, where it asks for source ranges or affinity, chains of its own).
 */
import { Hook, Priority } from "../kernel/constants.js";
import type { IpFamily } from "../model/types.js";
import type { Field, Match, Rule, SetSpec, Statement, TableDeclarations } from "../table/index.js";
import {
  declareAnswers,
  followingRules,
  LOOPBACK,
  type LocalhostNodePorts,
  martianRules,
  sourceForRouting,
  toLocalhost,
} from "./localhost.js";
import type { ServiceCounters } from "./service-counters.js";
import { bySource, ENDPOINT_NUMBERS } from "./list-values.js";
import { ChainName, SetName } from "./names.js";
import type { InUse } from "./on-demand.js";
import { type Counting, type ElementSets, setSpecs } from "./sets.js";

/** What tells traffic of this node's pods from other traffic, for one family. */
export type LocalDetector =
  | { readonly kind: "none" }
  | { readonly kind: "cidr"; readonly cidrs: readonly string[] }
  /** Came in by this interface; a trailing `*` makes it a prefix. The node's own packets are then never local. */
  | { readonly kind: "interface"; readonly name: string };

export interface RulesetOptions {
  readonly masqueradeAll: boolean;
  /** 0..31. */
  readonly masqueradeBit: number;
  readonly detector: LocalDetector;
  /** This node's IP of the family, canonical; absent when it has none. */
  readonly nodeIP?: string;
  /** Addresses that node ports answer on; "all": every local one but loopback, instead of the elements of `nodeport-ips`. */
  readonly nodePortAddresses: "all" | readonly string[];
  /** Node ports answer on loopback addresses as well; absent: on none. */
  readonly localhost?: LocalhostNodePorts;
  /** The kernel knows `reject` in prerouting (Linux 5.9); default true. */
  readonly rejectInPrerouting?: boolean;
  /** Connections that the maps of services count (Linux 5.7), from the beginning on; default "off". */
  readonly counters?: ServiceCounters;
}

export interface SkeletonOptions extends RulesetOptions {
  readonly family: IpFamily;
  /** The network that all ClusterIPs are in, where it is one. */
  readonly serviceCIDR?: string;
}

const SERVICE_KEY: readonly Field[] = ["daddr", "l4proto", "dport"];
const NODE_PORT_KEY: readonly Field[] = ["l4proto", "dport"];

export const jump = (chain: string): Statement => ({ action: "verdict", verdict: { verdict: "jump", chain } });
export const goto = (chain: string): Statement => ({ action: "verdict", verdict: { verdict: "goto", chain } });
const drop: Statement = { action: "verdict", verdict: { verdict: "drop" } };
const stateNew: Statement = { match: "ct-state", states: ["new"] };
const reject: Statement = { action: "reject" };
const reset: Statement = { action: "reject", with: "tcp-reset" };
const masquerade: Statement = { action: "masquerade", fullyRandom: true };
const rule = (...statements: Statement[]): Rule => ({ statements });

/** A list value travels as the packet's priority (list-values.ts): from here on it is none again. */
export const resetPriority: Statement = { action: "set-priority", value: 0 };
const dispatch: Statement = { action: "vmap", key: ["priority"], map: SetName.dispatch };
const listOf = (key: readonly Field[], map: string): Statement => ({ action: "priority-map", key, map });

/** Sets the masquerade bit on the packet; postrouting clears it and masquerades. */
export function markForMasquerade(bit: number): Statement {
  const value = (1 << bit) >>> 0;
  return { action: "set-mark", mask: value, value };
}

function detectorMatch(detector: LocalDetector, negate: boolean): Match | undefined {
  switch (detector.kind) {
    case "none":
      return undefined;
    case "cidr":
      return { match: "address", direction: "source", nets: detector.cidrs, negate };
    case "interface":
      return { match: "interface", direction: "in", name: detector.name, negate };
  }
}

function nodePortMatch(options: SkeletonOptions, input: boolean): Statement[] {
  if (options.nodePortAddresses !== "all") return [{ match: "in-set", key: ["daddr"], set: SetName.nodePortIPs }];
  const nets = [LOOPBACK[options.family]];
  const notLoopback: Match = { match: "address", direction: "destination", nets, negate: true };
  // In input every destination is local already.
  return input ? [notLoopback] : [{ match: "address-type", direction: "destination", type: "local" }, notLoopback];
}

function serviceRules(options: SkeletonOptions, inUse: InUse): Rule[] {
  const toClusterIP: Match = { match: "in-set", key: ["daddr"], set: SetName.clusterIPs };
  const mark = markForMasquerade(options.masqueradeBit);
  const notLocal = detectorMatch(options.detector, true);
  const rules: Rule[] = [];
  if (options.masqueradeAll) rules.push(rule(toClusterIP, mark));
  // The source first: it takes no look-up.
  else if (notLocal !== undefined) rules.push(rule(notLocal, toClusterIP, mark));
  // `dispatch` cannot lead to the chains that go by source: they use it themselves, and the kernel would see a loop.
  const fromSource = (nodePort: boolean, chain: string): Rule =>
    rule({ match: "priority", value: bySource(nodePort) }, goto(chain));
  rules.push(rule(listOf(SERVICE_KEY, SetName.services), dispatch), fromSource(false, ChainName.externalLocal));
  if (inUse.has("nodePorts")) {
    rules.push(rule(...nodePortMatch(options, false), listOf(NODE_PORT_KEY, SetName.nodePorts), dispatch));
    rules.push(fromSource(true, ChainName.nodePortLocal));
  }
  return rules;
}

/** From this node alone: what comes in by a wire for a loopback address is no one's. Masqueraded, whichever list it draws from. */
function localhostRules(localhost: LocalhostNodePorts, masqueradeBit: number): Rule[] {
  const found = listOf(NODE_PORT_KEY, SetName.nodePorts);
  const rules = [
    rule(found, markForMasquerade(masqueradeBit), sourceForRouting(localhost), dispatch),
    rule({ match: "priority", value: bySource(true) }, goto(ChainName.nodePortLocal)),
  ];
  // Twice, as TO_SERVICES.
  return [...rules, ...rules];
}

/** Ahead of TO_SERVICES, as a packet that comes there a second time must not count twice. */
function limitRules(options: SkeletonOptions, inUse: InUse): Rule[] {
  const limit: Statement = { action: "vmap", key: ["priority"], map: SetName.limits };
  const rules: Rule[] = [];
  if (inUse.has("limitedServices")) rules.push(rule(listOf(SERVICE_KEY, SetName.limitedServices), limit));
  if (inUse.has("limitedNodePorts")) {
    rules.push(rule(...nodePortMatch(options, false), listOf(NODE_PORT_KEY, SetName.limitedNodePorts), limit));
  }
  return rules;
}

/**
 * Rules of both DNAT hooks. They look twice: before Linux 6.17 a lookup that spans a commit may find neither the old nor the
 * new element of a key that is replaced (it has read the old generation, and the old element is unlinked already), and a first
 * packet that is not rewritten leaves its connection unrewritten for good. Microseconds later the new generation is in force.
 * `dnat` ends the evaluation, so that only packets to no service come here a second time; all that is done on the way may be
 * done again. The same on all kernels: stable releases took the mending over, and no version number tells.
 */
const TO_SERVICES: readonly Rule[] = [
  rule(jump(ChainName.services)),
  {
    statements: [jump(ChainName.services)],
    comment: "again: before Linux 6.17 a lookup can miss what is being replaced",
  },
];

/**
 * externalTrafficPolicy Local: pods draw from the cluster list, the node too but masqueraded, all others from the local list. A list without
 * endpoints is in no map, and the next rule is tried. Each packet that is rewritten is found in one of the two: they count (connection-counts.ts).
 */
function localPolicyRules(
  options: SkeletonOptions,
  key: readonly Field[],
  clusterLists: string,
  localLists: string,
): Rule[] {
  const fromPod = detectorMatch(options.detector, false);
  const notFromPod = detectorMatch(options.detector, true);
  const fromNode: Match = { match: "address-type", direction: "source", type: "local" };
  const cluster = listOf(key, clusterLists);
  return [
    ...(fromPod === undefined ? [] : [rule(fromPod, cluster, dispatch)]),
    rule(
      ...(notFromPod === undefined ? [] : [notFromPod]),
      fromNode,
      cluster,
      markForMasquerade(options.masqueradeBit),
      dispatch,
    ),
    rule(listOf(key, localLists), dispatch),
  ];
}

/**
 * A segment of a connection that is tracked no more, as its endpoint is gone, to a service that asks for it: answered with
 * a reset here, as the next endpoint's host may drop what it does not know, and an established connection takes no ICMP
 * error as its end. Before DNAT, so that it is the service's address still, and needs no route to it.
 */
function resetRules(options: SkeletonOptions, inUse: InUse): Rule[] {
  const notOpening: Match = { match: "tcp-flags", among: ["syn"], set: [] };
  const resetTo = (...to: Statement[]): Rule => rule(stateNew, notOpening, ...to, reset);
  const rules: Rule[] = [];
  if (inUse.has("resetServices")) {
    rules.push(resetTo({ match: "in-set", key: SERVICE_KEY, set: SetName.resetServices }));
  }
  if (inUse.has("resetNodePorts")) {
    const toNodePort: Match = { match: "in-set", key: NODE_PORT_KEY, set: SetName.resetNodePorts };
    rules.push(resetTo(...nodePortMatch(options, false), toNodePort));
  }
  return rules;
}

/** The same of node ports on loopback addresses, where this node sends. */
function localhostResets({ localhost }: SkeletonOptions, inUse: InUse): Rule[] {
  if (localhost === undefined || !inUse.has("resetNodePorts")) return [];
  const notOpening: Match = { match: "tcp-flags", among: ["syn"], set: [] };
  const toNodePort: Match = { match: "in-set", key: NODE_PORT_KEY, set: SetName.resetNodePorts };
  return [rule(stateNew, notOpening, toLocalhost(localhost), toNodePort, reset)];
}

function postroutingRules(bit: number): Rule[] {
  const value = (1 << bit) >>> 0;
  const { mask: numbers, value: number } = ENDPOINT_NUMBERS;
  return [
    // DNAT by an endpoint's number has left it on the packet.
    rule({ match: "priority", mask: numbers, value: number }, resetPriority),
    rule({ match: "mark", mask: value, value: 0, negate: true }, { action: "xor-mark", value }, masquerade),
    rule(
      { match: "ct-status", status: "dnat" },
      { match: "in-set", key: ["saddr", "daddr", "l4proto", "dport"], set: SetName.hairpin },
      masquerade,
    ),
  ];
}

/** To the endpoint whose number the packet has; goes on in the chain that it came from when the list has none of that number. */
function numberedRules(map: string): Rule[] {
  return ["tcp", "udp", "sctp"].map((protocol) =>
    rule({ match: "protocol", protocol }, { action: "dnat-map", key: ["priority"], map, data: "address-port" }),
  );
}

/** Declares all shared sets of one family in `table`, and returns them. */
export function declareSets(table: TableDeclarations, family: IpFamily, counting?: Counting): ElementSets {
  return Object.fromEntries(
    Object.entries(setSpecs(family, counting)).map(([role, spec]: [string, SetSpec | readonly SetSpec[]]) => [
      role,
      "set" in spec ? table.set(spec) : spec.map((shard) => table.set(shard)),
    ]),
  ) as unknown as ElementSets;
}

/** Declares the constant chains (again, after an option changed), and those rules on demand that are in use. */
export function declareSkeleton(table: TableDeclarations, options: SkeletonOptions, inUse: InUse): void {
  // Chains that others jump to come first: a jump to a chain must find it.
  table.chain({
    chain: ChainName.reject,
    rules: [rule(reject)],
    comment: "helper for @no-endpoint-services / @no-endpoint-nodeports",
  });
  table.chain({
    chain: ChainName.externalLocal,
    rules: localPolicyRules(options, SERVICE_KEY, SetName.servicesCluster, SetName.servicesLocal),
  });
  table.chain({
    chain: ChainName.nodePortLocal,
    rules: localPolicyRules(options, NODE_PORT_KEY, SetName.nodePortsCluster, SetName.nodePortsLocal),
  });
  table.chain({ chain: ChainName.stickyCluster, rules: numberedRules(SetName.stickyCluster) });
  table.chain({ chain: ChainName.stickyLocal, rules: numberedRules(SetName.stickyLocal) });
  table.chain({ chain: ChainName.services, rules: serviceRules(options, inUse) });
  declareFilters(table, options, inUse);
  const nat = (chain: string, hook: number, priority: number, rules: readonly Rule[]): void =>
    table.chain({ chain, base: { type: "nat", hook, priority }, rules });
  const toServices = [...limitRules(options, inUse), ...TO_SERVICES];
  nat(ChainName.natPrerouting, Hook.prerouting, Priority.dstnat, toServices);
  nat(ChainName.natOutput, Hook.output, Priority.dstnat, [...declareLocalhost(table, options, inUse), ...toServices]);
  nat(ChainName.natPostrouting, Hook.postrouting, Priority.srcnat, postroutingRules(options.masqueradeBit));
}

/** Returns the rules that lead to node ports on loopback. */
function declareLocalhost(table: TableDeclarations, options: SkeletonOptions, inUse: InUse): Rule[] {
  const { family, localhost, masqueradeBit } = options;
  declareAnswers(table, family, localhost);
  const chain = ChainName.localhostNodePorts;
  if (localhost === undefined || !inUse.has("nodePorts")) {
    table.removeChain(chain);
    return [];
  }
  table.chain({ chain, rules: localhostRules(localhost, masqueradeBit) });
  return [rule(toLocalhost(localhost), jump(chain))];
}

/** The base chains that judge. One without rules is not there: its hook alone costs every packet. */
function declareFilters(table: TableDeclarations, options: SkeletonOptions, inUse: InUse): void {
  const filter = (chain: string, hook: number, priority: number, rules: readonly Rule[]): void => {
    if (rules.length === 0) table.removeChain(chain);
    else table.chain({ chain, base: { type: "filter", hook, priority }, rules });
  };
  const noEndpointServices = inUse.has("noEndpointServices")
    ? [rule({ action: "vmap", key: SERVICE_KEY, map: SetName.noEndpointServices })]
    : [];
  /** Rules for new connections alone, for which every other packet pays once. */
  const check = (chain: string, rules: readonly Rule[]): Rule[] => {
    if (rules.length === 0) {
      table.removeChain(chain);
      return [];
    }
    table.chain({ chain, rules });
    return [rule(stateNew, jump(chain))];
  };

  const firewall = inUse.has("firewallIPs")
    ? [rule(stateNew, { action: "vmap", key: SERVICE_KEY, map: SetName.firewallIPs })]
    : [];
  const resets = resetRules(options, inUse);
  const early = Priority.dstnat - 10;
  const { family, localhost } = options;
  const atPrerouting = options.rejectInPrerouting !== false ? [...firewall, ...resets] : firewall;
  filter(ChainName.filterPreroutingPreDnat, Hook.prerouting, early, [
    ...martianRules(family, localhost),
    ...atPrerouting,
  ]);
  filter(ChainName.filterOutputPreDnat, Hook.output, early, [
    ...followingRules(family, localhost),
    ...firewall,
    ...resets,
    ...localhostResets(options, inUse),
  ]);
  const noEndpoint: Statement = { action: "vmap", key: NODE_PORT_KEY, map: SetName.noEndpointNodePorts };
  const noEndpointNodePorts = inUse.has("noEndpointNodePorts")
    ? [
        rule(...nodePortMatch(options, true), noEndpoint),
        ...(localhost === undefined ? [] : [rule(toLocalhost(localhost), noEndpoint)]),
      ]
    : [];
  const toNode = check(ChainName.nodeCheck, [...noEndpointNodePorts, ...noEndpointServices]);
  filter(ChainName.filterInput, Hook.input, Priority.filter, toNode);
  const further = check(ChainName.serviceCheck, [...noEndpointServices, ...clusterIPRules(options)]);
  filter(ChainName.filterForward, Hook.forward, Priority.filter, further);
  filter(ChainName.filterOutput, Hook.output, Priority.filter, further);
}

/**
 * What no service has of the ClusterIPs. A translated packet goes to an endpoint, which may be an address of a service itself: it is refused
 * then, as it would be with kube-proxy; but outside the network of the ClusterIPs it needs no look-up to tell that it is not.
 */
function clusterIPRules({ serviceCIDR }: SkeletonOptions): Rule[] {
  const toEndpoint: Rule[] =
    serviceCIDR === undefined
      ? []
      : [
          rule(
            { match: "ct-status", status: "dnat" },
            { match: "address", direction: "destination", nets: [serviceCIDR], negate: true },
            { action: "verdict", verdict: { verdict: "return" } },
          ),
        ];
  return [
    ...toEndpoint,
    {
      statements: [{ match: "in-set", key: ["daddr"], set: SetName.clusterIPs }, reject],
      comment: "Reject traffic to invalid ports of ClusterIPs",
    },
    {
      statements: [{ match: "in-set", key: ["daddr"], set: SetName.serviceCIDRs }, drop],
      comment: "Drop traffic to unallocated ClusterIPs",
    },
  ];
}
