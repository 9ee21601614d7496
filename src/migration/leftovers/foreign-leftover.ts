export interface ForeignLeftover {
  readonly kind: "iptables-legacy" | "ipvs";
  /** What was seen: "ip nat: KUBE-SERVICES and 12 more chains". */
  readonly seen: string;
  /** The command that removes it, where this program does not. */
  readonly command: string;
}
