/**
 * Node ports on this node's loopback addresses, in the kernel, for both families and every protocol, without a system setting.
 *
 * A packet to 127.0.0.1 comes from 127.0.0.1, and the kernel routes neither such a packet out nor its answer in, but by interfaces with
 * `route_localnet`, for everyone on the wire as well (CVE-2020-8558); for ::1 it has no such setting at all. What it judges is the header at the time
 * of routing. So the header alone has an address of this node meanwhile, and the connection is tracked by its own addresses:
 *
 *     first packet    nat-output               127.0.0.1 → 127.0.0.1:NODEPORT   source := the node's, destination := an endpoint; routed
 *     those behind    filter-output-pre-dnat   the same, as no NAT rule sees them; conntrack rewrites their destination
 *     both            nat-postrouting          masqueraded: conntrack puts the final source in, whatever the header has
 *     answers         nat, prerouting          conntrack: destination := 127.0.0.1, which would not be routed
 *                     localhost-prerouting     destination := the address it came in for; routed to this node
 *                     nat, input               conntrack: source := 127.0.0.1:NODEPORT
 *                     localhost-input          destination := 127.0.0.1; to the socket
 *
 * The answers of an endpoint with an address of this node come over `lo`, which takes them as they are.
 */
import { Hook, Priority } from "../kernel/constants.js";
import type { IpFamily } from "../model/types.js";
import type { Match, Rule, Statement, TableDeclarations } from "../table/index.js";
import { ChainName } from "./names.js";
import { drop, rule } from "./statements.js";

/** Where in `localhost` nothing else is said, node ports answer nowhere on loopback. */
export interface LocalhostNodePorts {
  /** CIDRs of loopback addresses that node ports answer on; canonical, at least one. */
  readonly nets: readonly string[];
  /** An address of this node: the source of such packets while they are routed, and the client that ClientIP affinity knows. */
  readonly source: string;
}

/** Loopback addresses of a family, all of them. */
export const LOOPBACK: Readonly<Record<IpFamily, string>> = { ip: "127.0.0.0/8", ip6: "::1" };

const notByLoopback: Match = { match: "interface", direction: "in", name: "lo", negate: true };
const original: Match = { match: "ct-direction", direction: "original" };
const reply: Match = { match: "ct-direction", direction: "reply" };

const inLoopback = (family: IpFamily, direction: "source" | "destination"): Match => ({
  match: "address",
  direction,
  nets: [LOOPBACK[family]],
});

/** To a loopback address that node ports answer on. */
export function toLocalhost({ nets }: LocalhostNodePorts): Match {
  return { match: "address", direction: "destination", nets };
}

/** The source under which the packet is routed. */
export function sourceForRouting({ source }: LocalhostNodePorts): Statement {
  return { action: "set-address", direction: "source", to: source };
}

/**
 * Before DNAT, of what this node sends: packets of such connections behind their first, which no NAT rule sees. Other programs' DNAT between
 * loopback addresses is not touched.
 */
export function followingRules(family: IpFamily, localhost: LocalhostNodePorts | undefined): Rule[] {
  if (localhost === undefined) return [];
  const elsewhere: Match = {
    match: "address",
    ct: "reply",
    direction: "source",
    nets: [LOOPBACK[family]],
    negate: true,
  };
  return [
    rule(
      toLocalhost(localhost),
      inLoopback(family, "source"),
      { match: "ct-status", status: "dnat" },
      original,
      elsewhere,
      sourceForRouting(localhost),
    ),
  ];
}

/**
 * What comes from elsewhere with a loopback address is forged. The kernel drops it by itself as long as `route_localnet` is off, which kube-proxy's
 * iptables mode leaves on; with IPv6 always.
 */
export function martianRules(family: IpFamily, localhost: LocalhostNodePorts | undefined): Rule[] {
  if (localhost === undefined || family !== "ip") return [];
  return [
    rule(inLoopback(family, "destination"), notByLoopback, drop),
    rule(inLoopback(family, "source"), notByLoopback, drop),
  ];
}

/** The chains on the way of the answers. They stay when the last node port goes: its connections do, too. */
export function declareAnswers(
  table: TableDeclarations,
  family: IpFamily,
  localhost: LocalhostNodePorts | undefined,
): void {
  const { localhostPrerouting, localhostInput } = ChainName;
  if (localhost === undefined) {
    table.removeChain(localhostPrerouting);
    table.removeChain(localhostInput);
    return;
  }
  const toOrigin: Statement = {
    action: "set-address",
    direction: "destination",
    to: { ct: "original", direction: "source" },
  };
  const fromLoopback: Match = { match: "address", ct: "original", direction: "source", nets: [LOOPBACK[family]] };
  table.chain({
    chain: localhostPrerouting,
    // Behind conntrack's rewriting, before routing.
    base: { type: "filter", hook: Hook.prerouting, priority: Priority.dstnat + 10 },
    rules: [
      rule(inLoopback(family, "destination"), notByLoopback, reply, {
        action: "set-address",
        direction: "destination",
        to: { ct: "reply", direction: "destination" },
      }),
    ],
  });
  table.chain({
    chain: localhostInput,
    // Behind firewalls: many drop what comes to a loopback address from elsewhere.
    base: { type: "filter", hook: Hook.input, priority: Priority.srcnat + 10 },
    rules: [rule(notByLoopback, reply, fromLoopback, toOrigin)],
  });
}
