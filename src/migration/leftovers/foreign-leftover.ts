export interface ForeignLeftover {
  readonly kind: "iptables-legacy" | "ipvs";
  /** The finding: "ip nat: KUBE-SERVICES and 12 more chains". */
  readonly seen: string;
  /** Whether none of kube-proxy's objects was seen, because they cannot be read. */
  readonly isUncertain?: boolean;
  /** The command that removes it, for an operator. */
  readonly command: string;
}
