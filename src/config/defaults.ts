/**
 * Defaults of kube-proxy 1.36, from pkg/proxy/apis/config/v1alpha1/defaults.go. The mode's are in cmd/kube-proxy/app/server_linux.go
 * (platformApplyDefaults), and the logging section's in component-base. Ours differ in four places:
 * - The mode is nftables. Settings of the mode that the file was written for are used if they mean the same here.
 * - nftables.minSyncPeriod is 0.
 * - An unset log format stays unset.
 * - Node ports answer on 127.0.0.0/8 if a file written for the iptables mode says so (takesLocalhostOver).
 */
import { familyOf } from "../base/ip.js";
import { API_VERSION, KIND, type ConfigInput } from "./schema.js";
import { asksForLocalhost, expandNodePortAddresses } from "./node-port-addresses.js";
import type { Endpoint } from "./values.js";

export const SYNC_PERIOD_MS = 30_000;
const MASQUERADE_BIT = 14;
const HEALTHZ_PORT = 10_256;
const METRICS_PORT = 10_249;
const IPV4_LOOPBACK = "127.0.0.0/8";

/** Servers disabled by the command line. */
export interface Off {
  readonly healthz?: boolean;
  readonly metrics?: boolean;
}

export type Effective = ReturnType<typeof withDefaults>;

/** The complete configuration. Durations are in milliseconds; an endpoint that is off is undefined. */
export function withDefaults(input: ConfigInput, off: Off = {}) {
  const bindAddress = input.bindAddress || "0.0.0.0";
  const [any, local] = familyOf(bindAddress) === "ip" ? ["0.0.0.0", "127.0.0.1"] : ["::", "::1"];
  const listen = (endpoint: Endpoint | undefined, host: string, port: number): Endpoint =>
    endpoint === undefined ? { host, port } : { host: endpoint.host || any, port: endpoint.port };
  return {
    apiVersion: API_VERSION,
    kind: KIND,
    featureGates: { ...input.featureGates },
    clientConnection: {
      kubeconfig: input.clientConnection?.kubeconfig ?? "",
      acceptContentTypes: input.clientConnection?.acceptContentTypes ?? "",
      contentType: input.clientConnection?.contentType || "application/vnd.kubernetes.protobuf",
      qps: input.clientConnection?.qps || 5,
      burst: input.clientConnection?.burst || 10,
    },
    logging: loggingDefaults(input.logging),
    hostnameOverride: (input.hostnameOverride ?? "").trim().toLowerCase(),
    bindAddress,
    healthz: off.healthz === true ? undefined : listen(input.healthzBindAddress, any, HEALTHZ_PORT),
    metrics: off.metrics === true ? undefined : listen(input.metricsBindAddress, local, METRICS_PORT),
    bindAddressHardFail: input.bindAddressHardFail ?? false,
    enableProfiling: input.enableProfiling ?? false,
    showHiddenMetricsForVersion: input.showHiddenMetricsForVersion ?? "",
    mode: "nftables",
    nftables: nftablesDefaults(input),
    ...othersDefaults(input),
    detectLocalMode: input.detectLocalMode || ("ClusterCIDR" as const),
    detectLocal: {
      bridgeInterface: input.detectLocal?.bridgeInterface ?? "",
      interfaceNamePrefix: input.detectLocal?.interfaceNamePrefix ?? "",
    },
    clusterCIDR: input.clusterCIDR ?? "",
    nodePortAddresses: nodePortAddressesOf(input),
    oomScoreAdj: input.oomScoreAdj ?? -999,
    conntrack: {
      maxPerCore: input.conntrack?.maxPerCore ?? 32_768,
      min: input.conntrack?.min ?? 131_072,
      tcpEstablishedTimeout: input.conntrack?.tcpEstablishedTimeout ?? 86_400_000,
      tcpCloseWaitTimeout: input.conntrack?.tcpCloseWaitTimeout ?? 3_600_000,
      tcpBeLiberal: input.conntrack?.tcpBeLiberal ?? false,
      udpTimeout: input.conntrack?.udpTimeout ?? 0,
      udpStreamTimeout: input.conntrack?.udpStreamTimeout ?? 0,
    },
    configSyncPeriod: input.configSyncPeriod || 900_000,
    portRange: input.portRange ?? "",
    windowsRunAsService: input.windowsRunAsService ?? false,
  };
}

/** The mode of kube-proxy for which the file was written. Without a word, that is iptables, as in kube-proxy before 1.40. */
export function writtenFor({ mode }: Pick<ConfigInput, "mode">): Exclude<ConfigInput["mode"], "" | undefined> {
  return mode || "iptables";
}

