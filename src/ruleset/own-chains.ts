/** What a service port declares for itself, for the two rare things that constant rules cannot do: source ranges, and ClientIP affinity. */
import { parseCIDR, prefixContains } from "../base/ip.js";
import type { ServicePortView, SharedGuard } from "../model/types.js";
import type { ChainSpec, Rule, SetSpec, TableDeclarations } from "../table/index.js";
import { declareAffinity } from "./affinity-chains.js";
import { ownComment, type OwnNames, ownNames } from "./names.js";
import type { ServicePortState } from "./service.js";
import type { SkeletonOptions } from "./skeleton.js";

type OwnChainOptions = Pick<SkeletonOptions, "family" | "masqueradeBit" | "nodeIP">;

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
    objects.chain({ chain, rules: guards.map((guard) => firewallRule(guard, nodeIP)), ...ownComment(view) });
  };
  if (own.length > 0) declare(names.firewall, own);
  for (const { address, sources } of view.guards ?? []) {
    const mine = view.loadBalancerIPs.includes(address) ? own : [];
    declare(names.sharedFirewall(address), [...mine, ...sources]);
  }
}

export type OwnObjects = readonly { readonly kind: "chain" | "set"; readonly name: string }[];

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
  readonly made: OwnObjects[number][] = [];
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
