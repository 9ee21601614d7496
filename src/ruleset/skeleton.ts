/**
 * The constant part of the table: base chains, policies, and the sets and maps of element-sets.ts. A service only consists of elements
 * in the maps, and of chains of its own if it has source ranges or affinity.
 */
import { Hook, Priority } from "../nft/kernel/constants.js";
import type { IpFamily } from "../base/ip.js";
import type { ChainSpec, Field, Rule, Statement, TableDeclarations } from "../nft/engine-exports.js";
import { LOOPBACK, localhostRules, sourceForRouting } from "./localhost.js";
import type { LocalDetector, LocalhostNodePorts } from "../node/node-facts.js";
import { bySource, ENDPOINT_NUMBERS, OF_CLUSTER_IP } from "./list-values.js";
import { ChainName, SetName } from "./names.js";
import type { InUse, OnDemandRole } from "./on-demand.js";
import { type AddressRoles, OF_NODE_PORTS, OF_VIPS } from "./element-sets.js";
import { abortRules, endpointRefusalRules, isUnanswered, refusalRules, toClient } from "./refusals.js";
import type { ServiceCounters } from "./service-counters.js";
import { drop, goto, jump, markForMasquerade, reject, reset, resetPriority, rule, setPriority } from "./statements.js";

export interface RulesetOptions {
  readonly masqueradeAll: boolean;
  /** 0 to 31. */
  readonly masqueradeBit: number;
  readonly detector: LocalDetector;
  /** This node's IP of the family, canonical; absent if it has none. */
  readonly nodeIP?: string;
  /**
   * Addresses on which node ports answer. "all": every local address except loopback, instead of the elements of
   * `nodeport-ips`.
   */
  readonly nodePortAddresses: "all" | readonly string[];
  /** Loopback addresses on which node ports also answer; absent if there are none. */
  readonly localhost?: LocalhostNodePorts;
  /** The kernel supports `reject` in prerouting (Linux 5.9); default: true. */
  readonly rejectInPrerouting?: boolean;
  /** Connections that the maps of services count (Linux 5.7). Must be set from the start; default: "off". */
  readonly counters?: ServiceCounters;
}

export interface SkeletonOptions extends RulesetOptions {
  readonly family: IpFamily;
  /** The network that contains all ClusterIPs, if there is exactly one. */
  readonly serviceCIDR?: string;
}

const stateNew: Statement = { field: "ct state", value: "new" };
const isTranslated: Statement = { field: "ct status", value: "dnat" };
const toClusterIP: Statement = { field: "daddr", value: `@${SetName.clusterIPs}` };
const masquerade: Statement = { action: "masquerade", fullyRandom: true };

const verdictOf = (key: readonly Field[], map: string): Statement => ({ action: "vmap", key, map });
const dispatch = verdictOf(["meta priority"], SetName.dispatch);
const listOf = ({ key }: AddressRoles, role: keyof typeof SetName): Statement =>
  setPriority({ key, map: SetName[role] });

/** Policy Local, after the lookup of the list: the packet's source decides which list it draws from. */
const policyOf = ({ nodePort }: AddressRoles): Rule =>
  rule(
    { field: "meta priority", value: bySource(nodePort) },
    jump(nodePort ? ChainName.nodePortLocal : ChainName.externalLocal),
  );

const base =
  (type: "filter" | "nat") =>
  (chain: string, hook: number, priority: number, rules: readonly Rule[]): ChainSpec => {
    return { chain, base: { type, hook, priority }, rules };
  };
const [filter, nat] = [base("filter"), base("nat")];

/** Empty if nothing identifies local traffic. */
function detectorMatch({ detector }: SkeletonOptions, negate: boolean): Statement[] {
  switch (detector.kind) {
    case "none":
      return [];
    case "cidr":
      return [{ field: "saddr", op: negate ? "!=" : "==", value: detector.cidrs }];
    case "interface":
      return [{ field: "iifname", op: negate ? "!=" : "==", value: detector.name }];
  }
}

function nodePortMatch(options: SkeletonOptions, input: boolean): Statement[] {
  if (options.nodePortAddresses !== "all") return [{ field: "daddr", value: `@${SetName.nodePortIPs}` }];
  const notLoopback: Statement = { field: "daddr", op: "!=", value: LOOPBACK[options.family] };
  // In the input hook every destination is local.
  return input
    ? [notLoopback]
    : [{ field: { field: "fib", of: ["daddr"], result: "type" }, value: "local" }, notLoopback];
}

