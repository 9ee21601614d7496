/** What a service port declares for itself, for the two rare things that constant rules cannot do: source ranges, and ClientIP affinity. */
import { parseCIDR, prefixContains } from "../base/ip.js";
import type { ServicePortView, SharedGuard } from "../model/types.js";
import type { Rule, TableDeclarations } from "../table/index.js";
import { affinityObjects } from "./affinity-chains.js";
import { ownComment, ownNames } from "./names.js";
import type { ServicePortState } from "./service.js";
import type { SkeletonOptions } from "./skeleton.js";
import { drop, rule } from "./statements.js";

export type OwnChainOptions = Pick<SkeletonOptions, "family" | "masqueradeBit" | "nodeIP">;

/** A chain or set of a service port's own; what is in it is not made unless it is declared. */
export interface OwnObject {
  readonly kind: "chain" | "set";
  readonly name: string;
  readonly declare: (table: TableDeclarations, options: OwnChainOptions) => void;
}

type Guard = SharedGuard["sources"][number];

const NONE: readonly OwnObject[] = Object.freeze([]);

/** The chains and sets that `state` needs for itself, those that others lead to first. Most service ports need none. */
export function ownObjects(state: ServicePortState): readonly OwnObject[] {
  const { sourceRanges, guards, affinitySeconds } = state.view;
  if (sourceRanges === undefined && guards === undefined && affinitySeconds === 0) return NONE;
  return [...firewalls(state.view), ...affinityObjects(state)];
}

/** Every claimant of an address lets packets in, or none gets through. */
function firewalls(view: ServicePortView): OwnObject[] {
  const { sourceRanges, loadBalancerIPs, guards = [] } = view;
  const names = ownNames(view);
  const own = sourceRanges === undefined || loadBalancerIPs.length === 0 ? [] : [{ sourceRanges, loadBalancerIPs }];
  const firewall = (chain: string, all: readonly Guard[]): OwnObject => ({
    kind: "chain",
    name: chain,
    declare: (table, { nodeIP }) =>
      table.chain({ chain, rules: all.map((guard) => firewallRule(guard, nodeIP)), ...ownComment(view) }),
  });
  const shared = guards.map(({ address, sources }) => {
    const mine = loadBalancerIPs.includes(address) ? own : [];
    return firewall(names.sharedFirewall(address), [...mine, ...sources]);
  });
  return own.length === 0 ? shared : [firewall(names.firewall, own), ...shared];
}

function firewallRule(guard: Guard, nodeIP: string | undefined): Rule {
  return rule({ match: "address", direction: "source", nets: sourceNets(guard, nodeIP), negate: true }, drop);
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
