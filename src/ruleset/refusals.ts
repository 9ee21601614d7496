/**
 * Counts of connections that are refused or dropped, by address and reason. Packets fill one dynamic set, right before the verdict, so a served
 * connection pays nothing. An endpoint's own refusal is counted by the reset that it sends.
 */
import { unpackNumber, unpackServiceKey } from "./key-packer.js";
import type { IpFamily } from "../base/ip.js";
import type { ServiceAddress } from "../model/service-address.js";
import type { Field, Rule, Statement, TableDeclarations } from "../nft/engine-exports.js";
import type { ServiceCounters } from "./service-counters.js";

export const REFUSALS = "refusals";
/** The set of endpoints' ICMP errors. It is a set of its own, so that forged errors cannot fill the other one. */
export const ICMP_ERRORS = "icmp-errors";

/**
 * - no-endpoint: there is no endpoint on any node, so the connection was rejected.
 * - no-local-endpoint: a traffic policy is Local, and no endpoint is on this node.
 * - source-ranges: the client is not in the source ranges.
 * - limits: a limit of connections was reached.
 * - endpoint: the endpoint answered with a reset, with an abort of SCTP, or with the ICMP error that no program listens.
 */
export const REFUSAL_REASONS = ["no-endpoint", "no-local-endpoint", "source-ranges", "limits", "endpoint"] as const;
export type RefusalReason = (typeof REFUSAL_REASONS)[number];

/** How long a count is kept after the last packet, ms. */
export const KEPT_MS = { address: 3_600_000, endpoint: 60_000 } as const;

/** Number of counts; further addresses are not counted. Whoever reads them reads all, and takes a few ms for 1,000. */
const MOST = 2 ** 13;
const MOST_ERRORS = 2 ** 10;

/** nft has no constants in keys, but a generator of one number is one. */
function constant(value: number): Field {
  return { field: "numgen", mode: "inc", modulus: 1, offset: value };
}

/** Declares the sets. Without counters nothing is counted. */
export function declareRefusals(table: TableDeclarations, family: IpFamily, counters: ServiceCounters): void {
  if (counters === "off") return;
  const address = family === "ip" ? "ipv4_addr" : "ipv6_addr";
  table.packedSet({
    set: REFUSALS,
    key: [address, "inet_proto", "inet_service", "index"],
    ...{ dynamic: true, timeoutMs: 0, size: MOST, counters: {} },
    comment: `refused connections: ${REFUSAL_REASONS.map((reason, i) => `${i} ${reason}`).join(", ")}`,
  });
  table.packedSet({
    set: ICMP_ERRORS,
    key: [address, "inet_proto", "inet_service", address],
    ...{ dynamic: true, timeoutMs: 0, size: MOST_ERRORS, counters: {} },
    comment: "ICMP errors about connections: sender . protocol . port . endpoint",
  });
}

/**
 * Returns the rule that counts a packet to a service's address, for a chain that then refuses it. It is a rule of its own, because a full set ends
 * the rule, and the packet must be refused nevertheless. Returns nothing without counters.
 */
export function refusalRules(
  reason: Exclude<RefusalReason, "endpoint">,
  counters: ServiceCounters | undefined,
): Rule[] {
  if (counters === undefined || counters === "off") return [];
  const key = ["daddr", "meta l4proto", "th dport", constant(REFUSAL_REASONS.indexOf(reason))] as const;
  return [{ statements: [{ action: "update", set: REFUSALS, key, timeoutMs: KEPT_MS.address }] }];
}

