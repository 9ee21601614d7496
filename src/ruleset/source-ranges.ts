/** Chains that drop packets from outside a service's source ranges (loadBalancerSourceRanges). */
import { parseCIDR, prefixContains } from "../base/ip.js";
import type { ServicePortView, SharedGuard } from "../model/service-port-view.js";
import type { Rule } from "../nft/engine-exports.js";
import { ChainName, ownComment, ownNames } from "./names.js";
import type { OwnObject } from "./own-object.js";
import { goto, rule } from "./statements.js";

type Guard = SharedGuard["sources"][number];

const NONE: readonly never[] = Object.freeze([]);

/** The chains with the service port's source ranges. */
export function sourceRangeObjects(view: ServicePortView): readonly OwnObject[] {
  return firewallsOf(view).map(({ chain, sources }) => ({
    kind: "chain",
    name: chain,
    declare: (table, { nodeIP }) =>
      table.chain({ chain, rules: sources.map((guard) => firewallRule(guard, nodeIP)), ...ownComment(view) }),
  }));
}

/**
 * Chains that guard addresses, with these addresses and the source ranges that allow packets. If several services claim an
 * address, the ranges of all of them must allow a packet. So a shared address has a separate chain.
 */
export function firewallsOf(view: ServicePortView) {
  const { sourceRanges, loadBalancerIPs, guards = NONE } = view;
  if (sourceRanges === undefined && guards.length === 0) return NONE;
  const names = ownNames(view);
  const own: Guard[] = sourceRanges === undefined ? [] : [{ sourceRanges, loadBalancerIPs }];
  const shared = guards.map(({ address, sources }) => {
    const mine = loadBalancerIPs.includes(address) ? own : [];
    return { chain: names.sharedFirewall(address), addresses: [address], sources: [...mine, ...sources] };
  });
  if (own.length === 0 || loadBalancerIPs.length === 0) return shared;
  const addresses = loadBalancerIPs.filter((address) => !guards.some((guard) => guard.address === address));
  return [{ chain: names.firewall, addresses, sources: own }, ...shared];
}

function firewallRule(guard: Guard, nodeIP: string | undefined): Rule {
  const nets = sourceNets(guard, nodeIP);
  const refuse = goto(ChainName.sourceRangesDrop);
  return nets.length === 0 ? rule(refuse) : rule({ field: "saddr", op: "!=", value: nets }, refuse);
}

/**
 * Networks that may reach the load-balancer IPs. If a range contains the node's IP, the load-balancer IPs themselves are
 * allowed too. If the VIP is a local address, the node's own requests to it have the VIP as source.
 */
function sourceNets({ sourceRanges, loadBalancerIPs }: Guard, nodeIP: string | undefined): readonly string[] {
  if (nodeIP === undefined) return sourceRanges;
  const containsNode = sourceRanges.some((range) => {
    const prefix = parseCIDR(range);
    return prefix !== undefined && prefixContains(prefix, nodeIP);
  });
  return containsNode ? [...sourceRanges, ...loadBalancerIPs] : sourceRanges;
}
