/**
 * The objects that kubeadm 1.36 applies for kube-proxy. Source: kubernetes, cmd/kubeadm/app/phases/addons/proxy/manifests.go and
 * componentconfigs/kubeproxy.go.
 */
import type { V1DaemonSet } from "@kubernetes/client-node";
import { join } from "node:path";
import type { KubeObject } from "../../support/kustomize.ts";

/** The key config.conf of its ConfigMap. */
export const KUBEADM_CONFIG = `apiVersion: kubeproxy.config.k8s.io/v1alpha1
bindAddress: 0.0.0.0
bindAddressHardFail: false
clientConnection:
  acceptContentTypes: ""
  burst: 0
  contentType: ""
  kubeconfig: /var/lib/kube-proxy/kubeconfig.conf
  qps: 0
clusterCIDR: 10.244.0.0/16
configSyncPeriod: 0s
conntrack:
  maxPerCore: null
  min: null
  tcpBeLiberal: false
  tcpCloseWaitTimeout: null
  tcpEstablishedTimeout: null
  udpStreamTimeout: 0s
  udpTimeout: 0s
detectLocal:
  bridgeInterface: ""
  interfaceNamePrefix: ""
detectLocalMode: ""
enableProfiling: false
healthzBindAddress: ""
hostnameOverride: ""
iptables:
  localhostNodePorts: null
  masqueradeAll: false
  masqueradeBit: null
  minSyncPeriod: 0s
  syncPeriod: 0s
ipvs:
  excludeCIDRs: null
  minSyncPeriod: 0s
  scheduler: ""
  strictARP: false
  syncPeriod: 0s
  tcpFinTimeout: 0s
  tcpTimeout: 0s
  udpTimeout: 0s
kind: KubeProxyConfiguration
logging:
  flushFrequency: 0
  options:
    json:
      infoBufferSize: "0"
    text:
      infoBufferSize: "0"
  verbosity: 0
metricsBindAddress: ""
mode: ""
nftables:
  masqueradeAll: false
  masqueradeBit: null
  minSyncPeriod: 0s
  syncPeriod: 0s
nodePortAddresses: null
oomScoreAdj: null
portRange: ""
showHiddenMetricsForVersion: ""
winkernel:
  enableDSR: false
  forwardHealthCheckVip: false
  networkName: ""
  rootHnsEndpointName: ""
  sourceVip: ""`;

/** The same as kubeadm 1.37 writes it, in a new cluster and at an upgrade (kubernetes#139777). */
export const KUBEADM_137_CONFIG = KUBEADM_CONFIG.replace('mode: ""', "mode: iptables");

/** The other key of that ConfigMap. */
export const KUBEADM_KUBECONFIG_FILE = join(
  import.meta.dirname,
  "../objects/kubernetes/fixtures/kubeadm-kubeconfig.conf",
);

/** The DaemonSet, with the fields that start a pod. */
export const KUBEADM_DAEMON_SET: V1DaemonSet & KubeObject = {
  apiVersion: "apps/v1",
  kind: "DaemonSet",
  metadata: { name: "kube-proxy", namespace: "kube-system", labels: { "k8s-app": "kube-proxy" } },
  spec: {
    selector: { matchLabels: { "k8s-app": "kube-proxy" } },
    updateStrategy: { type: "RollingUpdate" },
    template: {
      metadata: { labels: { "k8s-app": "kube-proxy" } },
      spec: {
        hostNetwork: true,
        serviceAccountName: "kube-proxy",
        nodeSelector: { "kubernetes.io/os": "linux" },
        containers: [
          {
            name: "kube-proxy",
            command: [
              "/usr/local/bin/kube-proxy",
              "--config=/var/lib/kube-proxy/config.conf",
              "--hostname-override=$(NODE_NAME)",
            ],
            env: [{ name: "NODE_NAME", valueFrom: { fieldRef: { fieldPath: "spec.nodeName" } } }],
            securityContext: { privileged: true },
            volumeMounts: [
              { name: "kube-proxy", mountPath: "/var/lib/kube-proxy" },
              { name: "xtables-lock", mountPath: "/run/xtables.lock", readOnly: false },
              { name: "lib-modules", mountPath: "/lib/modules", readOnly: true },
            ],
          },
        ],
        volumes: [
          { name: "kube-proxy", configMap: { name: "kube-proxy" } },
          { name: "xtables-lock", hostPath: { path: "/run/xtables.lock", type: "FileOrCreate" } },
          { name: "lib-modules", hostPath: { path: "/lib/modules" } },
        ],
      },
    },
  },
};

/** The arguments of `/usr/local/bin/kube-proxy`; tests put the file elsewhere. */
export const kubeadmArguments = (file: string, nodeName: string): string[] => [
  `--config=${file}`,
  `--hostname-override=${nodeName}`,
];
