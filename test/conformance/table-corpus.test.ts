/**
 * A corpus of rules over all families, fields, statements and orders: nft reads the text that we print. The kernel must hold the same expressions for both,
 * sets must have the same user data, and nft must list both with the same text. We must print nft's expressions as nft lists them (table/listed-rules.ts).
 * Rules that differ on purpose are listed here, with the reason.
 *
 * With CORPUS_NFT, the name of a suite of Debian, another nft loads and lists. Only lists and our text are compared, because later versions write other
 * expressions and user data for the same text. test:nft fetches it.
 */
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { normalizeExpr } from "../../src/nft/kernel/normalize.js";
import type { BaseChain, Expr, Family, TableRef } from "../../src/nft/kernel/kernel.js";
import { anonymousContent } from "../../src/nft/sync/diff.js";
import type { Statement } from "../../src/nft/statements/rule.js";
import { FieldError } from "../../src/nft/language/fields/field-error.js";
import { printRule } from "../../src/nft/statements/lower-rule.js";
import { Table, TableError } from "../../src/nft/engine-exports.js";
import { atLength } from "../lab/length.ts";
import { Dice } from "../support/dice.ts";
import type { KernelWorld } from "../support/kernel-world.ts";
import { makeNamespace, openReal, type Namespace } from "../support/real-kernel.ts";
import { CORPUS, setsOfCorpus } from "./table/corpus.ts";
import { listedRules, unexplained } from "./table/listed-rules.ts";
import { loadRules, nft, runNft, SUITE } from "./table/load-rules.ts";
import { comparisonOf, FAMILIES, FORMS, keyOf, NAMES, randomRule } from "./table/rule-generator.ts";

const SEED = Number(process.env.FUZZ_SEED ?? 20_261_128);
const RANDOM_RULES = Number(process.env.CORPUS_RULES ?? atLength({ short: 500, usual: 2_000, nightly: 10_000 }));

let namespace: Namespace;
let world: KernelWorld;
beforeAll(async () => {
  namespace = await makeNamespace();
  world = await openReal(() => namespace)();
});
afterAll(async () => {
  console.log(`${printed} rules printed as nft lists them`);
  await world.close();
  await namespace.remove();
});

/** Returns the list of nft for each chain, set and map of the table. */
function listed({ family, table }: TableRef): Map<string, string> {
  const { status, signal, stdout, stderr } = runNft(namespace, ["-s", "list", "table", family, table]);
  expect({ status, signal }, `nft list table ${family} ${table}: ${stderr}`).toEqual({ status: 0, signal: null });
  const blocks = stdout.matchAll(/^\t(?:chain|set|map) (\S+) \{\n(.*?)^\t\}/gms);
  return new Map([...blocks].map(([, name, text]) => [name, text.trim()]));
}

function baseOf(family: Family): BaseChain {
  return family === "netdev"
    ? { type: "filter", hook: 0, priority: 0, devices: ["lo"] }
    : { type: "filter", hook: family === "arp" ? 0 : 1, priority: 0 };
}

