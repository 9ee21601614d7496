/**
 * Derives why a rule of this program's own table refused a packet: from the set that the rule looks up, or from its
 * chain. Pure.
 */
import type { Expr, TraceEvent } from "../../nft/kernel/kernel.js";
import { ChainName, SetName, TABLE_NAME } from "../../ruleset/names.js";

/** Texts of the reasons. */
export const REASONS = {
  "no-ready-endpoint": "the service has no ready endpoint",
  "no-such-port": "no service has this port and protocol at this address",
  "no-such-service": "no service has this address, which is inside a ServiceCIDR",
  "traffic-policy-local": "the traffic policy is Local, and this node has no ready endpoint",
  "source-ranges": "the source is not in loadBalancerSourceRanges",
  "over-limit": "the service or the client is over its connection limit",
  "endpoint-gone": "the connection's endpoint was removed",
  "forged-loopback-address": "a packet from outside has a loopback address",
} as const;

/** Part of the command's JSON. Values may be added, but none may change or be removed. */
export type DropReason = keyof typeof REASONS;

/** Sets looked up by rules that drop or reject, or that lead to a chain which does. */
const BY_SET: ReadonlyMap<string, DropReason> = new Map([
  [SetName.clusterIPs, "no-such-port"],
  [SetName.serviceCIDRs, "no-such-service"],
  [SetName.resetServices, "endpoint-gone"],
  [SetName.resetNodePorts, "endpoint-gone"],
]);

/**
 * Returns undefined for rules of other tables. Also returns undefined if the rule is gone (`exprs` undefined) and its
 * chain does not show the reason.
 */
export function reasonOf(
  { family, table, chain }: TraceEvent,
  exprs: readonly Expr[] | undefined,
): DropReason | undefined {
  if (table !== TABLE_NAME || (family !== "ip" && family !== "ip6")) return undefined;
  if (chain === ChainName.reject) return "no-ready-endpoint";
  if (chain === ChainName.drop) return "traffic-policy-local";
  if (chain.startsWith("source-ranges-")) return "source-ranges";
  if (chain.startsWith("over-limit-")) return "over-limit";
  for (const expr of exprs ?? []) {
    const reason = expr.type === "lookup" ? BY_SET.get(expr.set) : undefined;
    if (reason !== undefined) return reason;
  }
  return chain === ChainName.filterPreroutingPreDnat && exprs !== undefined ? "forged-loopback-address" : undefined;
}
