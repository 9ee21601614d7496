/**
 * The fields of kubeproxy.config.k8s.io/v1alpha1, release 1.36, and their valid values (kubernetes
 * pkg/proxy/apis/config/validation). The types are in k8s.io/kube-proxy/config/v1alpha1/types.go and the k8s.io/component-base
 * types that it embeds. Fields of other modes or systems are checked only for their type.
 */
import { closest } from "../base/closest.js";
import { list, namedValues, required, section, type ValueOf } from "./config-fields.js";
import {
  address,
  boolean,
  count,
  duration,
  endpoint,
  flushFrequency,
  interfaceName,
  masqueradeBit,
  matching,
  nodePortAddresses,
  number,
  oomScore,
  period,
  quantity,
  string,
  word,
} from "./values.js";

export const API_VERSION = "kubeproxy.config.k8s.io/v1alpha1";
export const KIND = "KubeProxyConfiguration";

/** kube-proxy's modes on Linux. The files for all of them are read; the rules are always nftables rules. */
const MODES = ["nftables", "iptables", "ipvs"] as const;

const outputRouting = section({ splitStream: boolean, infoBufferSize: quantity });

const logging = section({
  format: word(["", "text", "json"], () => "must be text or json"),
  flushFrequency,
  verbosity: count,
  vmodule: list(
    section({
      filePattern: required(matching(/^[^=,]+$/, 'must be a pattern without "=" and ","')),
      verbosity: required(count),
    }),
  ),
  options: section({ text: outputRouting, json: outputRouting }),
});

export const configSchema = section(
  {
    apiVersion: required(word([API_VERSION], () => `must be ${API_VERSION}`)),
    kind: required(word([KIND], () => `must be ${KIND}`)),
    featureGates: namedValues(boolean, "must be an object of true or false"),
    clientConnection: section({
      kubeconfig: string,
      acceptContentTypes: string,
      contentType: string,
      qps: number,
      burst: count,
    }),
    logging,
    hostnameOverride: matching(/^$|\S/, "must not be blank"),
    bindAddress: address,
    healthzBindAddress: endpoint(10_256),
    metricsBindAddress: endpoint(10_249),
    bindAddressHardFail: boolean,
    enableProfiling: boolean,
    showHiddenMetricsForVersion: matching(/^(\d+\.\d+)?$/, 'must be a version such as "1.35"'),
    mode: word(["", ...MODES], (given) => {
      const guess = typeof given === "string" ? closest(given, MODES) : undefined;
      const hint = guess === undefined ? "" : `: did you mean ${guess}?`;
      return `${JSON.stringify(given)} must be ${MODES.slice(0, -1).join(", ")} or ${MODES.at(-1)}${hint}`;
    }),
    iptables: section({
      masqueradeBit,
      masqueradeAll: boolean,
      localhostNodePorts: boolean,
      syncPeriod: duration,
      minSyncPeriod: duration,
    }),
    ipvs: section({
      syncPeriod: duration,
      minSyncPeriod: duration,
      scheduler: string,
      excludeCIDRs: list(string),
      strictARP: boolean,
      tcpTimeout: duration,
      tcpFinTimeout: duration,
      udpTimeout: duration,
    }),
    nftables: section({
      masqueradeBit,
      masqueradeAll: boolean,
      syncPeriod: period,
      minSyncPeriod: period,
    }),
    winkernel: section({
      networkName: string,
      sourceVip: string,
      enableDSR: boolean,
      rootHnsEndpointName: string,
      forwardHealthCheckVip: boolean,
    }),
    detectLocalMode: word(
      ["", "ClusterCIDR", "NodeCIDR", "BridgeInterface", "InterfaceNamePrefix"],
      () => "must be ClusterCIDR, NodeCIDR, BridgeInterface or InterfaceNamePrefix",
    ),
    detectLocal: section({
      bridgeInterface: interfaceName,
      interfaceNamePrefix: interfaceName,
    }),
    /** Its valid values depend on detectLocalMode: see `parseClusterCIDR`. */
    clusterCIDR: string,
    nodePortAddresses,
    oomScoreAdj: oomScore,
    conntrack: section({
      maxPerCore: count,
      min: count,
      tcpEstablishedTimeout: period,
      tcpCloseWaitTimeout: period,
      tcpBeLiberal: boolean,
      udpTimeout: period,
      udpStreamTimeout: period,
    }),
    configSyncPeriod: period,
    portRange: string,
    windowsRunAsService: boolean,
  },
  `is not a ${KIND}`,
);

/** The fields as written, each in the form that the program uses. */
export type ConfigInput = ValueOf<typeof configSchema>;