/** These rules differ on purpose, or this kernel lacks what they need. */
interface KnownDifference {
  readonly text: RegExp;
  readonly why: RegExp;
  /** nft's expressions are fewer. */
  readonly isShorter?: true;
  readonly reason: string;
}
const KNOWN: readonly KnownDifference[] = [
  {
    text: / (counter|set|limit|log|quota) .* /,
    why: /differs/,
    isShorter: true,
    reason:
      "nft 1.0.6 joins comparisons of neighbouring fields across actions, which then take place for fewer packets",
  },
  {
    text: /vlan/,
    why: /ether vs. vlan/,
    reason: "nft takes a VLAN's fields in some places only; the kernel takes any order",
  },
  {
    text: /meta protocol (vlan|8021)/,
    why: /vlan vs/,
    reason: "after a comparison of the protocol with a VLAN's, nft takes no fields of the packet inside",
  },
  {
    text: /ct protocol \w/,
    why: /conflicting protocols|differs/,
    reason: "nft takes the connection's protocol for the packet's, but an ICMP error belongs to a connection of TCP",
  },
  {
    text: /!= (?!\{).* != (?!\{)/,
    why: /differs/,
    isShorter: true,
    reason: "nft 1.0.6 joins two != of neighbouring fields to one, which means either",
  },
  {
    text: /(nexthdr|protocol|l4proto|l3proto|nfproto|type) (!= )?\{/,
    why: /conflicting protocols|ambiguous|cannot use|will not match|differs/,
    reason: "nft takes one of several protocols for the only one",
  },
  {
    text: /iiftype (?!ether\b)\w|(nfproto|protocol|ether type|vlan type) \d/,
    why: /unknown vs|ambiguous/,
    reason: "after a comparison with a number that nft does not know, it takes no fields of what is inside",
  },
  {
    text: /ct (original|reply) ip6? [sd]addr/,
    why: /conflicting protocols/,
    reason: "nft takes the IP version of the connection's addresses for the packet's",
  },
  {
    text: /icmpv6.* \. (hbh|rt|frag|dst|mh) \w+ /,
    why: /differs/,
    reason: "for a tuple with an extension header, we test the packet's protocol, and nft tests the Ethernet type, too",
  },
  { text: /\blast\b/, why: /unexpected (newline|string|\w+)/, reason: "nft 1.0.6 does not know last" },
  { text: /\bqueue /, why: /ENOENT/, reason: "this kernel has no queues" },
  { text: /\bct /, why: /EPROTO/, reason: "this kernel has no connections in bridges" },
  { text: /meta [io]brname/, why: /EOPNOTSUPP/, reason: "this kernel has no bridge fields" },
];

/** nft lists its own rules wrongly here, and ours as they are. */
const WRONG_LISTS: readonly { readonly text: RegExp; readonly aborts?: boolean; readonly reason: string }[] = [
  {
    text: / \. .*\{.*[-/].*\}/,
    aborts: true,
    reason:
      "if a tuple has ranges, nft writes no types from the first field on whose byte order it changes, and lists zeros or aborts",
  },
  {
    text: tuplesOf("ip6? version", "vlan (pcp|dei)", "tcp doff", "ip dscp", "ip6 ecn", "dccp type"),
    aborts: true,
    reason: "nft 1.0.6 writes no types of a tuple with a field that it shifts, and aborts if there is an integer in it",
  },
  {
    text: /(option [a-z0-9-]+|exthdr \w+|meta ipsec) (!= )?\d/,
    reason: "nft 1.1 takes any number for the presence of a header",
  },
  {
    text: /(original|reply) proto-/,
    aborts: true,
    reason: "nft does not find the type of a connection's port, and aborts if there is an integer beside it",
  },
  {
    text: /^(ip saddr|ether daddr|ether type) \{ [0.:x]+1, /,
    reason: "a raw field at the place of a named one is printed by its name, and its set keeps numbers without a type",
  },
  {
    text: /\b(\w+) (sport|dport|checksum)\b.* \. .*\b\1 \w+|\b(\w+) \w+ .*\b\3 (sport|dport|checksum) ([.{]|!= \{)/,
    reason:
      "if another field of the rule tells the protocol, the ports of th are printed as fields of its header, whose type nft writes",
  },
  {
    text: / set \S.* \. .* map \{/,
    aborts: true,
    reason:
      "nft writes no type of a map's values, ignores the types of its keys then, and aborts if one of these is an integer",
  },
];

/** Matches tuples with one of the fields. */
function tuplesOf(...fields: readonly string[]): RegExp {
  return new RegExp(`(${fields.join("|")}) \\. | \\. (${fields.join("|")}) [.{!]`);
}

type Pair = readonly [ours: string, theirs: string];

interface Outcome {
  readonly text: string;
  readonly difference?: Pair | undefined;
  /** The lists of nft, if they differ. */
  readonly listings?: Pair | undefined;
  /** The user data of the anonymous sets, if they differ. */
  readonly userdata?: Pair | undefined;
  readonly refusedByNft?: string;
}

interface Held {
  /** The expressions of all rules, by chain, with anonymous sets by their content. */
  readonly rules: ReadonlyMap<string, string>;
  /** The user data of anonymous sets, by chain. */
  readonly userdata: ReadonlyMap<string, string>;
}

async function held(ref: TableRef): Promise<Held> {
  const sets = new Map((await world.kernel.sets(ref)).map((set) => [set.set, set]));
  const result = new Map<string, string>();
  const userdata = new Map<string, string>();
  for (const { chain, exprs } of await world.kernel.rules(ref)) {
    const canonical: Expr[] = [];
    for (const expr of exprs) {
      const set = expr.type === "lookup" ? sets.get(expr.set) : undefined;
      if (set !== undefined && (set.flags & 1) !== 0)
        userdata.set(chain, `${userdata.get(chain) ?? ""} ${Buffer.from(set.userdata ?? []).toString("hex")}`);
      const content =
        set !== undefined && (set.flags & 1) !== 0
          ? anonymousContent(set, await world.kernel.elements(ref, set))
          : undefined;
      canonical.push(normalizeExpr(expr.type === "lookup" && content !== undefined ? { ...expr, set: content } : expr));
    }
    result.set(
      chain,
      JSON.stringify(canonical, (_, value: unknown) =>
        typeof value === "bigint"
          ? `${value}n`
          : value instanceof Uint8Array
            ? Buffer.from(value).toString("hex")
            : value,
      ),
    );
  }
  return { rules: result, userdata };
}

const nftLines: string[] = [];
/** Rules whose text was compared with nft's list. */
let printed = 0;

/** Applies the rules. The kernel may refuse some, which we should have refused: they are reported. */
async function applied(
  tableOf: (wanted: ReadonlySet<number>) => Table,
  all: ReadonlySet<number>,
  refused: Map<number, string>,
): Promise<Table> {
  for (;;) {
    const table = tableOf(new Set([...all].filter((index) => !refused.has(index))));
    try {
      await table.apply();
      return table;
    } catch (error) {
      if (!(error instanceof TableError)) throw error;
      const chains = error.faulty.flatMap(({ chain, errno, text }) =>
        chain === undefined ? [] : [[chain, `the kernel: ${errno} ${text}`] as const],
      );
      if (chains.length === 0) throw error;
      for (const [chain, why] of chains) refused.set(Number(chain.slice(1)), why);
    }
  }
}

/** Writes the rules twice, once ourselves, once by nft from our text, and compares. */
async function compare(family: Family, rules: readonly (readonly Statement[])[]): Promise<Outcome[]> {
  const sets = setsOfCorpus(family);
  const setSpec = (name: string) => sets.find(({ set }) => set === name);
  const texts = rules.map((statements) => printRule({ statements }, { family, setSpec }));
  const tableOf = (name: string, wanted: ReadonlySet<number>): Table => {
    const table = new Table(world.kernel, { family, name });
    for (const spec of sets) table.packedSet(spec);
    table.chain({ chain: "target", rules: [] });
    table.chain({ chain: "base", base: baseOf(family), rules: [] });
    for (const [index, statements] of rules.entries())
      if (wanted.has(index)) table.chain({ chain: `c${index}`, rules: [{ statements }] });
    return table;
  };
  const refused = new Map<number, string>();
  const all = new Set(rules.keys());
  const ours = await applied((wanted) => tableOf("ours", wanted), all, refused);
  expect(nft(namespace, tableOf("theirs", new Set()).render())).toBeUndefined();
  const lines = [...all].filter((index) => !refused.has(index));
  for (const index of lines) nftLines.push(`add chain ${family} theirs c${index}`);
  expect(nft(namespace, nftLines.splice(0).join("\n"))).toBeUndefined();
  loadRules(namespace, lines, (index) => `add rule ${family} theirs c${index} ${texts[index]}`, refused);
  const [mine, theirs] = [await held({ family, table: "ours" }), await held({ family, table: "theirs" })];
  const myLists = listed({ family, table: "ours" });
  const aborting = lines.filter((index) =>
    WRONG_LISTS.some(({ text, aborts }) => aborts === true && text.test(texts[index])),
  );
  const flushed = aborting.map((index) => `flush chain ${family} theirs c${index}\n`);
  expect(nft(namespace, flushed.join(""))).toBeUndefined();
  const theirLists = listed({ family, table: "theirs" });
  const again = aborting.filter((index) => !refused.has(index));
  loadRules(namespace, again, (index) => `add rule ${family} theirs c${index} ${texts[index]}`, refused);
  for (const { set } of sets) expect(myLists.get(set)).toBe(theirLists.get(set));
  await ours.destroy();
  const theirRules = await listedRules(world.kernel, namespace);
  printed += theirRules.length;
  await tableOf("theirs", all).destroy();
  expect(unexplained(theirRules).join("\n"), `${family}, seed ${SEED}`).toBe("");
  return texts.map((text, index) => {
    const refusal = refused.get(index);
    if (refusal !== undefined) return { text, refusedByNft: refusal };
    const both = (a: ReadonlyMap<string, string>, b: ReadonlyMap<string, string>): Pair | undefined => {
      const pair = [a.get(`c${index}`) ?? "", b.get(`c${index}`) ?? ""] as const;
      return pair[0] === pair[1] ? undefined : pair;
    };
    if (SUITE === undefined) {
      const difference = both(mine.rules, theirs.rules);
      if (difference !== undefined) return { text, difference };
    }
    if (WRONG_LISTS.some((wrong) => wrong.text.test(text))) return { text };
    const listings = both(myLists, theirLists);
    return SUITE === undefined
      ? { text, listings, userdata: both(mine.userdata, theirs.userdata) }
      : { text, listings };
  });
}

/** Whether we accept the rule. */
function isAccepted(family: Family, statements: readonly Statement[]): boolean {
  const sets = setsOfCorpus(family);
  try {
    printRule({ statements }, { family, setSpec: (name) => sets.find(({ set }) => set === name) });
    return true;
  } catch (error) {
    if (error instanceof FieldError) return false;
    throw error;
  }
}

/** Compares rules in batches. */
async function agree(family: Family, rules: readonly (readonly Statement[])[]): Promise<void> {
  const wrong: string[] = [];
  for (let from = 0; from < rules.length; from += 500) {
    for (const { text, difference, listings, userdata, refusedByNft } of await compare(
      family,
      rules.slice(from, from + 500),
    )) {
      if (listings !== undefined) wrong.push(`listed: ${text}\n    ours:   ${listings[0]}\n    theirs: ${listings[1]}`);
      if (userdata !== undefined)
        wrong.push(`user data: ${text}\n    ours:   ${userdata[0]}\n    theirs: ${userdata[1]}`);
      if (difference === undefined && refusedByNft === undefined) continue;
      const isShorter = difference !== undefined && difference[1].length < difference[0].length;
      const isKnown = KNOWN.some(
        (known) =>
          known.text.test(text) && known.why.test(refusedByNft ?? "differs") && (known.isShorter !== true || isShorter),
      );
      if (isKnown) continue;
      if (refusedByNft !== undefined) wrong.push(`nft refuses: ${text}\n    ${refusedByNft}`);
      if (difference !== undefined)
        wrong.push(`differs: ${text}\n    ours:   ${difference[0]}\n    theirs: ${difference[1]}`);
    }
  }
  expect(wrong.join("\n"), `${family}, seed ${SEED}`).toBe("");
}

/** Rules that we accept, from a generator that also makes others. */
function accepted(family: Family, count: number, make: () => readonly Statement[]): (readonly Statement[])[] {
  const rules: (readonly Statement[])[] = [];
  for (let tries = 0; rules.length < count && tries < count * 20; tries++) {
    const rule = make();
    if (isAccepted(family, rule)) rules.push(rule);
  }
  return rules;
}

describe.each(FAMILIES)("family %s", (family) => {
  it("each field, in each form of comparison", async () => {
    const dice = new Dice(SEED);
    const rules = NAMES.flatMap((name) =>
      FORMS.flatMap((form) => {
        const one = comparisonOf(name, form, dice);
        return one !== undefined && isAccepted(family, [one]) ? [[one]] : [];
      }),
    );
    await agree(family, rules);
    console.log(`${family}: ${rules.length} comparisons, of ${NAMES.length} fields`);
    expect(rules.length).toBeGreaterThan(50);
  }, 120_000);

  it("keys of several fields, in any order", async () => {
    const dice = new Dice(SEED + 1);
    await agree(
      family,
      accepted(family, 200, () => [keyOf(dice)]),
    );
  }, 120_000);

  it("statements of our own writing", async () => {
    const rules = CORPUS.filter(({ families }) => families.includes(family)).map(({ statements }) => statements);
    await agree(family, rules);
    console.log(`${family}: ${rules.length} rules of our own writing`);
  }, 120_000);

  it("random rules", async () => {
    const dice = new Dice(SEED + 2);
    const rules = accepted(family, Math.ceil(RANDOM_RULES / FAMILIES.length), () => randomRule(dice));
    await agree(family, rules);
    console.log(`${family}: ${rules.length} random rules, seed ${SEED}`);
  }, 600_000);
});
