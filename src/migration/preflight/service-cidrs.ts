/**
 * Finds ServiceCIDRs that overlap networks of pods and nodes. These work in kube-proxy's older modes, but not with
 * nftables. Pure.
 */
import { type IpFamily, parseCIDR } from "../../base/ip.js";
import { endpointsInside } from "../../objects/endpoint-list.js";
import type { ServicePortView } from "../../model/service-port-view.js";
import { type Overlap, OVERLAP_EFFECT, OVERLAP_REMEDY } from "../../node/service-cidr-overlaps.js";
import { named, ok, problem, type Said } from "./finding.js";

interface ServiceCIDRFacts {
  readonly serviceCIDRs: readonly string[];
  readonly overlaps: readonly Overlap[];
  /** Views of each service, by family. */
  readonly views: ReadonlyMap<IpFamily, ReadonlyMap<string, readonly ServicePortView[]>>;
}

export function checkServiceCIDRs({ serviceCIDRs, overlaps, views }: ServiceCIDRFacts): Said[] {
  if (serviceCIDRs.length === 0) return [];
  const said: Said[] = overlaps.map(({ what }) => problem(`${what}: ${OVERLAP_EFFECT}`, OVERLAP_REMEDY));
  const services = servicesInside(serviceCIDRs, views);
  if (services.length > 0) {
    const what = `endpoints of ${named(services)} have addresses in a ServiceCIDR: ${OVERLAP_EFFECT}`;
    said.push(problem(what, OVERLAP_REMEDY));
  }
  const fine = `no pod network, address or route of this node is in a ServiceCIDR (${serviceCIDRs.join(", ")})`;
  return said.length > 0 ? said : [ok(fine)];
}

/** Returns "namespace/name" of services with an endpoint in a ServiceCIDR. */
function servicesInside(serviceCIDRs: readonly string[], views: ServiceCIDRFacts["views"]): string[] {
  const prefixes = serviceCIDRs.flatMap((text) => parseCIDR(text) ?? []);
  const names = new Set<string>();
  for (const services of views.values()) {
    for (const [name, ports] of services) {
      if (ports.some(({ clusterEndpoints }) => endpointsInside(clusterEndpoints, prefixes, 1).length > 0))
        names.add(name);
    }
  }
  return [...names].sort();
}
