/** What is said of claims that several services have. */
import { type Claims, type Loss, NODE_PORT, type Passed } from "./claims.js";
import type { FamilyRecord, ServiceRecord } from "./records.js";
import type { IpFamily, Problem, Protocol, SharedGuard, TakeOver } from "./types.js";

const FAMILY_NAMES: Readonly<Record<IpFamily, string>> = { ip: "IPv4", ip6: "IPv6" };

const WHY_LOST: Readonly<Record<Loss["reason"], string>> = {
  first: "which was there first",
  name: "which comes first by name",
  endpoints: "which has a usable endpoint, unlike this service",
};

const WHY_PASSED: Readonly<Record<Passed["reason"], string>> = {
  released: "no longer claimed there",
  endpoints: "no usable endpoint there",
  first: "precedence",
};

/** The claims of each family that is served. */
export type FamilyClaims = readonly (readonly [IpFamily, Claims])[];

/** What services claim and others have, at present: looks only at those that share a claim. */
export function* presentLosses(
  claims: FamilyClaims,
  recordOf: (service: string) => ServiceRecord | undefined,
): Generator<Problem> {
  const rivals = new Set(claims.flatMap(([, ofFamily]) => [...ofFamily.rivals()]));
  for (const name of rivals) {
    const record = recordOf(name);
    if (record !== undefined) yield* lossesOf(record, claims, "all");
  }
}

/** What of these services was lost since the claims were last settled. */
export function* freshLosses(
  claims: FamilyClaims,
  services: Iterable<{ readonly record: ServiceRecord | undefined }>,
): Generator<Problem> {
  if (!claims.some(([, ofFamily]) => ofFamily.contested)) return;
  for (const { record } of services) if (record !== undefined) yield* lossesOf(record, claims, "fresh");
}

/** Settles the claims: what passed between two services since they were last settled, for one reason together. */
export function settle(claims: FamilyClaims): TakeOver[] {
  return takeOvers(claims.flatMap(([family, ofFamily]) => ofFamily.settle().map((one) => [family, one] as const)));
}

/** By field, what a service claims and another has; "fresh": only since the claims were last settled. */
function lossesOf(record: ServiceRecord, claims: FamilyClaims, which: "all" | "fresh"): Problem[] {
  const lost = new Map<string, string>();
  for (const [family, ofFamily] of claims) {
    const addresses = record[family];
    if (addresses === undefined || !ofFamily.hasRivals(record.name)) continue;
    for (const { protocol, port, nodePort } of record.ports) {
      const note = (field: string, address: string, number: number, what: () => string): void => {
        const loss = ofFamily.loss(record, address, protocol, number);
        if (loss === undefined || (which === "fresh" && !loss.fresh)) return;
        const reason = `${what()} belongs to ${loss.holder}, ${WHY_LOST[loss.reason]}`;
        lost.set(field, lost.has(field) ? `${lost.get(field)}; ${reason}` : reason);
      };
      const vip = (field: string, address: string): void =>
        note(field, address, port, () => `${address} port ${port}/${protocol}`);
      vip("spec.clusterIP", addresses.clusterIP);
      for (const address of addresses.externalIPs) vip("spec.externalIPs", address);
      for (const address of addresses.loadBalancerIPs) vip("status.loadBalancer.ingress", address);
      if (nodePort !== 0) {
        const what = (): string => `${FAMILY_NAMES[family]} node port ${nodePort}/${protocol}`;
        note("spec.ports[].nodePort", NODE_PORT, nodePort, what);
      }
    }
  }
  return Array.from(lost, ([field, reason]) => ({ kind: "Service", object: record.name, field, reason }));
}

function takeOvers(passed: readonly (readonly [IpFamily, Passed])[]): TakeOver[] {
  const found = new Map<string, { service: string; from: string; reason: string; claims: string[] }>();
  for (const [family, { from, to, reason, ...claim }] of passed) {
    const key = `${from} ${to} ${reason}`;
    let one = found.get(key);
    if (one === undefined) found.set(key, (one = { service: to, from, reason: WHY_PASSED[reason], claims: [] }));
    one.claims.push(describeClaim(family, claim));
  }
  return [...found.values()];
}

/** "192.0.2.1:80/TCP", "IPv4 node port 30080/TCP". */
function describeClaim(
  family: IpFamily,
  { address, protocol, port }: { address: string; protocol: Protocol; port: number },
): string {
  if (address === NODE_PORT) return `${FAMILY_NAMES[family]} node port ${port}/${protocol}`;
  return `${address.includes(":") ? `[${address}]` : address}:${port}/${protocol}`;
}

/** The addresses among `held` that the source ranges of other services guard too; undefined: none, as nearly always. */
export function guardsOf(
  held: readonly string[],
  othersOf: (address: string) => readonly FamilyRecord[],
): readonly SharedGuard[] | undefined {
  const guards = held.flatMap((address) => {
    const sources = othersOf(address).flatMap(({ sourceRanges, loadBalancerIPs }) =>
      sourceRanges !== undefined && loadBalancerIPs.includes(address) ? [{ sourceRanges, loadBalancerIPs }] : [],
    );
    return sources.length === 0 ? [] : [{ address, sources }];
  });
  return guards.length === 0 ? undefined : guards;
}
