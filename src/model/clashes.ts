/** Reports claims that several services have. */
import type { Pieces } from "../base/time-slice.js";
import { type AddressKey, addressOf, addressText, NODE_PORT, type ServiceAddress } from "./service-address.js";
import type { Claims, Loss, Passed } from "./claims.js";
import type { FamilyRecord, ServiceRecord } from "../objects/records.js";
import type { IpFamily } from "../base/ip.js";
import type { Problem, SharedGuard, Transfer } from "./service-port-view.js";

const WHY_LOST: Readonly<Record<Loss["reason"], string>> = {
  first: "which was there first",
  name: "which comes first by name",
  endpoints: "which has a usable endpoint, unlike this service",
};

const WHY_PASSED: Readonly<Record<Passed["reason"], string>> = {
  withdrawn: "no longer claimed there",
  endpoints: "no usable endpoint there",
  first: "precedence",
};

/** The claims of each served family. */
export type FamilyClaims = readonly (readonly [IpFamily, Claims])[];

/** Claims that services have lost to others now. Only checks services that share a claim. */
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

/** Number of services or claims without a report that are checked in one piece. */
const PIECE = 64;

/** Reports claims that these services lost in the last round of changes and have not regained, one service after another. */
export function* nameLosses(
  claims: FamilyClaims,
  services: Iterable<{ readonly record: ServiceRecord | undefined }>,
  say: (problem: Problem) => void,
): Pieces<void> {
  let checked = 0;
  for (const { record } of services) {
    // Later changes belong to the next round.
    const losses = record === undefined ? [] : lossesOf(record, claims, "fresh");
    for (const problem of losses) say(problem);
    if (losses.length > 0 || ++checked % PIECE === 0) yield;
  }
}

/** Claims that may have passed between services, with their former holders, in a round of changes. */
export type PassedClaims = readonly (readonly [Claims, ReadonlyMap<AddressKey, string>])[];

/** Ends a round of changes in all families. Returns the claims that may have passed in it. */
export function endRound(claims: FamilyClaims): PassedClaims {
  return claims.map(([, ofFamily]) => [ofFamily, ofFamily.endRound()] as const);
}

/**
 * Claims of a service that another service has, by field. @param which "fresh" for only those lost in the last round of
 * changes.
 */
function lossesOf(record: ServiceRecord, claims: FamilyClaims, which: "all" | "fresh"): Problem[] {
  const lost = new Map<string, string[]>();
  for (const [family, ofFamily] of claims) {
    const addresses = record[family];
    if (addresses === undefined || !ofFamily.hasRivals(record.name)) continue;
    for (const { protocol, port, nodePort } of record.ports) {
      const note = (field: string, address: ServiceAddress): void => {
        const loss = ofFamily.loss(record, address);
        if (loss === undefined || (which === "fresh" && !loss.fresh)) return;
        const reason = `${addressText(address)} belongs to ${loss.holder}, ${WHY_LOST[loss.reason]}`;
        const reasons = lost.get(field);
        if (reasons === undefined) lost.set(field, [reason]);
        else reasons.push(reason);
      };
      const vip = (field: string, address: string): void => note(field, { family, address, protocol, port });
      vip("spec.clusterIP", addresses.clusterIP);
      for (const address of addresses.externalIPs) vip("spec.externalIPs", address);
      for (const address of addresses.loadBalancerIPs) vip("status.loadBalancer.ingress", address);
      if (nodePort !== 0) note("spec.ports[].nodePort", { family, address: NODE_PORT, protocol, port: nodePort });
    }
  }
  return Array.from(lost, ([field, reasons]) => {
    const more = reasons.length - MOST_NAMED;
    const reason = reasons.slice(0, MOST_NAMED).join("; ") + (more > 0 ? `; and ${more} more` : "");
    return { kind: "Service", object: record.name, field, reason };
  });
}

/**
 * Maximum number of claims to list per field. A service may have tens of thousands of ports, and each of its rows contains the
 * reason.
 */
const MOST_NAMED = 8;

/** Reports claims that passed between the same two services for the same reason together, one report after another. */
export function* nameTransfers(passed: PassedClaims, say: (transfer: Transfer) => void): Pieces<void> {
  const found = new Map<string, Transfer & { readonly claims: string[] }>();
  let checked = 0;
  for (const [ofFamily, holders] of passed) {
    for (const [claim, from] of holders) {
      if (++checked % PIECE === 0) yield;
      const { to, reason } = ofFamily.passed(claim, from) ?? {};
      if (to === undefined || reason === undefined) continue;
      const key = `${from} ${to} ${reason}`;
      let one = found.get(key);
      if (one === undefined) found.set(key, (one = { service: to, from, reason: WHY_PASSED[reason], claims: [] }));
      one.claims.push(addressText(addressOf(claim)));
    }
  }
  for (const transfer of found.values()) {
    say(transfer);
    yield;
  }
}

/** The addresses in `held` that source ranges of other services guard too. Nearly always undefined, because there are none. */
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
