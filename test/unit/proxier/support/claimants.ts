/**
 * Which service owns which address and port, and who may reach it, derived straight from the objects: a second
 * implementation of the rule.
 */
import type { V1EndpointSlice, V1Service } from "@kubernetes/client-node";

import { type IpFamily, parseCIDR, prefixContains } from "../../../../src/base/ip.js";
import type { ServicePortView } from "../../../../src/model/service-port-view.js";
import type { ApiObject } from "../../../support/decoded.js";

const OF_FAMILY = { ip: "IPv4", ip6: "IPv6" } as const;

/** One service that claims something. */
interface Claimant {
  readonly service: string;
  readonly created: number;
  readonly usable: boolean;
  /** Source ranges that guard the claim; undefined if there are none. */
  readonly ranges: readonly string[] | undefined;
}

export class Claimants {
  /** By "address PROTOCOL port" (the address is "" for a node port), in order of precedence. */
  readonly #claims = new Map<string, readonly Claimant[]>();

  constructor(objects: Iterable<ApiObject>, family: IpFamily) {
    const all = [...objects];
    const slices = all.flatMap(({ kind, object }) => (kind === "EndpointSlice" ? [object] : []));
    for (const { kind, object } of all) if (kind === "Service") this.#addService(object, slices, family);
  }

  /** Claim → service. */
  get holders(): Record<string, string> {
    const found = Array.from(this.#claims, ([claim, list]) => [
      claim,
      (list.find((one) => one.usable) ?? list[0])?.service,
    ]);
    return Object.fromEntries(found) as Record<string, string>;
  }

  /** Whether source ranges keep `source` from an address. */
  guarded(address: string, protocol: string, port: number, source: string): boolean {
    const list = this.#claims.get(`${address} ${protocol} ${port}`) ?? [];
    return list.some(({ ranges }) => ranges !== undefined && !ranges.some((range) => contains(range, source)));
  }

  #addService(service: V1Service, slices: readonly V1EndpointSlice[], family: IpFamily): void {
    const { metadata, spec, status } = service;
    const name = `${metadata?.namespace}/${metadata?.name}`;
    const clusterIP = spec?.clusterIPs?.[spec.ipFamilies?.indexOf(OF_FAMILY[family]) ?? -1];
    if (clusterIP === undefined) return;
    const ingress = status?.loadBalancer?.ingress ?? [];
    const balancer = ingress.flatMap(({ ip, ipMode }) => (ip === undefined || ipMode === "Proxy" ? [] : [ip]));
    const others = new Set(
      [...(spec?.externalIPs ?? []), ...balancer].filter((ip) => ip !== clusterIP && is(family, ip)),
    );
    const ranges = (spec?.loadBalancerSourceRanges ?? []).filter((range) => is(family, range));
    for (const { name: portName, protocol, port, nodePort } of spec?.ports ?? []) {
      const usable = isUsable(slices, metadata?.name ?? "", family, portName ?? "", protocol ?? "TCP");
      const created = new Date(metadata?.creationTimestamp ?? NaN).getTime();
      const claim = (address: string, number: number, guards: boolean): void =>
        this.#add(`${address} ${protocol} ${number}`, {
          service: name,
          created,
          usable,
          ranges: guards && ranges.length > 0 ? ranges : undefined,
        });
      for (const address of [clusterIP, ...others]) {
        claim(address, port, address !== clusterIP && balancer.includes(address));
      }
      if (nodePort !== undefined) claim("", nodePort, false);
    }
  }

  #add(claim: string, claimant: Claimant): void {
    const list = [...(this.#claims.get(claim) ?? []), claimant];
    list.sort((a, b) => a.created - b.created || (a.service < b.service ? -1 : 1));
    this.#claims.set(claim, list);
  }
}

/** Claim → service, as in the views; claims with two owners are named "both". */
export function servedBy(views: readonly ServicePortView[]): Record<string, string> {
  const found: Record<string, string> = {};
  for (const { service, protocol, port, nodePort, clusterIP, externalIPs, loadBalancerIPs } of views) {
    const own = clusterIP === undefined ? [] : [clusterIP];
    const claims = [...own, ...externalIPs, ...loadBalancerIPs].map((address) => `${address} ${protocol} ${port}`);
    if (nodePort !== 0) claims.push(` ${protocol} ${nodePort}`);
    for (const claim of claims) found[claim] = claim in found ? "both" : service;
  }
  return found;
}

function isUsable(
  slices: readonly V1EndpointSlice[],
  service: string,
  family: IpFamily,
  portName: string,
  protocol: string,
): boolean {
  const chosen = new Map<string, { rank: number; usable: boolean }>();
  const byName = slices.toSorted((a, b) => ((a.metadata?.name ?? "") < (b.metadata?.name ?? "") ? -1 : 1));
  for (const { metadata, addressType, ports, endpoints } of byName) {
    if (metadata?.labels?.["kubernetes.io/service-name"] !== service || addressType !== OF_FAMILY[family]) continue;
    for (const { port } of ports?.filter((one) => one.name === portName && one.protocol === protocol) ?? []) {
      for (const { addresses, conditions } of endpoints ?? []) {
        const { ready = true, serving = true, terminating = false } = conditions ?? {};
        const rank = (terminating ? 0 : 2) + (ready ? 1 : 0);
        const key = `${addresses[0]} ${port}`;
        const before = chosen.get(key);
        if (before === undefined || rank > before.rank)
          chosen.set(key, { rank, usable: ready || (serving && terminating) });
      }
    }
  }
  return [...chosen.values()].some(({ usable }) => usable);
}

function is(family: IpFamily, text: string): boolean {
  return text.includes(":") === (family === "ip6");
}

function contains(cidr: string, address: string): boolean {
  const prefix = parseCIDR(cidr);
  return prefix !== undefined && prefixContains(prefix, address);
}
