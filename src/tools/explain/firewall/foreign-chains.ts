/** Other programs' base chains, with the mark bits that their rules set. */
import { FLOWTABLE_REF } from "../../../flowtable/operations.js";
import { MetaKey, TableFlag, VERDICT_REGISTER } from "../../../nft/kernel/constants.js";
import type { Expr, RuleInfo } from "../../../nft/kernel/kernel.js";
import type { IpFamily } from "../../../base/ip.js";
import { HANDOVER_TABLE, TABLE_NAME } from "../../../ruleset/names.js";
import { branchOf } from "../machine/branch.js";
import { evaluate } from "../machine/expressions.js";
import type { HookedChain } from "../machine/hooks.js";
import type { World } from "../machine/machine-world.js";
import { PacketState } from "../machine/packet-state.js";
import { RuleContext } from "../machine/rule-context.js";
import { wordOf } from "../machine/bits.js";
import { worldOf } from "../world/node-world.js";
import { type RoutedKernel, Routing } from "../world/routing.js";

/** A base chain of another program. */
export interface ForeignChain extends Omit<HookedChain, "point"> {
  /** Bits of the packet mark that rules set, by chain: in it and in the chains that it leads to. */
  readonly markBits: ReadonlyMap<string, number>;
}

/** nft-proxier's own tables. kube-proxy's table has the same name as one of them. */
export const OWN_TABLES: readonly string[] = [TABLE_NAME, HANDOVER_TABLE, FLOWTABLE_REF.table];

/** Maximum number of chains to read from one base chain. More would take too long. */
const MOST_CHAINS = 500;

/** @param isMet whether packets meet a rule. By default, they meet all. Rejects with KernelError. */
export async function readForeignChains(
  kernel: RoutedKernel,
  families: readonly IpFamily[],
  isMet: (rule: RuleInfo) => boolean = () => true,
): Promise<ForeignChain[]> {
  const found: ForeignChain[] = [];
  const world = worldOf(kernel, "ip", new Routing(kernel), () => false);
  for (const { family, table, flags } of await kernel.tables()) {
    const concerned = family === "inet" || ((family === "ip" || family === "ip6") && families.includes(family));
    if (!concerned || OWN_TABLES.includes(table) || (flags & TableFlag.dormant) !== 0) continue;
    const ref = { family, table };
    const read = async (chain: string): Promise<RuleInfo[]> => (await kernel.rules(ref, chain)).filter(isMet);
    for (const { chain, base } of await kernel.chains(ref)) {
      if (base !== undefined) found.push({ ref, chain, base, markBits: await markBitsFrom(chain, read, world) });
    }
  }
  return found;
}

/** Returns the bits that rules set, by chain, in all chains that packets meet from a base chain on. */
async function markBitsFrom(
  chain: string,
  read: (chain: string) => Promise<readonly RuleInfo[]>,
  world: World,
): Promise<Map<string, number>> {
  const markBits = new Map<string, number>();
  const seen = new Set([chain]);
  // Iterating a Set also visits elements added meanwhile.
  for (const one of seen) {
    if (seen.size > MOST_CHAINS) break;
    for (const rule of await read(one)) {
      for (const expr of rule.exprs) {
        if (expr.type === "immediate" && "verdict" in expr.data && "chain" in expr.data) seen.add(expr.data.chain);
      }
      const bits = await markBitsSet(rule, world);
      if (bits !== 0) markBits.set(one, (markBits.get(one) ?? 0) | bits);
    }
  }
  return markBits;
}

/** Expressions whose results are in the rule itself. */
const OWN_VALUES: readonly Expr["type"][] = ["immediate", "meta", "bitwise", "opaque"];

const isWriting = (expr: Expr): boolean =>
  expr.type === "meta" ? expr.key === MetaKey.mark && expr.dreg === undefined : expr.type === "opaque";

/** Returns the bits that a rule sets or flips in a mark that is 0. A value that is not in the rule, such as a stored mark, counts as none. */
export async function markBitsSet(rule: RuleInfo, world: World): Promise<number> {
  const { family, table, chain, exprs } = rule;
  if (!exprs.some(isWriting)) return 0;
  const begin = branchOf(new PacketState({ family: "ip", protocol: "tcp" }));
  const run = new RuleContext(world, { hook: "", ref: { family, table }, chain, rule }, begin);
  for (const expr of exprs) {
    if (OWN_VALUES.includes(expr.type)) await evaluate(expr, run);
    else if ("dreg" in expr && expr.dreg !== VERDICT_REGISTER) run.writeUnknown(expr.dreg);
  }
  return wordOf(run.state.mark)[0];
}
