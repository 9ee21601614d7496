/** Describes the effect of a service's source ranges and annotations in their own terms. Also runs in the browser. */
import { counted } from "../../base/counted.js";
import {
  type BalanceStatus,
  type LimitsStatus,
  type ServicePortStatus,
  sourceRangesText,
} from "../../observe/status-report.js";

/** Returns the source ranges and each kind of active annotation, with its name. Most services have none. */
export function annotationTexts(service: ServicePortStatus): (readonly [name: string, text: string])[] {
  const { balance, limits, drainSeconds } = service;
  const ranges = sourceRangesText(service);
  return [
    ...(ranges === undefined ? [] : [["loadBalancerSourceRanges", ranges] as const]),
    ...(balance === undefined ? [] : [["balance", balanceText(balance)] as const]),
    ...(limits === undefined ? [] : [["limits", limitsText(limits)] as const]),
    ...(drainSeconds === undefined ? [] : [["drain-seconds", String(drainSeconds)] as const]),
  ];
}

/** Returns the active kinds, such as "consistent,weights,limits,drain", or "-" if there are none. */
export function annotationWords({ balance, limits, drainSeconds }: ServicePortStatus): string {
  const words = [
    ...(balance?.mode === "consistent" ? ["consistent"] : []),
    ...(balance?.weights === undefined ? [] : ["weights"]),
    ...(limits === undefined ? [] : ["limits"]),
    ...(drainSeconds === undefined ? [] : ["drain"]),
  ];
  return words.join() || "-";
}

function balanceText({ mode, key, slots, weights }: BalanceStatus): string {
  const parts = [key === undefined ? mode : `${mode} by ${key}`];
  if (slots > 0) parts.push(counted(slots, "slot"));
  if (weights !== undefined) {
    const zones = Object.entries(weights.zones).map(([zone, weight]) => `zone=${zone}:${weight}`);
    const addresses = Object.entries(weights.addresses).map(
      ([address, weight]) => `${address.includes(":") ? `[${address}]` : address}:${weight}`,
    );
    parts.push(`weights ${[...zones, ...addresses, "others:1"].join(" ")}`);
  }
  return parts.join(", ");
}

function limitsText({ maxConnections, open, maxConnectionsPerClient, ratePerClient, overLimit }: LimitsStatus): string {
  const parts: string[] = [];
  if (maxConnections !== undefined) {
    parts.push(`max-connections ${maxConnections}${open === undefined ? "" : ` (${open} open)`}`);
  }
  if (maxConnectionsPerClient !== undefined) parts.push(`max-connections-per-client ${maxConnectionsPerClient}`);
  if (ratePerClient !== undefined) {
    const { count, per, burst } = ratePerClient;
    parts.push(`rate-per-client ${count}/${per} burst ${burst}`);
  }
  return [...parts, `over-limit ${overLimit}`].join(", ");
}
