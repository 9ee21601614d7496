/**
 * The active configuration in kube-proxy's format, for --write-config-to and /configz. Since 1.36, /configz serves the
 * versioned configuration under its group (k8s.io/component-base/configz rejects internal types).
 */
import { stringify } from "yaml";
import { withPort } from "../base/ip.js";
import type { Effective } from "./defaults.js";
import { formatDuration } from "./duration.js";
import type { Endpoint } from "./values.js";

/** A KubeProxyConfiguration (v1alpha1), every field with its active value. */
export type ConfigDocument = ReturnType<typeof toDocument>;

/** Loading the document yields the same configuration, unless a server is off: only a command line can express that. */
export function toDocument(effective: Effective) {
  const { healthz, metrics, featureGates, logging, windowsRunAsService, ...rest } = effective;
  const { nftables, iptables, ipvs, conntrack } = rest;
  return {
    ...rest,
    ...(Object.keys(featureGates).length > 0 && { featureGates }),
    logging: {
      ...(logging.format !== "" && { format: logging.format }),
      flushFrequency: formatDuration(logging.flushFrequency),
      verbosity: logging.verbosity,
      ...(logging.vmodule.length > 0 && { vmodule: logging.vmodule }),
      options: { text: routing(logging.options.text), json: routing(logging.options.json) },
    },
    healthzBindAddress: formatEndpoint(healthz),
    metricsBindAddress: formatEndpoint(metrics),
    nftables: { ...nftables, ...periods(nftables) },
    iptables: { ...iptables, ...periods(iptables) },
    ipvs: {
      ...ipvs,
      ...periods(ipvs),
      tcpTimeout: formatDuration(ipvs.tcpTimeout),
      tcpFinTimeout: formatDuration(ipvs.tcpFinTimeout),
      udpTimeout: formatDuration(ipvs.udpTimeout),
    },
    conntrack: {
      ...conntrack,
      tcpEstablishedTimeout: formatDuration(conntrack.tcpEstablishedTimeout),
      tcpCloseWaitTimeout: formatDuration(conntrack.tcpCloseWaitTimeout),
      udpTimeout: formatDuration(conntrack.udpTimeout),
      udpStreamTimeout: formatDuration(conntrack.udpStreamTimeout),
    },
    configSyncPeriod: formatDuration(rest.configSyncPeriod),
    ...(windowsRunAsService && { windowsRunAsService }),
  };
}

/** "IP:port", with an IPv6 address in brackets; "" for a server that is off. */
export function formatEndpoint(endpoint: Endpoint | undefined): string {
  return endpoint === undefined ? "" : withPort(endpoint.host, endpoint.port);
}

function periods({ syncPeriod, minSyncPeriod }: { readonly syncPeriod: number; readonly minSyncPeriod: number }) {
  return { syncPeriod: formatDuration(syncPeriod), minSyncPeriod: formatDuration(minSyncPeriod) };
}

function routing({ splitStream, infoBufferSize }: { readonly splitStream: boolean; readonly infoBufferSize: string }) {
  return { ...(splitStream && { splitStream }), infoBufferSize };
}

/**
 * Output of `--write-config-to`. The keys are sorted. Text that YAML 1.1 would read as another type is quoted, because
 * kube-proxy reads YAML 1.1.
 */
export function toYAML(document: ConfigDocument): string {
  return stringify(document, { version: "1.1", sortMapEntries: true, lineWidth: 0 });
}
