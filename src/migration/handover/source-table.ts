/** Reads the active rules that translate packets from the kernel. */
import { jumpTarget } from "../jump-target.js";
import { sideBySide } from "../../base/side-by-side.js";
import { DATA_VERDICT, ElementFlag, SetFlag } from "../../nft/kernel/constants.js";
import { batchLayout } from "../../nft/kernel/element-batch.js";
import type { ChainInfo, ElementBatch, Expr, Kernel, RuleInfo, SetDump, TableRef } from "../../nft/kernel/kernel.js";

/** A table without its elements. */
export interface SourceTable {
  readonly ref: TableRef;
  readonly chains: ReadonlyMap<string, ChainInfo>;
  /** By chain. */
  readonly rules: ReadonlyMap<string, readonly RuleInfo[]>;
  readonly sets: ReadonlyMap<string, SetDump>;
}

/** The chains and sets that rules lead to. */
export interface Reached {
  /** Chains without a hook. */
  readonly chains: ReadonlySet<string>;
  /** Includes anonymous sets. Sets that only packets can fill have no elements here. */
  readonly sets: ReadonlyMap<string, ElementBatch | undefined>;
}

type Rules = readonly Pick<RuleInfo, "exprs">[];

/** Number of sets to read at a time. The kernel walks each on its own thread, if a core is free. */
const READERS = 2;

export async function readSource(kernel: Kernel, ref: TableRef): Promise<SourceTable> {
  const chains = await kernel.chains(ref);
  const sets = await kernel.sets(ref);
  const rules = Map.groupBy(await kernel.rules(ref), ({ chain }) => chain);
  return {
    ref,
    chains: new Map(chains.map((chain) => [chain.chain, chain])),
    rules,
    sets: new Map(sets.map((set) => [set.set, set])),
  };
}

/** Follows `from` through all chains, and reads the elements of all sets on the way. */
export async function readReached(kernel: Kernel, source: SourceTable, from: Rules): Promise<Reached> {
  const { ref, rules, sets } = source;
  const chains = new Set<string>();
  const found = new Set<string>();
  const elements = new Map<string, ElementBatch>();
  const follow = (some: Rules): void => {
    for (const rule of some) {
      for (const set of rule.exprs.map(setOf)) if (set !== undefined) found.add(set);
      const chain = jumpTarget(rule);
      if (chain === undefined || chains.has(chain)) continue;
      chains.add(chain);
      follow(rules.get(chain) ?? []);
    }
  };
  follow(from);
  // Verdict maps lead to further chains and maps. Iterating a Set also visits elements added meanwhile.
  for (const name of found) {
    const set = sets.get(name);
    if (set === undefined || !holdsVerdicts(set)) continue;
    const batch = await kernel.elements(ref, set);
    elements.set(name, batch);
    follow((batch.verdicts ?? []).map((data) => ({ exprs: [{ type: "immediate", dreg: 0, data }] })));
  }
  const filled = filledByPackets([...chains].flatMap((chain) => rules.get(chain) ?? []));
  const unread = [...found].flatMap((name) => {
    const set = sets.get(name);
    return set === undefined || elements.has(name) || filled.has(name) ? [] : [set];
  });
  await sideBySide(unread, READERS, async (set) => {
    // Omits their counters, because the copy has none.
    const { exprs: _, ...plain } = set;
    const batch = await kernel.elements(set, plain);
    elements.set(set.set, (set.flags & SetFlag.interval) === 0 ? batch : inOrder(batch));
  });
  return { chains, sets: new Map([...found].map((name) => [name, elements.get(name)])) };
}

/**
 * Returns ranges in ascending order, each with its start before its end, as nft adds them. The kernel dumps them in
 * reverse.
 */
function inOrder(batch: ElementBatch): ElementBatch {
  const { stride, flags } = batchLayout(batch);
  const records = Array.from({ length: batch.count }, (_, i) => {
    const bytes = batch.bytes.subarray(i * stride, (i + 1) * stride);
    const end = flags >= 0 && bytes.subarray(flags, flags + 4).some((byte) => byte === ElementFlag.intervalEnd);
    return { bytes, key: bytes.subarray(0, batch.keyLen), end };
  });
  records.sort((a, b) => Buffer.compare(a.key, b.key) || Number(b.end) - Number(a.end));
  return { ...batch, bytes: Buffer.concat(records.map(({ bytes }) => bytes)) };
}

/**
 * Returns sets whose elements have expressions that a rule added (limits of connections). A dump does not contain
 * those.
 */
function filledByPackets(rules: Rules): ReadonlySet<string> {
  const counting = rules
    .flatMap(({ exprs }) => exprs)
    .flatMap((expr) => (expr.type === "dynset" && expr.exprs !== undefined && expr.exprs.length > 0 ? expr.set : []));
  return new Set(counting);
}

/** Returns the set that an expression looks up or fills. */
export function setOf(expr: Expr): string | undefined {
  return expr.type === "lookup" || expr.type === "dynset" ? expr.set : undefined;
}

export function holdsVerdicts({ dataType }: Pick<SetDump, "dataType">): boolean {
  return dataType === DATA_VERDICT;
}