const ADDRESSES = [OF_VIPS, OF_NODE_PORTS] as const;

/** Match before a packet's lookup. For a VIP, the key is enough. */
function addressMatch(options: SkeletonOptions, { nodePort }: AddressRoles): Statement[] {
  return nodePort ? nodePortMatch(options, false) : [];
}

const addressesInUse = (inUse: InUse): readonly AddressRoles[] => (inUse.has("nodePorts") ? ADDRESSES : [OF_VIPS]);

function serviceRules(options: SkeletonOptions, inUse: InUse): Rule[] {
  return addressesInUse(inUse).map((roles) =>
    rule(...addressMatch(options, roles), listOf(roles, roles.services), goto(ChainName.served)),
  );
}

/**
 * For packets to a service. They come directly from the lookup that found it, so their priority is its list value. A packet to
 * no service may have any priority. The list value also identifies a ClusterIP, which saves another lookup of the address.
 */
function servedRules(options: SkeletonOptions, inUse: InUse): Rule[] {
  const notLocal = detectorMatch(options, true);
  const rules: Rule[] = [];
  if (options.masqueradeAll || notLocal.length > 0) {
    const source = options.masqueradeAll ? [] : notLocal;
    const toClusterIP: Statement = { field: "meta priority", mask: OF_CLUSTER_IP, value: OF_CLUSTER_IP };
    rules.push(rule(...source, toClusterIP, markForMasquerade(options.masqueradeBit)));
  }
  // `dispatch` cannot lead to the chains that decide by source: they use it themselves, and the kernel would see a loop.
  return [...rules, rule(dispatch), ...addressesInUse(inUse).map(policyOf)];
}

/** Before TO_SERVICES, because a packet that passes there twice must not count twice. */
function limitRules(options: SkeletonOptions, inUse: InUse): Rule[] {
  return ADDRESSES.filter(({ limited }) => inUse.has(limited)).map((roles) =>
    rule(...addressMatch(options, roles), listOf(roles, roles.limited), verdictOf(["meta priority"], SetName.limits)),
  );
}

/**
 * Rules of both DNAT hooks. They look up twice. Before Linux 6.17, a lookup during a commit may find neither the old nor the
 * new element of a replaced key. It still reads the old generation, while the old element is already unlinked. If a first
 * packet is not rewritten, its connection stays unrewritten for good. Microseconds later, the new generation is active. `dnat`
 * ends the evaluation, so only packets to no service pass here twice, and every step before it may be repeated. All kernels get
 * the same rules: stable releases have the fix too, so the version number does not show whether it is present.
 */
const TO_SERVICES: readonly Rule[] = [
  rule(jump(ChainName.services)),
  { ...rule(jump(ChainName.services)), comment: "again: before Linux 6.17 a lookup can miss what is being replaced" },
];

/**
 * externalTrafficPolicy Local: pods draw from the cluster list. The node does too, but masqueraded. All others draw from the
 * local list. A list without endpoints is in no map, so the next rule applies. Each rewritten packet is found in one of the two
 * lists, so these count it (connection-counts.ts).
 */
function localPolicyRules(options: SkeletonOptions, roles: AddressRoles): Rule[] {
  const fromPod = detectorMatch(options, false);
  const fromNode: Statement = { field: { field: "fib", of: ["saddr"], result: "type" }, value: "local" };
  const cluster = listOf(roles, roles.cluster);
  return [
    ...fromPod.map((match) => rule(match, cluster, dispatch)),
    rule(...detectorMatch(options, true), fromNode, cluster, markForMasquerade(options.masqueradeBit), dispatch),
    rule(listOf(roles, roles.local), dispatch),
  ];
}

/**
 * Answers a segment of a connection with a reset, for services that ask for it. The rule applies if the connection is no longer
 * tracked, because its endpoint is gone. The next endpoint's host might drop the unknown segment, and an ICMP error does not
 * end an established connection. The rule runs before DNAT, so the destination is still the service's address, and needs no
 * route.
 */
function resetRules(options: SkeletonOptions, inUse: InUse): Rule[] {
  return ADDRESSES.filter(({ resets }) => inUse.has(resets)).map((roles) =>
    resetTo(roles, ...addressMatch(options, roles)),
  );
}

