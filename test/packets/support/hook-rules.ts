/** Rules of other programs at all hooks, each with a packet that meets them. */
import { PLAN } from "../../lab/topology.ts";
import type { Judgeable } from "./foreign-rules.ts";
import { clusterAddress, nodePortOf, POD_PORT } from "./objects.ts";

export interface Sent {
  readonly from: "client" | "b";
  readonly to: "node port" | "ClusterIP";
  readonly protocol: "tcp" | "udp";
}

/** A connection from outside the cluster to a node port, or from a pod to a ClusterIP. */
export const CLIENT: Sent = { from: "client", to: "node port", protocol: "tcp" };
export const POD: Sent = { from: "b", to: "ClusterIP", protocol: "tcp" };
const POD_UDP: Sent = { ...POD, protocol: "udp" };

export interface HookRules {
  readonly name: string;
  readonly rules: string;
  readonly sent: Sent;
  readonly judgeable: Judgeable;
}

const known = (name: string, rules: string, sent = CLIENT): HookRules => ({ name, rules, sent, judgeable: "known" });
const open = (name: string, rules: string, sent = CLIENT): HookRules => ({ name, rules, sent, judgeable: "open" });

/** The first service of the test. */
export const VIP = clusterAddress(1).ip;
export const NODE_PORT = nodePortOf(1);
/** A program of the node listens there. */
export const OTHER_PORT = 9100;

/** `explain` describes the first packet only: later ones pass. */
const REPLIES = "ct state established accept";
/** One statement per line, as nft 1.0.6 requires. */
export const table = (name: string, ...parts: readonly string[]): string => tableOf("inet", name, ...parts);
const tableOf = (family: string, name: string, ...parts: readonly string[]): string =>
  `table ${family} ${name} {\n${parts.join("\n").replaceAll("; ", "\n").replaceAll("{ type", "{\ntype")}\n}\n`;
export const chain = (base: string, ...rules: readonly string[]): string => {
  const all = /hook (forward|postrouting)/.test(base) ? [REPLIES, ...rules] : rules;
  return `chain f {\ntype ${base}\n${all.join("\n")}\n}`;
};

const foreign = (base: string, ...rules: readonly string[]): string => table("foreign", chain(base, ...rules));
const atForward = (...rules: readonly string[]): string => foreign(FORWARD, ...rules);
const FORWARD = "filter hook forward priority -5";
/** A chain of the table ip `name` before our NAT. */
const natOf = (name: string, rule: string): string => tableOf("ip", name, chain(nat(-110), rule));
const atDevice = (base: string, rule: string): string => tableOf("netdev", "foreign", chain(base, rule));
const pre = (priority: number): string => `filter hook prerouting priority ${priority}`;
const nat = (priority: number): string => `nat hook prerouting priority ${priority}`;
const REDIRECT = `tcp dport ${NODE_PORT} redirect to :${OTHER_PORT}`;

