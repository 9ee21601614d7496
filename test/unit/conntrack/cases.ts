/**
 * The table of cases: entries of every kind to services and endpoints of every kind (setup.ts), with the expected treatment of each. Used
 * for the decision alone (decide.test.ts), and on the kernel (test/packets/conntrack-stale-entries.test.ts).
 */
import type { DeleteReason, KeepReason } from "../../../src/conntrack/reconcile/stale-entries.js";
import type { NewConntrackEntry } from "../../../src/conntrack/table/conntrack-table.js";
import type { IpFamily } from "../../../src/base/ip.js";
import { inFamily } from "./setup.js";

export type Reason = KeepReason | DeleteReason;

const NUMBER = { TCP: 6, UDP: 17, SCTP: 132, ICMP: 1 } as const;

const CLIENT = "198.51.100.7";

export interface Case {
  readonly name: string;
  readonly protocol?: keyof typeof NUMBER;
  /** Original destination. */
  readonly to: readonly [address: string, port: number];
  /** Reply source; absent if not translated. */
  readonly from?: readonly [address: string, port: number];
  /** Reply destination; absent for the client. */
  readonly replyTo?: string;
  readonly state?: string;
  readonly zone?: number;
  readonly expect: Reason;
}

const A = ["10.1.0.1", 5353] as const;

