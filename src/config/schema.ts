/**
 * The fields of kubeproxy.config.k8s.io/v1alpha1, release 1.36, and their valid values (kubernetes
 * pkg/proxy/apis/config/validation). The types are in k8s.io/kube-proxy/config/v1alpha1/types.go and the k8s.io/component-base
 * types that it embeds. Fields of other modes or systems are checked only for their type. Objects are loose: an unlisted field
 * is a warning, not an error.
 */
import { z } from "zod";
import { closest } from "../base/closest.js";
import {
  address,
  boolean,
  count,
  duration,
  endpoint,
  flushFrequency,
  interfaceName,
  masqueradeBit,
  nodePortAddresses,
  oomScore,
  period,
  quantity,
  section,
  string,
  strings,
} from "./values.js";

export const API_VERSION = "kubeproxy.config.k8s.io/v1alpha1";
export const KIND = "KubeProxyConfiguration";

/** kube-proxy's modes on Linux. The files for all of them are read; the rules are always nftables rules. */
const MODES = ["nftables", "iptables", "ipvs"] as const;

const outputRouting = section({ splitStream: boolean.optional(), infoBufferSize: quantity.optional() });

const logging = section({
  format: z.literal(["", "text", "json"], "must be text or json").optional(),
  flushFrequency: flushFrequency.optional(),
  verbosity: count.optional(),
  vmodule: z
    .array(
      section({
        filePattern: string.regex(/^[^=,]+$/, 'must be a pattern without "=" and ","'),
        verbosity: count,
      }),
      "must be a list",
    )
    .optional(),
  options: section({ text: outputRouting.optional(), json: outputRouting.optional() }).optional(),
});

export const configSchema = z.looseObject({
  apiVersion: z.literal(API_VERSION, `must be ${API_VERSION}`),
  kind: z.literal(KIND, `must be ${KIND}`),
  featureGates: z.record(z.string(), boolean, "must be an object of true or false").optional(),
  clientConnection: section({
    kubeconfig: string.optional(),
    acceptContentTypes: string.optional(),
    contentType: string.optional(),
    qps: z.number("must be a number").optional(),
    burst: count.optional(),
  }).optional(),
  logging: logging.optional(),
  hostnameOverride: string.regex(/^$|\S/, "must not be blank").optional(),
  bindAddress: address.optional(),
  healthzBindAddress: endpoint(10_256).optional(),
  metricsBindAddress: endpoint(10_249).optional(),
  bindAddressHardFail: boolean.optional(),
  enableProfiling: boolean.optional(),
  showHiddenMetricsForVersion: string.regex(/^(\d+\.\d+)?$/, 'must be a version such as "1.35"').optional(),
  mode: z
    .literal(["", ...MODES], {
      error: ({ input }) => {
        const guess = typeof input === "string" ? closest(input, MODES) : undefined;
        const hint = guess === undefined ? "" : `: did you mean ${guess}?`;
        return `${JSON.stringify(input)} must be ${MODES.slice(0, -1).join(", ")} or ${MODES.at(-1)}${hint}`;
      },
    })
    .optional(),
  iptables: section({
    masqueradeBit: masqueradeBit.optional(),
    masqueradeAll: boolean.optional(),
    localhostNodePorts: boolean.optional(),
    syncPeriod: duration.optional(),
    minSyncPeriod: duration.optional(),
  }).optional(),
  ipvs: section({
    syncPeriod: duration.optional(),
    minSyncPeriod: duration.optional(),
    scheduler: string.optional(),
    excludeCIDRs: strings.optional(),
    strictARP: boolean.optional(),
    tcpTimeout: duration.optional(),
    tcpFinTimeout: duration.optional(),
    udpTimeout: duration.optional(),
  }).optional(),
  nftables: section({
    masqueradeBit: masqueradeBit.optional(),
    masqueradeAll: boolean.optional(),
    syncPeriod: period.optional(),
    minSyncPeriod: period.optional(),
  }).optional(),
  winkernel: section({
    networkName: string.optional(),
    sourceVip: string.optional(),
    enableDSR: boolean.optional(),
    rootHnsEndpointName: string.optional(),
    forwardHealthCheckVip: boolean.optional(),
  }).optional(),
  detectLocalMode: z
    .literal(
      ["", "ClusterCIDR", "NodeCIDR", "BridgeInterface", "InterfaceNamePrefix"],
      "must be ClusterCIDR, NodeCIDR, BridgeInterface or InterfaceNamePrefix",
    )
    .optional(),
  detectLocal: section({
    bridgeInterface: interfaceName.optional(),
    interfaceNamePrefix: interfaceName.optional(),
  }).optional(),
  /** Its valid values depend on detectLocalMode: see `parseClusterCIDR`. */
  clusterCIDR: string.optional(),
  nodePortAddresses: nodePortAddresses.optional(),
  oomScoreAdj: oomScore.optional(),
  conntrack: section({
    maxPerCore: count.optional(),
    min: count.optional(),
    tcpEstablishedTimeout: period.optional(),
    tcpCloseWaitTimeout: period.optional(),
    tcpBeLiberal: boolean.optional(),
    udpTimeout: period.optional(),
    udpStreamTimeout: period.optional(),
  }).optional(),
  configSyncPeriod: period.optional(),
  portRange: string.optional(),
  windowsRunAsService: boolean.optional(),
});

export type ConfigInput = z.output<typeof configSchema>;
