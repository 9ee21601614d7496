/**
 * What Kubernetes brings to kube-proxy on Linux after 1.36, and what becomes of it here; as far as stored sources say: the KEPs, merged pull requests with
 * their release notes, pkg/proxy/localnodeportproxy and a test of pkg/proxy/metrics at commits of July and August 2026.
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
    what: "`--nodeport-addresses`, `nodePortAddresses`: the words `localhost` (127.0.0.0/8, ::1/128) and `all` (0.0.0.0/0, ::/0); `primary` beside others",
    source: "KEP-6032, kubernetes#138427",
    here: "the same; `all` and zero CIDRs do not ask for loopback, there and here",
  },
  {
    release: "1.37",
    what: "gate `KubeProxyNFTablesLocalhostNodePorts` (alpha, off): node ports on 127.0.0.1 and ::1, TCP alone, by a relay in the process that picks endpoints itself",
    source: "KEP-6032, kubernetes#138427",
    here: "by rules, TCP, UDP and SCTP, on all of 127.0.0.0/8 that is listed and on ::1; no gate is needed, one that is false forbids it; open connections outlive the program",
  },
  {
    release: "1.37",
    what: "on loopback: affinity `ClientIP` holds one endpoint for the whole node; policy Local draws from this node's endpoints alone, and refuses where there is none",
    source: "KEP-6032",
    here: "affinity the same, in one with the node's other connections; policy Local draws from all endpoints, as the node's own packets to any other node port do, and as in the iptables mode",
  },
  {
    release: "1.37",
    what: "on loopback UDP and SCTP are rejected; with the gate on and loopback not listed, TCP too",
    source: "KEP-6032, kubernetes#138427",
    here: "they are served; where loopback is not listed nothing is touched there",
  },
  {
    release: "1.37",
    what: "metrics `kubeproxy_nftables_localhost_nodeport_{listeners,listener_creation_failures_total,rejected_packets_total}`",
    source: "KEP-6032",
    here: "in the table above",
  },
  {
    release: "1.37",
    what: "gate `NFTablesNetlink` (beta, on): the kernel is read by netlink instead of `nft`",
    source: "kubernetes#137536",
    here: "read and written by netlink alone, always; the gate is known, and changes nothing",
  },
  {
    release: "1.37",
    what: "gate `KubeProxyIPVS` (deprecated, on), which is off by default from 1.40",
    source: "KEP-5495, kubernetes#139397",
    here: "the mode is refused with what to set; the gate is known, and changes nothing",
  },
  {
    release: "1.37",
    what: "a warning where `mode` is not set: nftables is to become the default",
    source: "KEP-5343",
    here: "not set means nftables; notes say what the iptables mode did otherwise",
  },
  {
    release: "1.38",
    what: "node ports on loopback are to be beta",
    source: "enhancements#6032, not done in what is stored",
    here: "there",
  },
  {
    release: "1.40",
    what: "nftables is the default mode; IPVS off",
    source: "KEP-5343, KEP-5495",
    here: "so it is here",
  },
  { release: "1.43", what: "IPVS is removed", source: "KEP-5495", here: "it is not here" },
];