/** The answer to a packet that begins a connection has both flags. The reset for one in the middle has no ACK (RFC 9293, 3.5.2). */
const isReset: Statement = { field: "tcp flags", mask: ["rst", "ack"], value: ["rst", "ack"] };
const ABORT = 6;
/** The type of the packet's first chunk. */
const isAbort: Statement = { field: { field: "raw", base: "transport", offset: 96, length: 8 }, value: ABORT };
/** The error of a host without a program on the port. */
const PORT_UNREACHABLE: Readonly<Record<IpFamily, readonly Statement[]>> = {
  ip: [
    { field: "icmp type", value: "destination-unreachable" },
    { field: "icmp code", value: "port-unreachable" },
  ],
  ip6: [
    { field: "icmpv6 type", value: "destination-unreachable" },
    { field: "icmpv6 code", value: "port-unreachable" },
  ],
};
export const toClient: Statement = { field: "ct direction", value: "reply" };
const isTranslated: Statement = { field: "ct status", value: "dnat" };
const neverOpen: Statement = { field: "ct status", op: "not in", value: "assured" };
/** A packet to this node itself was counted in the output hook. On its way back, its source may already be the service's address. */
const notFromItself: Statement = { field: "iifname", op: "!=", value: "lo" };

function counted(set: string, ...key: readonly Field[]): Statement {
  return { action: "update", set, key, timeoutMs: KEPT_MS.endpoint };
}

/**
 * Matches packets of connections without an answer, which includes all new ones, and the packet that ends a connection. When the first answer is a
 * reset, conntrack deletes the connection at once. Nearly all packets differ in this, so they only pay for one comparison.
 */
export const isUnanswered: Statement = {
  field: "ct status",
  op: "!=",
  mask: ["seen-reply", "dying"],
  value: "seen-reply",
};

/** The rule that counts aborts of SCTP, which do not delete a connection. It needs a hook in which the source is still the endpoint. */
export function abortRules(counters: ServiceCounters | undefined): Rule[] {
  if (counters === undefined || counters === "off") return [];
  return [{ statements: [{ field: "meta l4proto", value: "sctp" }, isAbort, toClient, ...refused()] }];
}

/**
 * Returns the rules that count refusals by endpoints: resets, and ICMP errors. They are for packets to clients that isUnanswered matches, in a hook in
 * which the source is still the endpoint. Conntrack has already deleted a connection that a reset refuses, but the packet still has it. The key of an
 * ICMP error has the sender beside the connection's own endpoint: a router, a firewall, or a pod that forges the sender, answers for others'
 * connections.
 */
export function endpointRefusalRules(family: IpFamily): Rule[] {
  const error = counted(ICMP_ERRORS, "saddr", "ct protocol", "ct reply proto-src", `ct reply ${family} saddr`);
  return [
    { statements: [isReset, ...refused()] },
    { statements: [...PORT_UNREACHABLE[family], isTranslated, notFromItself, error] },
  ];
}

function refused(): Statement[] {
  const reason = constant(REFUSAL_REASONS.indexOf("endpoint"));
  return [isTranslated, neverOpen, notFromItself, counted(REFUSALS, "saddr", "meta l4proto", "th sport", reason)];
}

/** The address is the endpoint's if the reason is "endpoint", and otherwise a service's: of a node port, one of this node's addresses. */
export interface RefusalKey extends ServiceAddress {
  readonly reason: RefusalReason;
}

/** Parses a key of the set. Returns undefined for a key that this version does not write. */
export function unpackRefusal(key: Uint8Array, family: IpFamily): RefusalKey | undefined {
  const address = unpackServiceKey(key, family);
  const reason = REFUSAL_REASONS[unpackNumber(key.slice(-4))] as RefusalReason | undefined;
  return address === undefined || reason === undefined ? undefined : { ...address, reason };
}

/** Parses a key of the set of ICMP errors. Returns undefined unless the endpoint itself sent the errors. */
export function unpackIcmpError(key: Uint8Array, family: IpFamily): RefusalKey | undefined {
  const address = unpackServiceKey(key, family);
  const sender = key.subarray(0, family === "ip" ? 4 : 16);
  const isOwn = Buffer.compare(sender, key.subarray(-sender.length)) === 0;
  return address === undefined || !isOwn ? undefined : { ...address, reason: "endpoint" };
}
