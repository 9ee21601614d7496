import { IpProto, protocolNumber } from "../../base/protocols.js";

/**
 * Names of the protocols' states as the kernel prints them, by number. Sources: net/netfilter/nf_conntrack_proto_tcp.c
 * (tcp_conntrack_names), nf_conntrack_proto_sctp.c (sctp_conntrack_names), nf_conntrack_proto_dccp.c (dccp_state_names;
 * Linux before 6.16 alone).
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

/** Protocols whose tuples have ports; GRE has its keys there. */
export const WITH_PORTS: ReadonlySet<number> = new Set(
  ["tcp", "udp", "dccp", "gre", "sctp", "udplite"].map(protocolNumber),
);

/** The state's name; `#11` for a number that has none yet. */
export function stateName(protocol: number, state: number): string {
  return STATES.get(protocol)?.[state] ?? `#${state}`;
}
