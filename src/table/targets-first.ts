/**
 * New chains, a transaction before the verdicts that go to them.
 *
 * A packet takes the rules of the generation in which it entered a base chain (nft_do_chain reads `gencursor` once), but
 * each look-up in a map reads the generation anew. One that is under way while a transaction takes effect may so find the new
 * verdict, and run the chain that it names in the old generation. A chain that the same transaction created is empty
 * there: the packet would pass unrewritten. Nothing goes to a new chain before its verdict, so creating it first does no harm.
 */
import { buildPlan, type Plan, type PlanInput, type SetPlan } from "./plan.js";
import { serves, setInfo, sizeFor } from "./schema.js";
import type { KernelState } from "./state.js";
import type { WantedChain } from "./prepare.js";
import type { WantedState } from "./wanted.js";

/** Whether the kernel's verdicts are about to change: only then is there anybody to protect. */
function changesVerdicts(wanted: WantedState): boolean {
  for (const name of wanted.watched) {
    const elements = wanted.sets.get(name)?.elements;
    if (elements?.spec.data === "verdict" && elements.dirty && elements.kernelSize > 0) return true;
  }
  return false;
}

/** New chains without a hook, as far as all that their rules name is in the kernel or comes with them. */
function newChains(wanted: WantedState, state: KernelState): Map<string, WantedChain> {
  const chains = new Map<string, WantedChain>();
  for (const name of wanted.dirtyChains) {
    const chain = wanted.chains.get(name);
    if (chain !== undefined && chain.spec.base === undefined && !state.chains.has(name)) chains.set(name, chain);
  }
  const usable = (set: string): boolean => {
    const spec = wanted.sets.get(set)?.elements.spec;
    const kernel = state.sets.get(set);
    return spec !== undefined && (kernel === undefined || serves(kernel, spec));
  };
  for (let before = -1; before !== chains.size;) {
    before = chains.size;
    for (const [name, { rules }] of chains) {
      const complete = rules.every(
        ({ refs }) =>
          refs.sets.every(usable) && refs.chains.every((target) => chains.has(target) || state.chains.has(target)),
      );
      if (!complete) chains.delete(name);
    }
  }
  return chains;
}

function newSets(chains: ReadonlyMap<string, WantedChain>, wanted: WantedState, state: KernelState): SetPlan[] {
  const names = new Set([...chains.values()].flatMap(({ rules }) => rules.flatMap(({ refs }) => refs.sets)));
  return [...names].flatMap((name): SetPlan[] => {
    const elements = wanted.sets.get(name)?.elements;
    if (elements === undefined || state.sets.has(name)) return [];
    const info = setInfo(elements.spec, sizeFor(elements.spec, elements.size));
    return [{ name, action: "create", info, holdsChains: false, kernelElements: 0 }];
  });
}

/** The transaction that goes first; undefined when none is needed. Sets in it stay empty. */
export function planTargetsFirst(
  input: Omit<PlanInput, "chains" | "sets" | "flushMaps">,
  wanted: WantedState,
): Plan | undefined {
  const { state } = input;
  if (state.table === undefined || wanted.dirtyChains.size === 0 || !changesVerdicts(wanted)) return undefined;
  const chains = newChains(wanted, state);
  if (chains.size === 0) return undefined;
  return buildPlan({
    ...input,
    chains: [...chains].map(([name, chain]) => ({ name, wanted: chain, rebuild: false })),
    sets: newSets(chains, wanted, state),
    flushMaps: false,
  });
}
