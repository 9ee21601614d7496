/** Random damage to the tables by `nft`, as scripts. The same seed gives the same damage to the same tables. */
import type { Family } from "../../lab/topology.ts";

/** A generator of numbers from 0 to below 1 (mulberry32). */
export function randomOf(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), state | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

export interface ChainOfTable {
  readonly name: string;
  readonly base: boolean;
}

/** Contents of one family's table, as shown by `nft -j list table`. */
export interface TableContent {
  readonly chains: readonly ChainOfTable[];
  readonly sets: readonly string[];
  readonly maps: readonly string[];
  readonly rules: readonly { readonly chain: string; readonly handle: number }[];
}

interface Listed {
  readonly chain?: { readonly name: string; readonly hook?: string };
  readonly set?: { readonly name: string };
  readonly map?: { readonly name: string };
  readonly rule?: { readonly chain: string; readonly handle: number };
}

export function contentOf(json: string): TableContent {
  const all = (JSON.parse(json) as { readonly nftables: readonly Listed[] }).nftables;
  return {
    chains: all.flatMap(({ chain }) => (chain ? { name: chain.name, base: chain.hook !== undefined } : [])),
    sets: all.flatMap(({ set }) => set?.name ?? []),
    maps: all.flatMap(({ map }) => map?.name ?? []),
    rules: all.flatMap(({ rule }) => (rule ? { chain: rule.chain, handle: rule.handle } : [])),
  };
}

/** Helpers to construct damage. */
interface Means {
  readonly family: Family;
  readonly table: TableContent;
  /** Picks one of these. */
  pick<T>(items: readonly T[]): T;
  /** Returns an integer below `end`. */
  below(end: number): number;
}

type Damage = (means: Means) => readonly string[];

const HOOKS = ["prerouting", "input", "forward", "output", "postrouting"] as const;
const NAT_HOOKS = ["prerouting", "input", "output", "postrouting"] as const;

function baseSpec({ pick, below }: Means): string {
  const nat = below(2) === 0;
  const hook = nat ? pick(NAT_HOOKS) : pick(HOOKS);
  return `type ${nat ? "nat" : "filter"} hook ${hook} priority ${below(400) - 150}; policy ${pick(["accept", "drop"])};`;
}

function bases({ table }: Means): readonly ChainOfTable[] {
  return table.chains.filter(({ base }) => base);
}

function plain({ table }: Means): readonly ChainOfTable[] {
  return table.chains.filter(({ base }) => !base);
}

function addressOf(family: Family, last: number): string {
  return family === "ip" ? `10.96.1.${1 + last}` : `fd00:10:96::${(0x101 + last).toString(16)}`;
}

const destination = ({ family, below }: Means): string => `${family} daddr ${addressOf(family, below(4))}`;
const table = (family: Family): string => `${family} kube-proxy`;

/** Removes a chain's rules and the chain, which must have a hook. */
function without(family: Family, chain: string): readonly string[] {
  return [`flush chain ${table(family)} ${chain}`, `delete chain ${table(family)} ${chain}`];
}