function resetTo({ key, resets }: AddressRoles, ...to: readonly Statement[]): Rule {
  const notOpening: Statement = { field: "tcp flags", mask: "syn", value: 0 };
  return rule(stateNew, notOpening, ...to, { field: key, value: `@${SetName[resets]}` }, reset);
}

function postroutingRules(bit: number, inUse: InUse): Rule[] {
  const value = (1 << bit) >>> 0;
  const { mask: numbers, value: number } = ENDPOINT_NUMBERS;
  // A packet translated by an endpoint's number still has it as priority. An untranslated packet brought its priority with it.
  const numbered = rule({ field: "meta priority", mask: numbers, value: number }, isTranslated, resetPriority);
  return [
    ...(inUse.has("stickyDraws") ? [numbered] : []),
    // Other programs may use the bit in marks of their own, such as WireGuard's on packets of the tunnel.
    rule(
      { field: "meta mark", op: "!=", mask: value, value: 0 },
      isTranslated,
      { action: "set", field: "meta mark", value: { from: "meta mark", xor: value } },
      masquerade,
    ),
    rule(
      isTranslated,
      { field: ["saddr", "daddr", "meta l4proto", "th dport"], value: `@${SetName.hairpin}` },
      masquerade,
    ),
  ];
}

/** Rewrites to the endpoint with the packet's number. If the list lacks the number, the packet continues in the calling chain. */
function numberedRules(map: string): Rule[] {
  return (["tcp", "udp", "sctp"] as const).map((protocol) =>
    rule(
      { field: "meta l4proto", value: protocol },
      { action: "dnat", address: { key: ["meta priority"], map, data: "address-port" } },
    ),
  );
}

/** Declares the constant chains (again after an option changed), and the on-demand rules in use. */
export function declareSkeleton(table: TableDeclarations, options: SkeletonOptions, inUse: InUse): void {
  for (const spec of constantChains(options, inUse)) {
    // Omit chains without rules: the hook of a base chain alone costs time for every packet.
    if (spec.rules.length === 0) table.removeChain(spec.chain);
    else table.chain(spec);
  }
}

