/** `explain` beside each match and target of iptables-nft: its result is what the packet and its reply meet. */
import { afterAll, beforeAll, expect, test } from "vitest";
import { atLength, someOf } from "../lab/length.ts";
import { patience } from "../lab/patience.ts";
import type { Family } from "../lab/topology.ts";
import { Dice } from "../support/dice.ts";
import { ExplainedPackets } from "./support/explained-packets.ts";

let packets: ExplainedPackets;
beforeAll(async () => {
  packets = await ExplainedPackets.create();
  await packets.addSets([
    { name: "pods", networks: ["10.244.0.6/32", "10.244.1.0/24"] },
    { name: "clients", networks: ["198.51.100.0/25"] },
  ]);
});
afterAll(() => packets.destroy());

interface Case {
  readonly ip6?: boolean;
  /** A match of chain FORWARD in the table filter, before a drop; or whole rules. */
  readonly text: string;
  /** The result of some packets may be unknown. */
  readonly open?: boolean;
}

const known = (...texts: readonly string[]): Case[] => texts.map((text) => ({ text }));
const open = (...texts: readonly string[]): Case[] => texts.map((text) => ({ text, open: true }));

const CASES: readonly Case[] = [
  ...known(
    "-m comment --comment x",
    ...["LOCAL", "UNICAST", "BROADCAST", "LOCAL,MULTICAST"].flatMap((type) => [
      `-m addrtype --dst-type ${type}`,
      `-m addrtype ! --dst-type ${type}`,
      `-m addrtype --src-type ${type}`,
    ]),
    "-m addrtype ! --src-type LOCAL --dst-type UNICAST",
  ),
  ...known(
    ...["NEW", "ESTABLISHED", "RELATED,ESTABLISHED", "INVALID", "DNAT", "NEW,SNAT", "UNTRACKED"].flatMap((state) => [
      `-m conntrack --ctstate ${state}`,
      `-m conntrack ! --ctstate ${state}`,
    ]),
    "-m state --state NEW",
    "-m state --state RELATED,ESTABLISHED",
    "-m conntrack --ctdir ORIGINAL",
    "-m conntrack --ctdir REPLY",
    "-m conntrack --ctorigsrc 198.51.100.0/24",
    "-m conntrack ! --ctorigsrc 10.244.0.0/24",
    "-m conntrack --ctorigdst 192.0.2.10",
    "-m conntrack ! --ctorigdst 10.96.0.0/16",
    "-m conntrack --ctreplsrc 10.244.0.5",
    "-m conntrack ! --ctreplsrc 10.244.0.0/24",
    "-m conntrack --ctproto tcp",
    "-m conntrack ! --ctproto tcp",
    "-m conntrack --ctproto tcp --ctorigdstport 30001",
    "-m conntrack --ctproto tcp --ctorigdstport 30000:31000 --ctdir ORIGINAL",
    "-m conntrack --ctproto tcp ! --ctorigdstport 80",
    "-m conntrack --ctreplsrcport 8080 --ctdir REPLY",
    "-m conntrack --ctstatus SEEN_REPLY",
    "-m conntrack ! --ctstatus EXPECTED",
    "-m conntrack --ctstate NEW --ctorigdst 10.96.1.1 --ctdir ORIGINAL",
  ),
  ...open("-m conntrack --ctrepldst 198.51.100.10", "-m conntrack --ctstatus ASSURED", "-m conntrack --ctexpire 1:100"),
  ...known(
    "-p tcp -m multiport --dports 8080,9000",
    "-p udp -m multiport --ports 53,8000:8100",
    "-p udp -m multiport ! --ports 53,8000:8100",
    "-p tcp -m tcp --syn",
    "-p tcp -m tcp ! --syn",
    "-p tcp -m tcp --tcp-flags SYN,ACK SYN,ACK",
  ),
  ...known(
    "-m set --match-set pods src",
    "-m set ! --match-set pods src",
    "-m set --match-set pods dst",
    "-m set --match-set clients src -m set ! --match-set pods src",
  ),
  ...open("-m set --match-set pods src --packets-gt 5", "-m set --match-set pods src --return-nomatch"),
  // A client may use any port.
  ...open(
    "-p tcp -m multiport ! --dports 8080,9000",
    "-p tcp -m multiport --sports 1:1023,8080",
    "-p tcp -m tcp --dport 8000:8079",
    "-p udp -m udp ! --dport 8080",
  ),
  ...known(
    "-m iprange --src-range 198.51.100.1-198.51.100.9",
    "-m iprange --src-range 198.51.100.1-198.51.100.10",
    "-m iprange ! --src-range 10.244.0.5-10.244.0.6 --dst-range 10.244.0.1-10.244.0.5",
    "-m mark --mark 0x0/0xff",
    "-m mark ! --mark 0x1/0x1",
    "-m connmark --mark 0x0/0xff",
    "-m connmark ! --mark 0x0",
  ),
  ...known("-m physdev --physdev-is-bridged -s 198.51.100.0/24", "-m physdev ! --physdev-is-in -s 198.51.100.0/24"),
  ...open(
    "-m physdev ! --physdev-is-bridged",
    "-m physdev --physdev-is-in",
    "-m physdev --physdev-in pod2",
    "-m physdev ! --physdev-in pod2",
    "-m physdev --physdev-is-out",
  ),
  ...open(
    "-m statistic --mode random --probability 0.5",
    "-m length --length 0:100",
    "-m ttl --ttl-lt 5",
    "-m u32 --u32 0=0",
  ),
  ...open(
    "-m pkttype --pkt-type unicast",
    "-m tos --tos 0x10",
    "-m hashlimit --hashlimit-name h --hashlimit-above 1000/sec",
  ),
];

