/**
 * Node ports on this node's loopback addresses, in the kernel, for both families and every protocol, without a system setting.
 *
 * A packet to 127.0.0.1 comes from 127.0.0.1. The kernel neither routes such a packet out nor accepts its answer, except on
 * interfaces with `route_localnet`, which also admits everyone on the network (CVE-2020-8558). For ::1 there is no such setting
 * at all. The kernel checks the packet's header during routing. So only the header gets an address of this node meanwhile,
 * while the connection is tracked by its own addresses:
 *
 *     first packet    nat-output               127.0.0.1 → 127.0.0.1:NODEPORT   source := the node's, destination := an endpoint; routed
 *     later packets   filter-output-pre-dnat   the same, because no NAT rule sees them; conntrack rewrites their destination
 *     both            nat-postrouting          masqueraded: conntrack sets the final source, whatever the header contains
 *     answers         nat, prerouting          conntrack: destination := 127.0.0.1, which would not be routed
 *                     localhost-prerouting     destination := the address it came in for; routed to this node
 *                     nat, input               conntrack: source := 127.0.0.1:NODEPORT
 *                     localhost-input          destination := 127.0.0.1; to the socket
 *
 * Answers of an endpoint that has an address of this node come over `lo`, which accepts them unchanged.
 */
import type { IpFamily } from "../base/ip.js";
import type { Rule, Statement } from "../nft/engine-exports.js";
import { drop, rule } from "./statements.js";
import type { LocalhostNodePorts } from "../node/node-facts.js";

/** All loopback addresses of a family. */
export const LOOPBACK: Readonly<Record<IpFamily, string>> = { ip: "127.0.0.0/8", ip6: "::1" };

const notByLoopback: Statement = { field: "iifname", op: "!=", value: "lo" };
const reply: Statement = { field: "ct direction", value: "reply" };

/** Sets the source for routing the packet. */
export function sourceForRouting({ source }: LocalhostNodePorts): Statement {
  return { action: "set-address", direction: "source", to: source };
}

/** Rules in base chains for node ports on loopback. */
interface LocalhostRules {
  /** Match for packets to a loopback address on which node ports answer. Empty if there is no such address. */
  readonly to: readonly Statement[];
  /** Before DNAT, for incoming packets. */
  readonly martians: readonly Rule[];
  /** Before DNAT, for packets that this node sends: later packets of such connections, which no NAT rule sees. */
  readonly following: readonly Rule[];
  /** For answers: after conntrack's rewriting and before routing, and then on the way to the socket. */
  readonly routed: readonly Rule[];
  readonly received: readonly Rule[];
}

const NONE: LocalhostRules = { to: [], martians: [], following: [], routed: [], received: [] };

/** The rules stay after the last node port is gone, because its connections do too. */
export function localhostRules(family: IpFamily, localhost: LocalhostNodePorts | undefined): LocalhostRules {
  if (localhost === undefined) return NONE;
  const from = { field: "saddr", value: LOOPBACK[family] } as const;
  const toAny = { ...from, field: "daddr" } as const;
  const to = { ...toAny, value: localhost.nets };
  // Do not touch other programs' DNAT between loopback addresses.
  const elsewhere: Statement = { ...from, field: `ct reply ${family} saddr`, op: "!=" };
  const fromLoopback: Statement = { ...from, field: `ct original ${family} saddr`, op: "==" };
  const back = (ct: "original" | "reply", direction: "source" | "destination"): Statement => {
    return { action: "set-address", direction: "destination", to: { ct, direction } };
  };
  return {
    to: [to],
    // A packet from elsewhere with a loopback address is forged. For IPv6 the kernel always drops it. For IPv4 it only does
    // while `route_localnet` is off, and kube-proxy's iptables mode leaves that on.
    martians: family === "ip" ? [rule(toAny, notByLoopback, drop), rule(from, notByLoopback, drop)] : [],
    following: [
      rule(
        to,
        from,
        { field: "ct status", value: "dnat" },
        { field: "ct direction", value: "original" },
        elsewhere,
        sourceForRouting(localhost),
      ),
    ],
    routed: [rule(toAny, notByLoopback, reply, back("reply", "destination"))],
    received: [rule(notByLoopback, reply, fromLoopback, back("original", "source"))],
  };
}