export const HOOK_RULES: readonly HookRules[] = [
  known("notrack of a ClusterIP", foreign(pre(-300), `ip daddr ${VIP} notrack`), POD),
  known("notrack after the connection tracker", foreign(pre(-150), `ip daddr ${VIP} notrack`), POD),
  known("ct state of an untracked packet", foreign(pre(-300), "ct state new drop"), POD),
  known("redirect before our rules", foreign(nat(-110), REDIRECT)),
  known("redirect after our rules", foreign(nat(-90), REDIRECT)),
  open("redirect at our priority", foreign(nat(-100), REDIRECT)),
  known(
    "a filter between a NAT chain's own priority and NAT",
    table("nats", chain(nat(-110), REDIRECT)) + foreign(pre(-105), `tcp dport ${OTHER_PORT} drop`),
  ),
  known(
    "another program's DNAT to the endpoint",
    natOf("foreign", `tcp dport ${NODE_PORT} dnat to 10.244.0.5:${POD_PORT}`),
  ),
  open(
    "another program's DNAT to one of many",
    natOf("foreign", `tcp dport ${NODE_PORT} dnat to 10.244.0.5-10.244.0.6:${POD_PORT}`),
  ),
  known(
    "ct mark set, then matched",
    table("first", chain(pre(-150), `ip saddr ${PLAN.client.ip} ct mark set 5`)) + atForward("ct mark 5 drop"),
  ),
  known(
    "ct mark set before the connection tracker",
    table("first", chain(pre(-300), "ct mark set 5")) + atForward("ct mark 5 drop"),
  ),
  open(
    "a mark set at random, then matched",
    table("first", chain(pre(-150), "meta mark set numgen random mod 2")) + atForward("meta mark 1 drop"),
  ),
  known("ttl set, then matched", atForward("ip ttl set 9", "ip ttl 9 accept", "drop")),
  open("a time to live that ends at this node", foreign(pre(-150), "ip ttl set 1")),
  open("a packet type of other hosts", foreign(pre(-150), "meta pkttype set broadcast")),
  open("flags with which no connection begins", foreign(pre(-150), "tcp flags syn tcp flags set fin")),
  open("another protocol", foreign(pre(-150), "ip protocol tcp ip protocol set 17")),
  open(
    "another hardware address",
    atDevice("filter hook egress device pod0 priority 0", "ether daddr set 02:00:00:00:00:99"),
  ),
  open("DNAT to a loopback address", foreign(nat(-110), `tcp dport ${NODE_PORT} dnat ip to 127.0.0.1:${OTHER_PORT}`)),
  known(
    "jumps, goto and return",
    table(
      "foreign",
      "chain c {\nreturn\ndrop\n}\nchain d {\nip ttl 99 return\n}\nchain e {\ndrop\n}",
      chain(FORWARD, "jump c", "jump d", "tcp dport 8080 goto e", "accept"),
    ),
  ),
  open(
    "a policy after a rule that cannot be judged",
    foreign("filter hook forward priority -5; policy drop;", "limit rate 5/second accept"),
  ),
  known("reject", atForward("tcp dport 8080 reject with tcp reset")),
  known("a masqueraded connection's own mark", atForward("meta mark & 0x4000 == 0x4000 accept", "drop")),
  open(
    "postrouting after masquerading",
    foreign("filter hook postrouting priority 150", `ip saddr ${PLAN.client.ip} drop`),
  ),
  known("a device's ingress", atDevice("filter hook ingress device eth1 priority 0", `tcp dport ${NODE_PORT} drop`)),
  known("another device's ingress", atDevice("filter hook ingress device eth0 priority 0", "drop")),
  known(
    "a device's ingress in an inet table",
    foreign("filter hook ingress device eth1 priority 0", "meta nfproto ipv4 ct state invalid drop"),
  ),
  known("a device's egress", atDevice("filter hook egress device pod0 priority 0", `tcp dport ${POD_PORT} drop`)),
  known("a reject at ingress", atDevice("filter hook ingress device eth1 priority 0", `tcp dport ${NODE_PORT} reject`)),
  known(
    "an error that another chain drops",
    table(
      "foreign",
      chain(FORWARD, "tcp dport 8080 reject"),
      "chain g {\ntype filter hook output priority 5\nmeta l4proto icmp drop\n}",
    ),
  ),
  open("jhash with a seed of the kernel's", atForward("jhash ip daddr mod 2 0 drop")),
  open("a filter at the priority of NAT", foreign(pre(-100), `tcp dport ${NODE_PORT} drop`)),
  open(
    "notrack at the connection tracker's priority",
    table("first", chain(pre(-200), "ct state established accept")) + foreign(pre(-200), "notrack"),
    POD,
  ),
  known(
    "a filter at the priority of NAT that no order concerns",
    foreign(pre(-100), `ip saddr ${PLAN.client.ip} drop`),
  ),
  open(
    "four tables of one priority",
    ["mark 1 drop", "mark 2 mark set 1", "mark 3 mark set 2", "mark 0 mark set 3"]
      .map((rule, i) => table(`t${i}`, chain(FORWARD, `meta ${rule.replace("mark set", "meta mark set")}`)))
      .join(""),
  ),
  known(
    "six tables of one priority that no order concerns",
    Array.from({ length: 6 }, (_, i) =>
      table(`t${i}`, chain(FORWARD, i === 3 ? "tcp dport 8080 drop" : "counter")),
    ).join(""),
  ),
  open(
    "six tables of one priority",
    Array.from({ length: 6 }, (_, i) =>
      table(`t${i}`, chain(FORWARD, `meta mark ${i} drop`, `meta mark set ${i + 1}`)),
    ).join(""),
  ),
  known(
    "DNAT to the packet's own destination",
    natOf("first", `tcp dport ${NODE_PORT} dnat to ${PLAN.node.ip}:${NODE_PORT}`) +
      table("foreign", "chain f {\ntype filter hook input priority -5\nct status dnat drop\n}"),
  ),
  known(
    "the priority that the kernel sets from the type of service",
    table("first", chain(pre(-150), "ip dscp set cs1")) + atForward("meta priority 0:2 drop"),
  ),
  known(
    "a priority that no type of service has",
    table("first", chain(pre(-150), "meta priority set 0:1")) + atForward("meta priority 0:1 drop"),
  ),
  open(
    "a destination that another program rewrites",
    foreign(pre(-300), `ip daddr ${VIP} ip daddr set 10.244.0.5`),
    POD,
  ),
  open("a zone of connection tracking", foreign(pre(-300), "ct zone set 7"), POD),
  known("UDP expressions", atForward("tcp dport 8080 drop", "udp dport 8080 accept", "drop"), POD_UDP),
  open("UDP length", atForward("udp length > 8 drop"), POD_UDP),
];