export const CASES: readonly Case[] = [
  { name: "to a serving endpoint, through the cluster IP", to: ["10.0.0.10", 53], from: A, expect: "endpoint-serves" },
  { name: "through the external IP", to: ["192.0.2.100", 53], from: A, expect: "endpoint-serves" },
  { name: "through the load-balancer IP", to: ["203.0.113.1", 53], from: A, expect: "endpoint-serves" },
  { name: "through the node port", to: ["192.0.2.10", 30053], from: A, expect: "endpoint-serves" },
  { name: "masqueraded", to: ["10.0.0.10", 53], from: A, replyTo: "192.0.2.10", expect: "endpoint-serves" },
  {
    name: "to a terminating endpoint that serves",
    to: ["10.0.0.10", 53],
    from: ["10.1.0.2", 5353],
    expect: "endpoint-serves",
  },
  {
    name: "to an endpoint that is published although not ready",
    to: ["10.0.0.10", 53],
    from: ["10.1.0.4", 5353],
    expect: "endpoint-serves",
  },
  {
    name: "to an endpoint that policy and hints skip",
    to: ["203.0.113.1", 53],
    from: ["10.1.0.5", 5353],
    expect: "endpoint-serves",
  },
  {
    name: "to an endpoint that no longer serves",
    to: ["10.0.0.10", 53],
    from: ["10.1.0.3", 5353],
    expect: "endpoint-gone",
  },
  ...(
    [
      ["cluster IP", ["10.0.0.10", 53]],
      ["external IP", ["192.0.2.100", 53]],
      ["load-balancer IP", ["203.0.113.1", 53]],
      ["node port", ["192.0.2.10", 30053]],
      ["node port at the second address", ["192.0.2.11", 30053]],
    ] as const
  ).map(([way, to]): Case => ({
    name: `to a removed endpoint, through the ${way}`,
    to,
    from: ["10.1.9.9", 5353],
    expect: "endpoint-gone",
  })),
  {
    name: "masqueraded, to a removed endpoint",
    to: ["10.0.0.10", 53],
    from: ["10.1.9.8", 5353],
    replyTo: "192.0.2.10",
    expect: "endpoint-gone",
  },
  {
    name: "from a removed endpoint to itself",
    to: ["10.0.0.10", 53],
    from: [CLIENT, 5353],
    replyTo: "192.0.2.10",
    expect: "endpoint-gone",
  },
  {
    name: "to an endpoint's address at its former port",
    to: ["10.0.0.10", 53],
    from: ["10.1.0.1", 5300],
    expect: "endpoint-gone",
  },
  { name: "created before the service had rules", to: ["10.0.0.10", 53], expect: "not-translated" },
  {
    name: "to a node port's number on another machine",
    to: ["192.0.2.77", 30053],
    expect: "other-machine",
  },
  {
    name: "SCTP, to a serving endpoint",
    protocol: "SCTP",
    to: ["10.0.0.10", 53],
    from: A,
    expect: "endpoint-serves",
  },
  {
    name: "SCTP, to a removed endpoint",
    protocol: "SCTP",
    to: ["10.0.0.10", 53],
    from: ["10.1.9.9", 5353],
    expect: "endpoint-gone",
  },
  {
    name: "SCTP, through the node port",
    protocol: "SCTP",
    to: ["192.0.2.10", 30053],
    from: ["10.1.9.9", 5353],
    expect: "endpoint-gone",
  },
  {
    name: "TCP, to a removed endpoint",
    protocol: "TCP",
    state: "ESTABLISHED",
    to: ["10.0.0.10", 53],
    from: ["10.1.9.9", 5353],
    expect: "tcp-no-reset",
  },
  {
    name: "to a port of the VIP that no service has",
    to: ["10.0.0.10", 54],
    from: ["10.1.9.9", 5353],
    expect: "not-ours",
  },
  { name: "to an address that no service has", to: ["8.8.8.8", 53], expect: "not-ours" },
  { name: "translated by another process", to: ["192.0.2.10", 8053], from: A, expect: "not-ours" },
  { name: "directly to an endpoint", to: A, expect: "not-ours" },
  { name: "in a zone, translated", zone: 7, to: ["10.0.0.10", 53], from: ["10.1.9.9", 5353], expect: "endpoint-gone" },
  { name: "in a zone, not translated", zone: 7, to: ["10.0.0.10", 53], expect: "other-zone" },
  {
    name: "to a service that lost its last endpoint",
    to: ["10.0.0.20", 53],
    from: ["10.1.0.20", 5353],
    expect: "without-endpoints",
  },
  {
    name: "to a service whose endpoints all stopped serving",
    to: ["10.0.0.21", 53],
    from: ["10.1.0.21", 5353],
    expect: "without-endpoints",
  },
  {
    name: "to a deleted service",
    to: ["10.0.0.30", 53],
    from: ["10.1.0.30", 5353],
    expect: "service-deleted",
  },
  {
    name: "to a deleted service through its node port",
    to: ["192.0.2.10", 30030],
    from: ["10.1.0.30", 5353],
    expect: "service-deleted",
  },
  {
    name: "to a deleted service's node port number on another machine",
    to: ["192.0.2.78", 30030],
    from: ["10.1.0.30", 5353],
    expect: "other-machine",
  },
  {
    name: "to a deleted service's external IP, translated elsewhere by another process",
    to: ["192.0.2.130", 53],
    from: ["172.20.0.1", 53],
    expect: "former-not-our-endpoint",
  },
  {
    name: "to a deleted service's external IP, not translated",
    to: ["192.0.2.131", 53],
    expect: "former-not-translated",
  },
  {
    name: "TCP, to a deleted service that requested resets",
    protocol: "TCP",
    state: "ESTABLISHED",
    to: ["10.0.0.30", 80],
    from: ["10.1.0.30", 8080],
    expect: "tcp-no-reset",
  },
  {
    name: "to a former port of the service",
    to: ["10.0.0.31", 53],
    from: ["10.1.0.31", 5353],
    expect: "address-changed",
  },
  {
    name: "to a former external IP of the service",
    to: ["192.0.2.101", 54],
    from: ["10.1.0.31", 5353],
    expect: "address-changed",
  },
  {
    name: "to a former node port of the service",
    to: ["192.0.2.10", 30031],
    from: ["10.1.0.31", 5353],
    expect: "address-changed",
  },
  {
    name: "to the service's current port",
    to: ["10.0.0.31", 54],
    from: ["10.1.0.31", 5353],
    expect: "endpoint-serves",
  },
  {
    name: "to a VIP that only the replaced table had",
    to: ["10.0.0.50", 53],
    from: ["10.1.0.50", 5353],
    expect: "service-deleted",
  },
  {
    name: "to a VIP that now belongs to another service, which does not have the endpoint",
    to: ["192.0.2.140", 53],
    from: ["10.1.0.40", 5353],
    expect: "endpoint-gone",
  },
  {
    name: "TCP with resets requested, to a serving endpoint",
    protocol: "TCP",
    state: "ESTABLISHED",
    to: ["10.0.0.60", 80],
    from: ["10.1.0.60", 8080],
    expect: "tcp-endpoint-exists",
  },
  {
    name: "TCP with resets requested, to a terminating endpoint that no longer serves",
    protocol: "TCP",
    state: "ESTABLISHED",
    to: ["10.0.0.60", 80],
    from: ["10.1.0.61", 8080],
    expect: "tcp-endpoint-exists",
  },
  ...(["SYN_SENT", "ESTABLISHED", "FIN_WAIT", "CLOSE_WAIT"] as const).map((state, i): Case => ({
    name: `TCP with resets requested, in ${state}, to a removed endpoint`,
    protocol: "TCP",
    state,
    to: ["10.0.0.60", 80],
    from: ["10.1.9.9", 8080 + i],
    expect: "tcp-endpoint-gone",
  })),
  {
    name: "TCP with resets requested, already closed",
    protocol: "TCP",
    state: "TIME_WAIT",
    to: ["10.0.0.60", 80],
    from: ["10.1.9.8", 8080],
    expect: "tcp-over",
  },
  {
    name: "TCP with resets requested, through the node port, to a removed endpoint",
    protocol: "TCP",
    state: "ESTABLISHED",
    to: ["192.0.2.10", 30060],
    from: ["10.1.9.9", 8080],
    expect: "tcp-endpoint-gone",
  },
  {
    name: "TCP with resets requested, of a service without any endpoint",
    protocol: "TCP",
    state: "ESTABLISHED",
    to: ["10.0.0.62", 80],
    from: ["10.1.9.9", 8080],
    expect: "tcp-endpoint-gone",
  },
  {
    name: "TCP with resets requested, not translated",
    protocol: "TCP",
    state: "ESTABLISHED",
    to: ["10.0.0.60", 80],
    expect: "tcp-no-reset",
  },
];

/** The entry of a case; `n` determines its source port. */
export function entryOf(one: Case, family: IpFamily, n: number): NewConntrackEntry {
  const { protocol = "UDP", to, from = to, replyTo = CLIENT, state, zone } = one;
  const number = NUMBER[protocol];
  const sourcePort = 20_000 + n;
  return {
    family,
    original: {
      source: inFamily(family, CLIENT),
      destination: inFamily(family, to[0]),
      protocol: number,
      sourcePort,
      destinationPort: to[1],
    },
    reply: {
      source: inFamily(family, from[0]),
      destination: inFamily(family, replyTo),
      protocol: number,
      sourcePort: from[1],
      destinationPort: sourcePort,
    },
    timeout: 600,
    ...(state === undefined ? {} : { state }),
    ...(zone === undefined ? {} : { zone }),
  };
}
