import { IpProto, protocolNumber } from "../../base/protocols.js";

/**
 * The kernel's names of the protocols' states, by number. Sources: net/netfilter/nf_conntrack_proto_tcp.c
 * (tcp_conntrack_names), nf_conntrack_proto_sctp.c (sctp_conntrack_names), nf_conntrack_proto_dccp.c (dccp_state_names;
 * only before Linux 6.16).
 */
export const STATES: ReadonlyMap<number, readonly string[]> = new Map([
  [
    IpProto.tcp,
    [
      "NONE",
      "SYN_SENT",
      "SYN_RECV",
      "ESTABLISHED",
      "FIN_WAIT",
      "CLOSE_WAIT",
      "LAST_ACK",
      "TIME_WAIT",
      "CLOSE",
      "SYN_SENT2",
    ],
  ],
  [
    IpProto.sctp,
    [
      "NONE",
      "CLOSED",
      "COOKIE_WAIT",
      "COOKIE_ECHOED",
      "ESTABLISHED",
      "SHUTDOWN_SENT",
      "SHUTDOWN_RECD",
      "SHUTDOWN_ACK_SENT",
      "HEARTBEAT_SENT",
      "HEARTBEAT_ACKED",
    ],
  ],
  [
    protocolNumber("dccp"),
    ["NONE", "REQUEST", "RESPOND", "PARTOPEN", "OPEN", "CLOSEREQ", "CLOSING", "TIMEWAIT", "IGNORE", "INVALID"],
  ],
]);

/** Protocols whose tuples have ports. GRE has its keys in their place. */
export const WITH_PORTS: ReadonlySet<number> = new Set(
  ["tcp", "udp", "dccp", "gre", "sctp", "udplite"].map(protocolNumber),
);

/** Returns the state's name, or `#11` for a number without a known name. */
export function stateName(protocol: number, state: number): string {
  return STATES.get(protocol)?.[state] ?? `#${state}`;
}
