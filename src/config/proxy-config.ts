/** The configuration as the program uses it. */
import { parseCIDR } from "../base/ip.js";
import { Invalid } from "./config-fields.js";
import type { Effective } from "./defaults.js";
import { formatEndpoint } from "./document.js";
import { ALLOW_SERVICE_EXTERNAL_IPS, LOCALHOST_NODE_PORTS } from "./notes.js";
import { parseClusterCIDR } from "./values.js";

/** A KubeProxyConfiguration: parsed, checked, with defaults, frozen. Durations are in milliseconds. */
export type ProxyConfig = ReturnType<typeof toConfig>;

/** @param master URL of the API server, which overrides the kubeconfig's; "": none. */
export function toConfig(effective: Effective, master: string) {
  const { featureGates, healthz, metrics, clusterCIDR, ipvs, ...same } = effective;
  const pods = parseClusterCIDR(clusterCIDR);
  return frozen({
    ...same,
    master,
    allowExternalIPs: featureGates[ALLOW_SERVICE_EXTERNAL_IPS] ?? true,
    /** "IP:port", with an IPv6 address in brackets; "": off. */
    healthzBindAddress: formatEndpoint(healthz),
    /** Like healthzBindAddress. */
    metricsBindAddress: formatEndpoint(metrics),
    /** Canonical CIDRs of clusterCIDR, at most one of each family; empty: none. */
    clusterCIDRs: pods instanceof Invalid ? [] : pods,
    /** Serve the loopback addresses in nodePortAddresses. */
    localhostNodePorts: featureGates[LOCALHOST_NODE_PORTS] ?? true,
    /** Virtual servers of kube-proxy's IPVS mode to keep: canonical CIDRs; invalid ones are ignored. */
    ipvs: { excludeCIDRs: (ipvs.excludeCIDRs ?? []).flatMap((text) => parseCIDR(text)?.text ?? []) },
  });
}

/** Freezes the value recursively. */
function frozen<T>(value: T): T {
  if (typeof value !== "object" || value === null) return value;
  Object.values(value).forEach(frozen);
  return Object.freeze(value);
}