/** Chains that others jump to come first, because the target of a jump must exist. */
function constantChains(options: SkeletonOptions, inUse: InUse): ChainSpec[] {
  const localhost = localhostRules(options.family, options.localhost);
  const onDemand = (role: OnDemandRole, ...rules: readonly Rule[]): readonly Rule[] => (inUse.has(role) ? rules : []);
  const early = Priority.dstnat - 10;
  const firewall = onDemand("firewallIPs", rule(stateNew, verdictOf(OF_VIPS.key, SetName.firewallIPs)));
  const resets = resetRules(options, inUse);
  const localhostResets = onDemand("resetNodePorts", ...localhost.to.map((match) => resetTo(OF_NODE_PORTS, match)));
  const atPrerouting = options.rejectInPrerouting !== false ? [...firewall, ...resets] : firewall;
  const atOutput = [...firewall, ...resets, ...localhostResets];
  const noEndpointServices = onDemand("noEndpointServices", rule(verdictOf(OF_VIPS.key, SetName.noEndpointServices)));
  const noEndpoint = verdictOf(OF_NODE_PORTS.key, SetName.noEndpointNodePorts);
  const noEndpointNodePorts = onDemand(
    "noEndpointNodePorts",
    rule(...nodePortMatch(options, true), noEndpoint),
    ...localhost.to.map((match) => rule(match, noEndpoint)),
  );
  const counts = options.counters !== undefined && options.counters !== "off";
  const refusals = counts ? endpointRefusalRules(options.family) : [];
  const toRefusals = leadingTo({ chain: ChainName.endpointRefusals, rules: refusals }, toClient, goto);
  const checked = counts ? isUnanswered : stateNew;
  const nodeCheck = {
    chain: ChainName.nodeCheck,
    rules: [...toRefusals, ...noEndpointNodePorts, ...noEndpointServices],
  };
  const serviceCheck = {
    chain: ChainName.serviceCheck,
    rules: [...toRefusals, ...noEndpointServices, ...clusterIPRules(options)],
  };
  const aborts = onDemand("sctp", ...abortRules(options.counters));
  const toServices = [...limitRules(options, inUse), ...TO_SERVICES];
  const localhostNodePorts = { chain: ChainName.localhostNodePorts, rules: localhostNodePortRules(options, inUse) };
  const toNodePorts = localhost.to.flatMap((match) => leadingTo(localhostNodePorts, match));
  return [
    {
      chain: ChainName.reject,
      rules: [...refusalRules("no-endpoint", options.counters), rule(reject)],
      comment: "helper for @no-endpoint-services / @no-endpoint-nodeports",
    },
    { chain: ChainName.drop, rules: [...refusalRules("no-local-endpoint", options.counters), rule(drop)] },
    { chain: ChainName.sourceRangesDrop, rules: [...refusalRules("source-ranges", options.counters), rule(drop)] },
    { chain: ChainName.externalLocal, rules: localPolicyRules(options, OF_VIPS) },
    { chain: ChainName.nodePortLocal, rules: localPolicyRules(options, OF_NODE_PORTS) },
    { chain: ChainName.stickyCluster, rules: numberedRules(SetName.stickyCluster) },
    { chain: ChainName.stickyLocal, rules: numberedRules(SetName.stickyLocal) },
    { chain: ChainName.served, rules: servedRules(options, inUse) },
    { chain: ChainName.services, rules: serviceRules(options, inUse) },
    filter(ChainName.filterPreroutingPreDnat, Hook.prerouting, early, [...localhost.martians, ...atPrerouting]),
    filter(ChainName.filterOutputPreDnat, Hook.output, early, [...localhost.following, ...atOutput]),
    { chain: ChainName.endpointRefusals, rules: refusals },
    nodeCheck,
    filter(ChainName.filterInput, Hook.input, Priority.filter, [...leadingTo(nodeCheck, checked), ...aborts]),
    serviceCheck,
    filter(ChainName.filterForward, Hook.forward, Priority.filter, [...leadingTo(serviceCheck, checked), ...aborts]),
    filter(ChainName.filterOutput, Hook.output, Priority.filter, [...leadingTo(serviceCheck, checked), ...aborts]),
    nat(ChainName.natPrerouting, Hook.prerouting, Priority.dstnat, toServices),
    filter(ChainName.localhostPrerouting, Hook.prerouting, Priority.dstnat + 10, localhost.routed),
    // After firewalls, because many drop packets that come to a loopback address from elsewhere.
    filter(ChainName.localhostInput, Hook.input, Priority.srcnat + 10, localhost.received),
    localhostNodePorts,
    nat(ChainName.natOutput, Hook.output, Priority.dstnat, [...toNodePorts, ...toServices]),
    nat(ChainName.natPostrouting, Hook.postrouting, Priority.srcnat, postroutingRules(options.masqueradeBit, inUse)),
  ];
}

/** Jumps or goes to the chain for matching packets, if the chain has rules. */
function leadingTo({ chain, rules }: ChainSpec, match: Statement, lead = jump): Rule[] {
  return rules.length === 0 ? [] : [rule(match, lead(chain))];
}

/**
 * Only for packets from this node: a packet to a loopback address that arrives from the network belongs to nobody. Masquerades,
 * whichever list is used.
 */
function localhostNodePortRules({ localhost, masqueradeBit }: SkeletonOptions, inUse: InUse): Rule[] {
  if (localhost === undefined || !inUse.has("nodePorts")) return [];
  const found = listOf(OF_NODE_PORTS, "nodePorts");
  const rules = [
    rule(found, markForMasquerade(masqueradeBit), sourceForRouting(localhost), dispatch),
    policyOf(OF_NODE_PORTS),
  ];
  // Twice, for the same reason as TO_SERVICES.
  return [...rules, ...rules];
}

/**
 * Rejects or drops packets to ClusterIPs and ports that no service has. A translated packet goes to an endpoint, whose address
 * may itself be a service's. Then it is rejected, as with kube-proxy. If the address is outside the network of the ClusterIPs,
 * no lookup is needed.
 */
function clusterIPRules({ serviceCIDR }: SkeletonOptions): Rule[] {
  const notInCIDR: Statement[] = serviceCIDR === undefined ? [] : [{ field: "daddr", op: "!=", value: serviceCIDR }];
  return [
    ...notInCIDR.map((match) => rule(isTranslated, match, { action: "verdict", verdict: "return" })),
    { ...rule(toClusterIP, reject), comment: "Reject traffic to invalid ports of ClusterIPs" },
    {
      ...rule({ field: "daddr", value: `@${SetName.serviceCIDRs}` }, drop),
      comment: "Drop traffic to unallocated ClusterIPs",
    },
  ];
}
