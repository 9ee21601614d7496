import type { IpFamily } from "../../base/ip.js";
import { addressesOf, keyOf } from "../../model/service-address.js";
import type { ServicePortView } from "../../model/service-port-view.js";
import type { Refusal, Refusals } from "../../proxier/refusal-readings.js";
import type { RefusalReason } from "../../ruleset/refusals.js";
import type { PortRefusals } from "./listed-services.js";

/** Returns the refused connections of a service port, or undefined if none are known. */
export function refusalsOf(
  { addresses, endpoints, isFull }: Refusals,
  family: IpFamily,
  view: ServicePortView,
): PortRefusals | undefined {
  const refusals: Partial<Record<RefusalReason, number>> = {};
  const refusalAgesMs: Partial<Record<RefusalReason, number>> = {};
  const add = ({ reason, count, agoMs }: Refusal): void => {
    refusals[reason] = (refusals[reason] ?? 0) + count;
    refusalAgesMs[reason] = Math.min(refusalAgesMs[reason] ?? Infinity, agoMs);
  };
  for (const address of addresses.size === 0 ? [] : addressesOf(family, view)) {
    for (const refusal of addresses.get(keyOf(address)) ?? []) add(refusal);
  }
  const byEndpoint = new Map<string, number>();
  for (const list of endpoints.size === 0 ? [] : [view.clusterEndpoints, view.localEndpoints]) {
    for (const { address, port } of list) {
      const refusal = endpoints.get(keyOf({ family, address, port, protocol: view.protocol }));
      const key = `${address} ${port}`;
      if (refusal === undefined || byEndpoint.has(key)) continue;
      byEndpoint.set(key, refusal.count);
      add(refusal);
    }
  }
  const refusalsIncomplete = isFull || undefined;
  if (Object.keys(refusals).length > 0) return { byEndpoint, refusals, refusalAgesMs, refusalsIncomplete };
  return isFull ? { byEndpoint, refusalsIncomplete } : undefined;
}
