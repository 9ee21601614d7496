/**
 * New chains, a transaction before what leads to them.
 *
 * A packet takes the rules of the generation in which it entered a base chain (nft_do_chain reads `gencursor` once), but
 * each look-up in a map reads the generation anew. One that is under way while a transaction takes effect may so find the new
 * verdict, or data that leads to one, and run the chain that it names in the old generation. A chain that the same transaction created
 * is empty there: the packet would pass unrewritten. Nothing goes to a new chain before its verdict, so creating it first does no harm.
 *
 * Where elements go ahead in pieces the chains go before them, whether packets come by or not: the kernel looks at all elements of a
 * map for each rule that comes to name it.
 */
import type { Captured } from "./capture.js";
import { chainServes, type PlanInput } from "./plan.js";
import { type KernelState, packetsComeBy } from "./state.js";

/**
 * The new chains without a hook, and the sets that their rules name, empty for now. Those whose rules name what is made anew can only come
 * with it. Undefined: there are none, or all goes in one transaction.
 */
export function targetsFirst(
  { chains, sets }: Captured,
  state: KernelState,
): Pick<PlanInput, "chains" | "sets"> | undefined {
  if (!packetsComeBy(state) && !sets.some(({ ahead }) => ahead)) return undefined;
  const anew = new Set(sets.filter(({ action }) => action === "recreate").map(({ name }) => `set ${name}`));
  for (const { name, wanted } of chains) {
    const kernel = state.chains.get(name);
    if (kernel !== undefined && wanted !== undefined && !chainServes(kernel, wanted)) anew.add(`chain ${name}`);
  }
  const named = new Set<string>();
  const first = chains.filter(({ name, wanted }) => {
    if (wanted === undefined || wanted.spec.base !== undefined || state.chains.has(name)) return false;
    const refs = wanted.rules.flatMap((rule) => rule.refs);
    const waits = refs.some(
      (ref) => ref.sets.some((set) => anew.has(`set ${set}`)) || ref.chains.some((chain) => anew.has(`chain ${chain}`)),
    );
    if (!waits) for (const set of refs.flatMap((ref) => ref.sets)) named.add(set);
    return !waits;
  });
  if (first.length === 0) return undefined;
  const empty = sets.flatMap(({ taken: _, ...set }) => (named.has(set.name) && set.action === "create" ? [set] : []));
  return { chains: first, sets: empty };
}
