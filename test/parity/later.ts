/**
 * Changes of kube-proxy on Linux after Kubernetes 1.36, and how this program treats them. Sources: the KEPs, merged pull requests with their release notes,
 * pkg/proxy/localnodeportproxy and a test of pkg/proxy/metrics at commits of July and August 2026.
 */
export interface LaterRow {
  readonly release: "1.37" | "1.38" | "1.40" | "1.43";
  readonly what: string;
  /** KEP or pull request. */
  readonly source: string;
  readonly here: string;
}

export const LATER: readonly LaterRow[] = [
  {
    release: "1.37",
    what: "`--nodeport-addresses`, `nodePortAddresses`: the words `localhost` (127.0.0.0/8, ::1/128) and `all` (0.0.0.0/0, ::/0), and `primary` beside other values",
    source: "KEP-6032, kubernetes#138427",
    here: "the same; in both programs, `all` and zero CIDRs do not include loopback",
  },
  {
    release: "1.37",
    what: "Gate `KubeProxyNFTablesLocalhostNodePorts` (alpha, off). Node ports are served on 127.0.0.1 and ::1, for TCP only. A relay in the process selects the endpoints",
    source: "KEP-6032, kubernetes#138427",
    here: "Rules serve TCP, UDP and SCTP, on the listed part of 127.0.0.0/8 and on ::1. The gate is not required, and `false` disables node ports there. Open connections continue when the program ends",
  },
  {
    release: "1.37",
    what: "On loopback, affinity `ClientIP` keeps one endpoint for the whole node. Policy Local uses only local endpoints, and refuses connections if there are none",
    source: "KEP-6032",
    here: "The same affinity, shared with the node's other connections. Policy Local uses all endpoints, as for the node's packets to any other node port, and as in the iptables mode",
  },
  {
    release: "1.37",
    what: "UDP and SCTP are rejected on loopback. If the gate is on and loopback is not listed, TCP is rejected too",
    source: "KEP-6032, kubernetes#138427",
    here: "They are served. If loopback is not listed, its packets are not touched",
  },
  {
    release: "1.37",
    what: "metrics `kubeproxy_nftables_localhost_nodeport_{listeners,listener_creation_failures_total,rejected_packets_total}`",
    source: "KEP-6032",
    here: "see the table above",
  },
  {
    release: "1.37",
    what: "gate `NFTablesNetlink` (beta, on): kube-proxy reads the kernel through netlink instead of `nft`",
    source: "kubernetes#137536",
    here: "nft-proxier always reads and writes through netlink. The gate is known, but has no effect",
  },
  {
    release: "1.37",
    what: "gate `KubeProxyIPVS` (deprecated, on), which is off by default from 1.40",
    source: "KEP-5495, kubernetes#139397",
    here: "`mode: ipvs` is accepted, with a warning, and the rules are nftables rules. The gate is known, but has no effect",
  },
  {
    release: "1.37",
    what: "kubeadm writes `mode: iptables` into the ConfigMap if no mode is given, in new clusters and at each upgrade",
    source: "kubernetes#139777",
    here: "accepted: it means the same as no mode, with a warning that lists the differences",
  },
  {
    release: "1.37",
    what: "a warning if `mode` is not set, because nftables will become the default",
    source: "KEP-5343",
    here: "the default is nftables; the log lists the differences from the iptables mode",
  },
  {
    release: "1.38",
    what: "node ports on loopback become beta (planned)",
    source: "enhancements#6032; not in the sources that were read",
    here: "available",
  },
  {
    release: "1.40",
    what: "nftables is the default mode; IPVS is off by default",
    source: "KEP-5343, KEP-5495",
    here: "nftables is already the default; `mode: ipvs` is accepted, with a warning",
  },
  { release: "1.43", what: "IPVS is removed", source: "KEP-5495", here: "`mode: ipvs` is accepted, with a warning" },
];
