/**
 * The table of cases: entries of every kind to services and endpoints of every kind (setup.ts), with the expected treatment of each. Used
 * for the decision alone (stale-entries.test.ts), and on the kernel (test/packets/conntrack-stale-entries.test.ts).
 */
import type { DeleteReason, KeepReason } from "../../../src/conntrack/reconcile/stale-entries.js";
import type { NewConntrackEntry } from "../../../src/nft/conntrack/conntrack-table.js";
import type { IpFamily } from "../../../src/base/ip.js";
import { inFamily } from "./setup.js";

type Reason = KeepReason | DeleteReason;

export interface Case {
  readonly name: string;
  readonly expect: Reason;
  readonly protocol: number;
  /** Original destination, as address and port. */
  readonly to: string;
  /** Reply source, as address and port; the same as `to` if not translated. */
  readonly from: string;
  /** Reply destination; absent for the client. */
  readonly replyTo?: string;
  readonly state?: string;
  readonly zone?: number;
}

const CLIENT = "198.51.100.7";
const NODE = "192.0.2.10";
/** The service most cases use, its node port, and endpoints that serve it, or served it. */
const DNS = "10.0.0.10:53";
const DNS_NODE_PORT = `${NODE}:30053`;
const SERVES = "10.1.0.1:5353";
const REMOVED = "10.1.9.9:5353";
/** A service that requests resets. */
const RESETS = "10.0.0.60:80";

/** Without `from`, the connection was not translated. */
const udp = (name: string, expect: Reason, to: string, from = to): Case => ({ name, expect, protocol: 17, to, from });
const sctp = (name: string, expect: Reason, to: string, from: string): Case => ({
  ...udp(name, expect, to, from),
  protocol: 132,
});
const tcp = (name: string, expect: Reason, to: string, from = to): Case => ({
  ...udp(name, expect, to, from),
  protocol: 6,
  state: "ESTABLISHED",
});

