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
import type { IpFamily } from "../base/ip.js";
import type { Match, Rule, Statement } from "../table/table-exports.js";
import { drop, rule } from "./statements.js";
import type { LocalhostNodePorts } from "../node/facts.js";

/** Loopback addresses of a family, all of them. */
export const LOOPBACK: Readonly<Record<IpFamily, string>> = { ip: "127.0.0.0/8", ip6: "::1" };

const notByLoopback: Match = { match: "interface", direction: "in", name: "lo", negate: true };
const reply: Match = { match: "ct-direction", direction: "reply" };

/** The source under which the packet is routed. */
export function sourceForRouting({ source }: LocalhostNodePorts): Statement {
  return { action: "set-address", direction: "source", to: source };
}

/** What base chains do for node ports on loopback. */
interface LocalhostRules {
  /** What packets to a loopback address that node ports answer on match; none: there is no such address. */
  readonly to: readonly Match[];
  /** Before DNAT, of what comes in. */
  readonly martians: readonly Rule[];
  /** Before DNAT, of what this node sends: packets of such connections behind their first, which no NAT rule sees. */
  readonly following: readonly Rule[];
  /** Of answers, behind conntrack's rewriting and before routing; and on their way to the socket. */
  readonly routed: readonly Rule[];
  readonly received: readonly Rule[];
}

const NONE: LocalhostRules = { to: [], martians: [], following: [], routed: [], received: [] };

/** They stay when the last node port goes: its connections do, too. */
export function localhostRules(family: IpFamily, localhost: LocalhostNodePorts | undefined): LocalhostRules {
  if (localhost === undefined) return NONE;
  const from = { match: "address", direction: "source", nets: [LOOPBACK[family]] } as const;
  const toAny = { ...from, direction: "destination" } as const;
  const to = { ...toAny, nets: localhost.nets };
  // Other programs' DNAT between loopback addresses is not touched.
  const elsewhere: Match = { ...from, ct: "reply", negate: true };
  const back = (ct: "original" | "reply", direction: "source" | "destination"): Statement => {
    return { action: "set-address", direction: "destination", to: { ct, direction } };
  };
  return {
    to: [to],
    // What comes from elsewhere with a loopback address is forged. The kernel drops it by itself as long as `route_localnet` is off, which
    // kube-proxy's iptables mode leaves on; with IPv6 always.
    martians: family === "ip" ? [rule(toAny, notByLoopback, drop), rule(from, notByLoopback, drop)] : [],
    following: [
      rule(
        to,
        from,
        { match: "ct-status", status: "dnat" },
        { match: "ct-direction", direction: "original" },
        elsewhere,
        sourceForRouting(localhost),
      ),
    ],
    routed: [rule(toAny, notByLoopback, reply, back("reply", "destination"))],
    received: [rule(notByLoopback, reply, { ...from, ct: "original" }, back("original", "source"))],
  };
}
