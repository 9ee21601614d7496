export interface ForeignLeftover {
  readonly kind: "iptables-legacy" | "ipvs";
  /** The finding: "ip nat: KUBE-SERVICES and 12 more chains". */
  readonly seen: string;
  /** The command that removes it, for an operator. */
  readonly command: string;
}