/** Each entry returns the lines of one transaction. */
const DAMAGES: Readonly<Record<string, Damage>> = {
  "the table deleted": ({ family }) => [`delete table ${table(family)}`],
  "the ruleset flushed": () => ["flush ruleset"],
  "all rules flushed": ({ family }) => [`flush table ${table(family)}`],
  "a chain flushed": ({ family, table: { chains }, pick }) => [`flush chain ${table(family)} ${pick(chains).name}`],
  "a rule deleted": ({ family, table: { rules }, pick }) => {
    const { chain, handle } = pick(rules);
    return [`delete rule ${table(family)} ${chain} handle ${handle}`];
  },
  "a rule inserted": (means) => {
    const {
      family,
      table: { chains },
      pick,
    } = means;
    const statement = pick([
      "drop",
      "accept",
      "return",
      "counter",
      `${destination(means)} drop`,
      "tcp dport 80 counter drop",
    ]);
    return [`insert rule ${table(family)} ${pick(chains).name} ${statement}`];
  },
  "a bound chain": (means) => {
    const {
      family,
      table: { chains, sets },
      pick,
    } = means;
    const inside = pick([
      "counter drop;",
      "accept;",
      `${destination(means)} jump { counter; drop; };`,
      `jump ${pick(plain(means)).name};`,
      `tcp dport { 80, 8080 } drop;`,
      `goto { counter; goto ${pick(plain(means)).name}; };`,
      `${family} daddr @${sets.includes("cluster-ips") ? "cluster-ips" : "none"} drop;`,
    ]);
    return [
      `insert rule ${table(family)} ${pick(chains).name} ${destination(means)} ${pick(["jump", "goto"])} { ${inside} }`,
    ];
  },
  "the table dormant": ({ family }) => [`add table ${table(family)} { flags dormant; }`],
  "a base chain deleted": (means) => without(means.family, means.pick(bases(means)).name),
  "a base chain at another hook": (means) => {
    const { name } = means.pick(bases(means));
    return [...without(means.family, name), `add chain ${table(means.family)} ${name} { ${baseSpec(means)} }`];
  },
  "a base chain without a hook": (means) => {
    const { name } = means.pick(bases(means));
    return [...without(means.family, name), `add chain ${table(means.family)} ${name}`];
  },
  "a policy of drop": (means) => [`add chain ${table(means.family)} ${means.pick(bases(means)).name} { policy drop; }`],
  "a chain renamed": (means) => {
    const { name } = means.pick(means.table.chains);
    return [`rename chain ${table(means.family)} ${name} ${name}-other`];
  },
  "another base chain": (means) => [`add chain ${table(means.family)} theirs { ${baseSpec(means)} }`],
  "a set flushed": ({ family, table: { sets, maps }, pick, below }) =>
    below(3) === 0 && sets.length > 0
      ? [`flush set ${table(family)} ${pick(sets)}`]
      : [`flush map ${table(family)} ${pick(maps)}`],
  "a map of another type": ({ family, table: { maps }, pick }) => {
    const map = pick(maps);
    const type = pick([
      "ipv4_addr : verdict",
      "mark : mark",
      "ipv6_addr . inet_service : ipv4_addr",
      "ether_addr : classid",
    ]);
    return [
      `flush table ${table(family)}`,
      `delete map ${table(family)} ${map}`,
      `add map ${table(family)} ${map} { type ${type}; }`,
    ];
  },
  "a set of another type": ({ family, table: { sets }, pick }) => {
    const set = pick(sets);
    const type = pick([
      "ipv4_addr; flags interval",
      "mark",
      "inet_service",
      "ether_addr . ipv4_addr; flags dynamic, timeout",
    ]);
    return [
      `flush table ${table(family)}`,
      `delete set ${table(family)} ${set}`,
      `add set ${table(family)} ${set} { type ${type}; }`,
    ];
  },
  "a verdict map that refers to a chain": (means) => [
    `add map ${table(means.family)} theirs { type mark : verdict; elements = { 1 : goto ${means.pick(plain(means)).name} }; }`,
    `insert rule ${table(means.family)} ${means.pick(means.table.chains).name} meta mark vmap @theirs`,
  ],
  "an object": ({ family, pick }) => [
    `add ${pick(["counter", "quota", "limit", "ct helper", "synproxy", "ct timeout"])} ${table(family)} theirs`.replace(
      / (quota|limit|ct helper|synproxy|ct timeout) (.*)$/,
      (_, kind: string, rest: string) => ` ${kind} ${rest} { ${OBJECTS[kind] ?? ""} }`,
    ),
  ],
  "a rule that uses an object": (means) => [
    `add counter ${table(means.family)} counted`,
    `add quota ${table(means.family)} limited { over 1 kbytes; }`,
    `insert rule ${table(means.family)} ${means.pick(means.table.chains).name} counter name counted quota name limited drop`,
  ],
  "a map of objects": (means) => [
    `add counter ${table(means.family)} counted`,
    `add map ${table(means.family)} objects { type mark : counter; elements = { 1 : "counted" }; }`,
    `insert rule ${table(means.family)} ${means.pick(means.table.chains).name} counter name meta mark map @objects`,
  ],
  "a flowtable": ({ family }) => [`add flowtable ${table(family)} ft { hook ingress priority 0; devices = { eth0 }; }`],
  "another comment": ({ family }) => [
    `delete table ${table(family)}`,
    `add table ${table(family)} { comment "theirs"; }`,
  ],
  "another table under our name": (means) => {
    const {
      family,
      table: { chains, sets, maps },
      pick,
    } = means;
    const name = table(family);
    const chain = pick(chains).name;
    return [
      `delete table ${name}`,
      pick([`add table ${name}`, `add table ${name} { flags dormant; }`, `add table ${name} { comment "theirs"; }`]),
      `add chain ${name} ${chain} { ${baseSpec(means)} }`,
      `add map ${name} ${pick(maps)} { type ipv4_addr : verdict; }`,
      ...(sets.length > 0 ? [`add set ${name} ${pick(sets)} { type mark; }`] : []),
      `add counter ${name} services`,
      `add chain ${name} theirs`,
      `add rule ${name} theirs jump { counter; drop; }`,
      ...(chain === "theirs" ? [] : [`add rule ${name} ${chain} ${destination(means)} jump theirs`]),
    ];
  },
};

/** Definitions of objects, by kind. */
const OBJECTS: Readonly<Record<string, string>> = {
  quota: "over 10 mbytes;",
  limit: "rate 400/minute;",
  "ct helper": 'type "ftp" protocol tcp;',
  synproxy: "mss 1460; wscale 7;",
  "ct timeout": "protocol tcp; policy = { established : 132 };",
};

/** One to three damages to one family's table, one after the other. The kind of the first one is the turn's, the others are random. */
export function corruption(
  random: () => number,
  family: Family,
  content: TableContent,
  turn: number,
): { name: string; script: string }[] {
  const below = (end: number): number => Math.floor(random() * end);
  const pick = <T>(items: readonly T[]): T => items[below(items.length)];
  const means: Means = { family, table: content, pick, below };
  const names = Object.keys(DAMAGES);
  return Array.from({ length: 1 + (below(3) === 0 ? 1 + below(2) : 0) }, (_, i) => {
    const name = i === 0 ? names[turn % names.length] : pick(names);
    return { name, script: DAMAGES[name](means).join("\n") };
  });
}
