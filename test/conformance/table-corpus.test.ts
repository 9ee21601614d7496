/**
 * A corpus of rules over all families, fields, statements and orders: nft reads the text that we print, and the kernel must hold the same expressions for
 * both. What we print for nft's expressions is what nft lists (table/listed-rules.ts). Rules that differ on purpose are listed here, with the reason.
 */
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { normalizeExpr } from "../../src/netlink/normalize.js";
import type { BaseChain, Expr, Family, TableRef } from "../../src/netlink/kernel.js";
import { anonymousContent } from "../../src/table/rules/diff.js";
import type { Statement } from "../../src/table/rules/rule.js";
import { printRule } from "../../src/table/rules/statements.js";
import { Table, TableError } from "../../src/table/table-exports.js";
import { atLength } from "../lab/length.ts";
import { Dice } from "../support/dice.ts";
import type { KernelWorld } from "../support/kernel-world.ts";
import { makeNamespace, openReal, type Namespace } from "../support/real-kernel.ts";
import { CORPUS, setsOfCorpus } from "./table/corpus.ts";
import { listedRules, unexplained } from "./table/listed-rules.ts";
import { loadRules, nft } from "./table/load-rules.ts";
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
  { text: /\blast\b/, why: /unexpected (newline|string|\w+)/, reason: "nft 1.0.6 does not know last" },
  { text: /\bqueue /, why: /ENOENT/, reason: "this kernel has no queues" },
  { text: /\bct /, why: /EPROTO/, reason: "this kernel has no connections in bridges" },
  { text: /meta [io]brname/, why: /EOPNOTSUPP/, reason: "this kernel has no bridge fields" },
];

interface Outcome {
  readonly text: string;
  readonly difference?: readonly [ours: string, theirs: string];
  readonly refusedByNft?: string;
}

/** The expressions of all rules, by chain, with anonymous sets by their content. */
async function held(ref: TableRef): Promise<Map<string, string>> {
  const sets = new Map((await world.kernel.sets(ref)).map((set) => [set.set, set]));
  const result = new Map<string, string>();
  for (const { chain, exprs } of await world.kernel.rules(ref)) {
    const canonical: Expr[] = [];
    for (const expr of exprs) {
      const set = expr.type === "lookup" ? sets.get(expr.set) : undefined;
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
  return result;
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
    for (const spec of sets) table.set(spec);
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
  await ours.destroy();
  const listed = await listedRules(world.kernel, namespace);
  printed += listed.length;
  await tableOf("theirs", all).destroy();
  expect(unexplained(listed).join("\n"), `${family}, seed ${SEED}`).toBe("");
  return texts.map((text, index) => {
    const why = refused.get(index);
    if (why !== undefined) return { text, refusedByNft: why };
    const [a = "", b = ""] = [mine.get(`c${index}`), theirs.get(`c${index}`)];
    return a === b ? { text } : { text, difference: [a, b] };
  });
}

/** Whether we accept the rule. */
function isAccepted(family: Family, statements: readonly Statement[]): boolean {
  const sets = setsOfCorpus(family);
  try {
    printRule({ statements }, { family, setSpec: (name) => sets.find(({ set }) => set === name) });
    return true;
  } catch (error) {
    if (error instanceof RangeError) return false;
    throw error;
  }
}

/** Compares rules in batches. */
async function agree(family: Family, rules: readonly (readonly Statement[])[]): Promise<void> {
  const wrong: string[] = [];
  for (let from = 0; from < rules.length; from += 500) {
    for (const { text, difference, refusedByNft } of await compare(family, rules.slice(from, from + 500))) {
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