const table = (name: string, ...rules: readonly string[]): string => `*${name}\n${rules.join("\n")}\nCOMMIT\n`;
const RULES: readonly Case[] = [
  ...known(
    table("mangle", "-A FORWARD -j MARK --set-xmark 0x10/0xf0", "-A FORWARD -m mark --mark 0x10/0xf0 -p tcp -j DROP"),
    table("mangle", "-A FORWARD -j MARK --or-mark 0x7", "-A FORWARD -m mark --mark 0x5/0x5 -p udp -j DROP"),
    table("mangle", "-A FORWARD -j CONNMARK --set-xmark 0x5/0xff", "-A FORWARD -m connmark --mark 0x5/0xff -j DROP"),
    table("mangle", "-A FORWARD -j CONNMARK --set-mark 6", "-A FORWARD -m connmark ! --mark 6 -j DROP"),
    table(
      "mangle",
      "-A PREROUTING -p tcp -j MARK --set-mark 9",
      "-A PREROUTING -j CONNMARK --save-mark --nfmask 0xf --ctmask 0xf",
      "-A FORWARD -m connmark --mark 9/0xf -j DROP",
    ),
    table(
      "mangle",
      "-A PREROUTING -m conntrack --ctstate ESTABLISHED -j CONNMARK --restore-mark --nfmask 0xf --ctmask 0xf",
      "-A FORWARD -m mark --mark 3/0xf -j DROP",
      "-A FORWARD -p tcp -j CONNMARK --set-xmark 3/0xf",
    ),
    ...["TCPMSS --set-mss 1200", "TCPMSS --clamp-mss-to-pmtu"].map((target) =>
      table("mangle", `-A FORWARD -p tcp -m tcp --tcp-flags SYN,RST SYN -j ${target}`, "-A FORWARD -p udp -j DROP"),
    ),
    ...[
      "TOS --set-tos 0x10",
      "DSCP --set-dscp 8",
      "TTL --ttl-set 60",
      "CLASSIFY --set-class 1:2",
      "NFLOG",
      "LOG",
      "CHECKSUM --checksum-fill",
    ].map((target) => table("mangle", `-A FORWARD -p udp -j ${target}`, "-A FORWARD -p tcp -j DROP")),
    table("filter", "-A FORWARD -j REJECT --reject-with icmp-admin-prohibited"),
    table("filter", "-A INPUT -j REJECT", "-A OUTPUT -p udp -j REJECT"),
    table("raw", "-A PREROUTING -s 198.51.100.0/24 -j CT --notrack"),
    table("raw", "-A PREROUTING -m rpfilter -j ACCEPT", "-A PREROUTING -j DROP"),
    table("mangle", "-A PREROUTING -m rpfilter --validmark --invert -j DROP"),
    table("nat", "-A PREROUTING -d 10.96.1.77 -p tcp -j DNAT --to-destination 10.244.0.6:8080"),
    table("nat", "-A POSTROUTING -d 10.244.0.5 -j SNAT --to-source 192.0.2.20"),
    table("nat", "-A POSTROUTING -s 198.51.100.0/24 -j MASQUERADE"),
  ),
  ...open(
    table("filter", "-A FORWARD -j SET --add-set clients src", "-A FORWARD -m set --match-set clients src -j DROP"),
    table("filter", "-A FORWARD -p tcp -j REJECT --reject-with tcp-reset"),
    table("raw", "-A PREROUTING -s 198.51.100.0/24 -j NOTRACK", "-A OUTPUT -j CT --notrack"),
    table("nat", "-A PREROUTING -d 10.96.1.1 -p tcp -j DNAT --to-destination 10.244.0.6:8080"),
    table("nat", "-A OUTPUT -d 10.96.1.1 -p tcp -j REDIRECT --to-ports 8080"),
    table("raw", "-A PREROUTING -s 198.51.100.0/24 -j CT --zone 5"),
    table("nat", "-A PREROUTING -d 192.0.2.10 -p tcp -j DNAT --to-destination 10.244.0.5-10.244.0.6"),
    table("nat", "-A PREROUTING -p tcp --dport 30001 -j REDIRECT --to-ports 8080"),
    table("nat", "-A POSTROUTING -j MASQUERADE --random-fully"),
    table("filter", "-A FORWARD -p tcp -j NFQUEUE --queue-num 1 --queue-bypass"),
    table("nat", "-A PREROUTING -d 10.96.1.0/24 -j NETMAP --to 10.244.0.0/24"),
  ),
];