/**
 * Which sections have the settings that mean the same in each mode, the most important first. kube-proxy's IPVS mode uses
 * the `iptables` section for masquerading (pkg/proxy/apis/config/v1alpha1/conversion.go, createProxier in server_linux.go).
 */
export const SECTIONS = {
  nftables: { masquerade: ["nftables"], periods: ["nftables"] },
  iptables: { masquerade: ["nftables", "iptables"], periods: ["nftables", "iptables"] },
  ipvs: { masquerade: ["nftables", "iptables"], periods: ["nftables", "ipvs"] },
} as const;

/** In Go's configuration, a period of 0 and a false masqueradeAll are not set. */
function nftablesDefaults(input: ConfigInput) {
  const { masquerade, periods } = SECTIONS[writtenFor(input)];
  const period = (field: "syncPeriod" | "minSyncPeriod") => periods.map((name) => input[name]?.[field]).find(Boolean);
  return {
    masqueradeBit:
      masquerade.map((name) => input[name]?.masqueradeBit).find((bit) => bit !== undefined) ?? MASQUERADE_BIT,
    masqueradeAll: masquerade.some((name) => input[name]?.masqueradeAll),
    syncPeriod: period("syncPeriod") ?? SYNC_PERIOD_MS,
    minSyncPeriod: period("minSyncPeriod") ?? 0,
  };
}

function nodePortAddressesOf(input: ConfigInput): readonly string[] {
  const list = listedNodePortAddresses(input);
  return takesLocalhostOver(input) ? [...list, IPV4_LOOPBACK] : list;
}

function listedNodePortAddresses({ nodePortAddresses = [] }: ConfigInput): readonly string[] {
  return nodePortAddresses.length > 0 ? [...new Set(nodePortAddresses)] : ["primary"];
}

/**
 * Whether the configuration was written for kube-proxy's iptables mode with node ports on 127.0.0.1. (That mode only supports
 * this for IPv4.) This requires all of the following:
 * - The file explicitly says so.
 * - Its mode is iptables, or not set.
 * - `nodePortAddresses` contains loopback addresses, as it does in that mode by default.
 */
export function takesLocalhostOver(input: ConfigInput): boolean {
  if (writtenFor(input) !== "iptables" || input.iptables?.localhostNodePorts !== true) return false;
  const written = expandNodePortAddresses(input.nodePortAddresses ?? []);
  return (written.length === 0 || written.includes("0.0.0.0/0")) && !asksForLocalhost(written);
}

function loggingDefaults(input: ConfigInput["logging"]) {
  const routing = (format: "text" | "json") => ({
    splitStream: input?.options?.[format]?.splitStream ?? false,
    infoBufferSize: input?.options?.[format]?.infoBufferSize ?? "0",
  });
  return {
    format: input?.format ?? ("" as const),
    flushFrequency: input?.flushFrequency || 5000,
    verbosity: input?.verbosity ?? 0,
    vmodule: (input?.vmodule ?? []).map(({ filePattern, verbosity }) => ({ filePattern, verbosity })),
    options: { text: routing("text"), json: routing("json") },
  };
}

/** Settings of other modes and systems. */
function othersDefaults({ iptables, ipvs, winkernel }: ConfigInput) {
  return {
    iptables: {
      masqueradeBit: iptables?.masqueradeBit ?? MASQUERADE_BIT,
      masqueradeAll: iptables?.masqueradeAll ?? false,
      localhostNodePorts: iptables?.localhostNodePorts ?? true,
      syncPeriod: iptables?.syncPeriod || SYNC_PERIOD_MS,
      minSyncPeriod: iptables?.minSyncPeriod || 1000,
    },
    ipvs: {
      syncPeriod: ipvs?.syncPeriod || SYNC_PERIOD_MS,
      minSyncPeriod: ipvs?.minSyncPeriod ?? 0,
      scheduler: ipvs?.scheduler ?? "",
      excludeCIDRs: ipvs?.excludeCIDRs ?? null,
      strictARP: ipvs?.strictARP ?? false,
      tcpTimeout: ipvs?.tcpTimeout ?? 0,
      tcpFinTimeout: ipvs?.tcpFinTimeout ?? 0,
      udpTimeout: ipvs?.udpTimeout ?? 0,
    },
    winkernel: {
      networkName: winkernel?.networkName ?? "",
      sourceVip: winkernel?.sourceVip ?? "",
      enableDSR: winkernel?.enableDSR ?? false,
      rootHnsEndpointName: winkernel?.rootHnsEndpointName ?? "",
      forwardHealthCheckVip: winkernel?.forwardHealthCheckVip ?? false,
    },
  };
}
