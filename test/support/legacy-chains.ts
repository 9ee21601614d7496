/** Chains in tables of the older iptables: the expected remainder, and random tables. */
import { isEntryChain, isOwnChain, type IptablesTable } from "../../src/migration/leftovers/iptables-names.js";
import { legacyRule } from "../lab/legacy-rules.ts";
import {
  type LegacyChain,
  type LegacyFamily,
  type LegacyRule,
  TABLE_CHAINS,
  type Target,
} from "../lab/legacy-table.ts";
import type { Random } from "../native/spoil.ts";

const goesTo = ({ target }: LegacyRule): string | undefined =>
  "jump" in target ? target.jump : "goto" in target ? target.goto : undefined;

export interface Expected {
  readonly chains: readonly LegacyChain[];
  readonly removed: number;
  readonly jumps: number;
  /** Names of the chains that another program's rules jump to. */
  readonly kept: readonly string[];
}

/** The expected remainder of a table without kube-proxy's chains. */
export function withoutKubeProxy(table: IptablesTable, chains: readonly LegacyChain[]): Expected {
  const own = new Set(chains.map(({ name }) => name).filter((name) => isOwnChain(table, name)));
  const isJump = ({ policy }: LegacyChain, rule: LegacyRule): boolean => {
    const to = goesTo(rule);
    return policy !== undefined && to !== undefined && own.has(to) && isEntryChain(table, to);
  };
  const used = new Set<string>();
  let jumps = 0;
  for (const chain of chains.filter(({ name }) => !own.has(name))) {
    for (const rule of chain.rules) {
      const to = goesTo(rule);
      if (to === undefined || !own.has(to)) continue;
      if (isJump(chain, rule)) jumps++;
      else used.add(to);
    }
  }
  const stay = new Set(used);
  for (const name of stay) {
    const rules = chains.find((chain) => chain.name === name)?.rules ?? [];
    // Iterating over a set includes elements added meanwhile.
    for (const to of rules.map(goesTo)) if (to !== undefined && own.has(to)) stay.add(to);
  }
  const left = chains
    .filter(({ name }) => !own.has(name) || stay.has(name))
    .map((chain) => ({ ...chain, rules: chain.rules.filter((rule) => !isJump(chain, rule)) }));
  return { chains: left, removed: own.size - stay.size, jumps, kept: [...used] };
}

/** Words of rules that do not affect packets; every kernel with the older iptables supports them. */
const MATCHES: Readonly<Record<LegacyFamily, readonly string[]>> = {
  ip: ["", "ip saddr 192.0.2.0/24", "ip daddr != 198.51.100.7", "tcp dport 443", "udp dport 53"],
  ip6: ["", "ip6 saddr 2001:db8::/32", "ip6 daddr != 2001:db8::7", "tcp dport 443", "udp dport 53"],
};
const OWN: Readonly<Record<IptablesTable, readonly string[]>> = {
  nat: ["KUBE-SERVICES", "KUBE-POSTROUTING", "KUBE-MARK-MASQ", "KUBE-SVC-A", "KUBE-SVC-B", "KUBE-SEP-A", "KUBE-SEP-B"],
  filter: ["KUBE-SERVICES", "KUBE-FORWARD", "KUBE-NODEPORTS", "KUBE-PROXY-CANARY", "KUBE-SOURCE-RANGES-FIREWALL"],
  mangle: ["KUBE-PROXY-CANARY"],
};
const OTHERS = ["KUBE-MARK-DROP", "KUBE-KUBELET-CANARY", "CNI-A", "CNI-B", "cali-FORWARD", "DOCKER", "MY-KUBE-SVC-A"];

/**
 * A table that other programs and kube-proxy may have left: rules jump and go to earlier or later chains of any owner. `acyclic`: as the
 * kernel requires.
 */
export function randomTable(
  random: Random,
  family: LegacyFamily,
  table: IptablesTable,
  { acyclic }: { readonly acyclic: boolean },
): LegacyChain[] {
  const users = [...OWN[table], ...OTHERS].filter(() => random.below(3) > 0);
  // The table has one random order; another one determines which chains may jump to which.
  const order = shuffled(random, users);
  const counter = (): bigint => BigInt(random.below(1_000_000));
  const counters = (): [bigint, bigint] => [counter(), counter()];
  const target = (from: number, mayJump: readonly string[]): Target => {
    const to = mayJump.length > 0 && !random.chance(3) ? random.pick(mayJump) : undefined;
    if (to !== undefined) return random.chance(5) ? { goto: to } : { jump: to };
    return random.chance(2) ? { next: true } : { verdict: from < 0 ? "ACCEPT" : "RETURN" };
  };
  const rules = (from: number): LegacyRule[] => {
    const mayJump = acyclic ? order.slice(from + 1) : order;
    return Array.from({ length: random.below(5) }, () => {
      const { match = "" } = legacyRule(family, `${random.pick(MATCHES[family])} # some rule ${random.below(1000)}`);
      return { match, target: target(from, mayJump), counters: counters() };
    });
  };
  return [
    ...TABLE_CHAINS[table].map((name): LegacyChain => ({
      name,
      policy: random.chance(4) && table === "filter" ? "DROP" : "ACCEPT",
      policyCounters: counters(),
      rules: rules(-1),
    })),
    ...users.map((name) => ({ name, policyCounters: counters(), rules: rules(order.indexOf(name)) })),
  ];
}

function shuffled<T>(random: Random, list: readonly T[]): T[] {
  const left = [...list];
  return list.map(() => left.splice(random.below(left.length), 1)[0]);
}