const OF_IP6: readonly Case[] = [
  ...known(
    "-m rt --rt-type 0",
    "-m rt ! --rt-type 0",
    "-m addrtype --dst-type LOCAL",
    "-m addrtype ! --src-type LOCAL",
    "-m conntrack --ctstate DNAT,NEW",
    "-m conntrack ! --ctorigsrc fd00:10:244::/64",
    "-m conntrack --ctreplsrc fd00:10:244::5 --ctdir ORIGINAL",
    "-p tcp -m multiport --dports 8080,9000",
    "-m iprange --dst-range fd00:10:244::1-fd00:10:244::5",
    "-m mark --mark 0x0/0xff -p udp",
    table("raw", "-A PREROUTING -m rpfilter --invert -j DROP"),
    table("nat", "-A POSTROUTING -s 2001:db8:2::/64 -j MASQUERADE"),
    table("nat", "-A PREROUTING -d fd00:10:96::177 -p tcp -j DNAT --to-destination [fd00:10:244::6]:8080"),
  ),
  ...open(
    "-m addrtype --dst-type UNICAST",
    table("nat", "-A PREROUTING -d fd00:10:96::101 -p tcp -j DNAT --to-destination [fd00:10:244::6]:8080"),
    table("nat", "-A OUTPUT -d fd00:10:96::101 -p tcp -j REDIRECT --to-ports 8080"),
    table("filter", "-A FORWARD -p tcp -j REJECT --reject-with tcp-reset"),
  ),
].map((one) => ({ ...one, ip6: true }));