export const CASES: readonly Case[] = [
  udp("to a serving endpoint, through the cluster IP", "endpoint-serves", DNS, SERVES),
  udp("through the external IP", "endpoint-serves", "192.0.2.100:53", SERVES),
  udp("through the load-balancer IP", "endpoint-serves", "203.0.113.1:53", SERVES),
  udp("through the node port", "endpoint-serves", DNS_NODE_PORT, SERVES),
  { ...udp("masqueraded", "endpoint-serves", DNS, SERVES), replyTo: NODE },
  udp("to a terminating endpoint that serves", "endpoint-serves", DNS, "10.1.0.2:5353"),
  udp("to an endpoint that is published although not ready", "endpoint-serves", DNS, "10.1.0.4:5353"),
  udp("to an endpoint that policy and hints skip", "endpoint-serves", "203.0.113.1:53", "10.1.0.5:5353"),
  udp("to an endpoint that no longer serves", "endpoint-gone", DNS, "10.1.0.3:5353"),
  udp("to a removed endpoint, through the cluster IP", "endpoint-gone", DNS, REMOVED),
  udp("to a removed endpoint, through the external IP", "endpoint-gone", "192.0.2.100:53", REMOVED),
  udp("to a removed endpoint, through the load-balancer IP", "endpoint-gone", "203.0.113.1:53", REMOVED),
  udp("to a removed endpoint, through the node port", "endpoint-gone", DNS_NODE_PORT, REMOVED),
  udp(
    "to a removed endpoint, through the node port at the second address",
    "endpoint-gone",
    "192.0.2.11:30053",
    REMOVED,
  ),
  { ...udp("masqueraded, to a removed endpoint", "endpoint-gone", DNS, "10.1.9.8:5353"), replyTo: NODE },
  { ...udp("from a removed endpoint to itself", "endpoint-gone", DNS, `${CLIENT}:5353`), replyTo: NODE },
  udp(
    "through the node port, to a removed endpoint at the node's own address",
    "endpoint-gone",
    DNS_NODE_PORT,
    `${NODE}:5353`,
  ),
  udp("to an endpoint's address at its former port", "endpoint-gone", DNS, "10.1.0.1:5300"),
  udp("created before the service had rules", "not-translated", DNS),
  udp("to a node port's number on another machine", "other-machine", "192.0.2.77:30053"),
  sctp("SCTP, to a serving endpoint", "endpoint-serves", DNS, SERVES),
  sctp("SCTP, to a removed endpoint", "endpoint-gone", DNS, REMOVED),
  sctp("SCTP, through the node port", "endpoint-gone", DNS_NODE_PORT, REMOVED),
  tcp("TCP, to a removed endpoint", "tcp-no-reset", DNS, REMOVED),
  udp("to a port of the VIP that no service has", "not-ours", "10.0.0.10:54", REMOVED),
  udp("to an address that no service has", "not-ours", "8.8.8.8:53"),
  udp("translated by another process", "not-ours", "192.0.2.10:8053", SERVES),
  udp("directly to an endpoint", "not-ours", SERVES),
  { ...udp("in a zone, translated", "endpoint-gone", DNS, REMOVED), zone: 7 },
  { ...udp("in a zone, not translated", "other-zone", DNS), zone: 7 },
  udp("to a service that lost its last endpoint", "without-endpoints", "10.0.0.20:53", "10.1.0.20:5353"),
  udp("to a service whose endpoints all stopped serving", "without-endpoints", "10.0.0.21:53", "10.1.0.21:5353"),
  udp("to a deleted service", "service-deleted", "10.0.0.30:53", "10.1.0.30:5353"),
  udp("to a deleted service through its node port", "service-deleted", "192.0.2.10:30030", "10.1.0.30:5353"),
  udp(
    "to a deleted service's node port number on another machine",
    "other-machine",
    "192.0.2.78:30030",
    "10.1.0.30:5353",
  ),
  udp(
    "to a deleted service's external IP, translated elsewhere by another process",
    "former-not-our-endpoint",
    "192.0.2.130:53",
    "172.20.0.1:53",
  ),
  udp("to a deleted service's external IP, not translated", "former-not-translated", "192.0.2.131:53"),
  tcp("TCP, to a deleted service that requested resets", "tcp-no-reset", "10.0.0.30:80", "10.1.0.30:8080"),
  udp("to a former port of the service", "address-changed", "10.0.0.31:53", "10.1.0.31:5353"),
  udp("to a former external IP of the service", "address-changed", "192.0.2.101:54", "10.1.0.31:5353"),
  udp("to a former node port of the service", "address-changed", "192.0.2.10:30031", "10.1.0.31:5353"),
  udp("to the service's current port", "endpoint-serves", "10.0.0.31:54", "10.1.0.31:5353"),
  udp("to a VIP that only the replaced table had", "service-deleted", "10.0.0.50:53", "10.1.0.50:5353"),
  udp(
    "to a VIP that now belongs to another service, which does not have the endpoint",
    "endpoint-gone",
    "192.0.2.140:53",
    "10.1.0.40:5353",
  ),
  tcp("TCP with resets requested, to a serving endpoint", "tcp-endpoint-exists", RESETS, "10.1.0.60:8080"),
  tcp(
    "TCP with resets requested, to a terminating endpoint that no longer serves",
    "tcp-endpoint-exists",
    RESETS,
    "10.1.0.61:8080",
  ),
  ...["SYN_SENT", "ESTABLISHED", "FIN_WAIT", "CLOSE_WAIT"].map((state, i) => ({
    ...tcp(
      `TCP with resets requested, in ${state}, to a removed endpoint`,
      "tcp-endpoint-gone",
      RESETS,
      `10.1.9.9:${8080 + i}`,
    ),
    state,
  })),
  { ...tcp("TCP with resets requested, already closed", "tcp-over", RESETS, "10.1.9.8:8080"), state: "TIME_WAIT" },
  tcp(
    "TCP with resets requested, through the node port, to a removed endpoint",
    "tcp-endpoint-gone",
    "192.0.2.10:30060",
    "10.1.9.9:8080",
  ),
  tcp(
    "TCP with resets requested, of a service without any endpoint",
    "tcp-endpoint-gone",
    "10.0.0.62:80",
    "10.1.9.9:8080",
  ),
  tcp("TCP with resets requested, not translated", "tcp-no-reset", RESETS),
];

/** The entry of a case; `n` determines its source port. */
export function entryOf(one: Case, family: IpFamily, n: number): NewConntrackEntry {
  const { protocol, to, from, replyTo = CLIENT, state, zone } = one;
  const [destination, destinationPort] = to.split(":");
  const [source, sourcePort] = from.split(":");
  const clientPort = 20_000 + n;
  return {
    family,
    original: {
      source: inFamily(family, CLIENT),
      destination: inFamily(family, destination),
      protocol,
      sourcePort: clientPort,
      destinationPort: Number(destinationPort),
    },
    reply: {
      source: inFamily(family, source),
      destination: inFamily(family, replyTo),
      protocol,
      sourcePort: Number(sourcePort),
      destinationPort: clientPort,
    },
    timeout: 600,
    ...(state === undefined ? {} : { state }),
    ...(zone === undefined ? {} : { zone }),
  };
}