const sentOf = (family: Family): ReturnType<ExplainedPackets["of"]> =>
  packets.of(family).filter(({ from }, i) => (from === "client" ? i % 4 >= 2 : i % 4 < 2));

test.for(someOf([...CASES, ...RULES, ...OF_IP6], 8))("$text", async ({ text, open: isOpen = false, ip6 = false }) => {
  const { node } = packets.cluster;
  const rules = text.startsWith("*") ? text : table("filter", `-A FORWARD ${text} -j DROP`);
  const family = ip6 ? "ip6" : "ip";
  await node.mustRun([`${ip6 ? "ip6tables" : "iptables"}-nft-restore`], { input: rules });
  try {
    const wrong: string[] = [];
    for (const asked of sentOf(family)) {
      const { result, text: what } = await packets.compare(asked);
      if (result === "contradicted" || (result === "unknown" && !isOpen)) wrong.push(`${result}: ${what}`);
    }
    expect(wrong).toEqual([]);
  } finally {
    await node.mustRun(["nft", `delete table ${family} ${/^\*(\w+)/.exec(rules)?.[1] ?? ""}`]);
  }
});

const MATCHED = CASES.map(({ text }) => text).filter((text) => !/^(?=.*-p tcp)|statistic|hashlimit/.test(text));
const MARKING = [
  "MARK --set-xmark 0x1/0x1",
  "MARK --set-xmark 0x0/0x3",
  "CONNMARK --set-xmark 0x2/0xf",
  "CONNMARK --save-mark --nfmask 0x3 --ctmask 0x3",
  "CONNMARK --restore-mark --nfmask 0xf --ctmask 0xf",
  "NFLOG",
];
const MARKED = [
  "-m mark --mark 0x1/0x1",
  "-m connmark --mark 0x2/0x3",
  "-m mark ! --mark 0x0/0x3",
  "-m connmark ! --mark 0x1/0x1",
];

/** Chains of random matches and targets at a random hook of each table. */
function randomRules(dice: Dice): string {
  const match = (): string => (dice.chance(40) ? dice.pick(MARKED) : dice.pick(MATCHED));
  const rule = (chain: string, ends: readonly string[]): string =>
    `-A ${chain} ${match()} -j ${dice.chance(50) ? dice.pick(MARKING) : dice.pick(ends)}`;
  const rules = (count: number, chain: string, ends: readonly string[]): string[] =>
    Array.from({ length: count }, () => rule(chain, ends));
  const at = dice.pick(["PREROUTING", "FORWARD", "POSTROUTING"]);
  const mangle = rules(3, at, ["ACCEPT", "RETURN", "DROP"]);
  const inside = rules(3, "own", ["ACCEPT", "RETURN", "DROP"]);
  const filter = rules(3, "FORWARD", ["own", "ACCEPT", "REJECT", "RETURN"]);
  return `${table("mangle", ...mangle)}${table("filter", ":own - [0:0]", ...filter, ...inside)}`;
}

const SEEDS = Array.from({ length: atLength({ short: 5, usual: 40, nightly: 400 }) }, (_, i) => i + 1);

test(
  "no packet contradicts its explanation beside random rules of iptables",
  async () => {
    const { node } = packets.cluster;
    const wrong: string[] = [];
    const results = { agreed: 0, unknown: 0, contradicted: 0 };
    for (const seed of SEEDS) {
      const dice = new Dice(seed);
      const rules = randomRules(dice);
      await node.mustRun(["iptables-nft-restore"], { input: rules });
      for (const asked of sentOf("ip")) {
        const { result, text } = await packets.compare(asked);
        results[result]++;
        if (result === "contradicted") wrong.push(`seed ${seed}: ${text}\n${rules}`);
      }
      await node.mustRun(["nft", "-f", "-"], { input: "delete table ip mangle\ndelete table ip filter\n" });
    }
    console.log(`${SEEDS.length} rulesets: ${JSON.stringify(results)}`);
    expect(wrong).toEqual([]);
  },
  patience(600_000),
);
