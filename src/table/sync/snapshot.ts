/** Freezes what is desired at one moment, and decides per object what becomes of it. Synchronous. */
import type { TrackedElements } from "../elements/element-set.js";
import { fitsSize, serves, setInfo, sizeFor } from "../rules/schema.js";
import type { DesiredState, DirtyNames } from "./desired.js";
import { chainServes, type ChainPlan, type SetPlan } from "./plan.js";
import { type KernelState, packetsComeBy } from "./dump.js";

export interface SetSnapshot extends Omit<SetPlan, "change"> {
  /** Its elements were taken: pack them, then settle or abort. */
  readonly taken?: TrackedElements;
  /** About as many are to be added. */
  readonly additions: number;
  /** Its elements go ahead of the transaction that brings the rest: see make-before-break.ts. */
  ahead: boolean;
}

export interface Snapshot {
  readonly dirty: DirtyNames;
  readonly chains: readonly ChainPlan[];
  readonly sets: readonly SetSnapshot[];
  /** Sets that were removed and are gone when the transaction is in force. */
  readonly retired: readonly string[];
  readonly leftovers: Leftovers;
}

/**
 * Of an earlier owner of the table, not desired, and kept for a grace period. A packet that is under way in its rules goes on by these, but each look-up
 * finds what maps hold by then: it would miss a map that went, named or of a rule's own, and be rejected by ours.
 */
export interface Leftovers {
  readonly sets: ReadonlySet<string>;
  /** Chains without a hook, which elements of those sets may lead to. */
  readonly chains: ReadonlySet<string>;
  /** Those of the chains that keep their rules, with the rules' own maps: nothing that they name goes, or is made anew. */
  readonly intact: ReadonlySet<string>;
}

const NO_LEFTOVERS: Leftovers = { sets: new Set(), chains: new Set(), intact: new Set() };

interface SetFate {
  readonly name: string;
  readonly action: SetPlan["action"];
  /** Undefined: it is not desired. */
  readonly elements: TrackedElements | undefined;
}

/** @param keepLeftovers what is not desired, and packets may be under way in, stays for now. */
export function takeSnapshot(
  desired: DesiredState,
  state: KernelState,
  now: number,
  pieceElements: number,
  keepLeftovers = false,
): Snapshot {
  const dirty = desired.takeDirty();
  for (const name of desired.watched) desired.sets.get(name)?.endGrace(now);
  const replaced = [...dirty.chains].filter((name) => {
    const kernel = state.chains.get(name);
    const target = desired.chains.get(name);
    return kernel !== undefined && target !== undefined && !chainServes(kernel, target);
  });
  const remade = mapsThatName(replaced, desired, state);
  const all = [...new Set([...dirty.sets, ...desired.watched, ...remade])].flatMap((name) =>
    setFate(name, desired, state, remade.has(name)),
  );
  const leftovers =
    keepLeftovers && packetsComeBy(state) ? leftoversAmong(all, dirty.chains, replaced, desired, state) : NO_LEFTOVERS;
  const fates = all.filter(({ name }) => !leftovers.sets.has(name));
  const held = chainsInGrace(dirty.chains, fates, desired, state);
  const going = new Set(replaced);
  for (const name of dirty.chains)
    if (state.chains.has(name) && !desired.chains.has(name) && !leftovers.chains.has(name)) going.add(name);
  for (const name of held) {
    going.delete(name);
    dirty.chains.delete(name);
  }
  desired.heldChains = held;
  releaseChains(going, desired);
  const sets = fates
    .filter(({ name, elements }) => dirty.sets.has(name) || remade.has(name) || elements?.dirty === true)
    .map((fate) => takeSet(fate, desired));
  markAhead(sets, state, pieceElements);
  return {
    dirty,
    chains: planChains(dirty.chains, going, sets, desired, state).filter(({ name }) => !leftovers.intact.has(name)),
    sets,
    retired: [...desired.retired.keys()],
    leftovers,
  };
}

function leftoversAmong(
  fates: readonly SetFate[],
  dirty: ReadonlySet<string>,
  replaced: readonly string[],
  desired: DesiredState,
  state: KernelState,
): Leftovers {
  const sets = new Set(fates.flatMap(({ name, action }) => (action === "delete" ? name : [])));
  if (sets.size === 0) return NO_LEFTOVERS;
  const chains = [...dirty].filter((name) => {
    const kernel = state.chains.get(name);
    return kernel !== undefined && kernel.base === undefined && !desired.chains.has(name);
  });
  const remade = new Set(fates.flatMap(({ name, action }) => (action === "recreate" ? name : [])));
  const intact = chains.filter((name) =>
    state.chains
      .get(name)
      ?.rules.every(
        ({ refs }) => !refs.sets.some((set) => remade.has(set)) && !refs.chains.some((to) => replaced.includes(to)),
      ),
  );
  return { sets, chains: new Set(chains), intact: new Set(intact) };
}

function setFate(name: string, desired: DesiredState, state: KernelState, remade: boolean): SetFate[] {
  const elements = desired.sets.get(name);
  const kernel = state.sets.get(name);
  if (elements === undefined) return kernel === undefined ? [] : [{ name, action: "delete", elements }];
  if (kernel === undefined) return [{ name, action: "create", elements }];
  const fits =
    !remade &&
    !state.unusable.has(name) &&
    serves(kernel, elements.spec) &&
    fitsSize(kernel.size, elements.spec, perRow(elements) * (elements.kernelSize + elements.pendingAdds));
  return [{ name, action: fits ? "keep" : "recreate", elements }];
}

/** A range has a start and an end. */
function perRow({ spec }: TrackedElements): number {
  return spec.interval === true ? 2 : 1;
}

/**
 * Chains that are not desired and stay with their rules, as elements in their grace period lead there, or chains that do: but for those
 * whose rules need what goes.
 */
function chainsInGrace(
  dirty: ReadonlySet<string>,
  fates: readonly SetFate[],
  desired: DesiredState,
  state: KernelState,
): Set<string> {
  const held = new Set<string>();
  const isLeftover = (name: string): boolean =>
    dirty.has(name) && !desired.chains.has(name) && state.chains.get(name)?.base === undefined;
  if (![...dirty].some((name) => state.chains.has(name) && isLeftover(name))) return held;
  for (const elements of desired.sets.values()) {
    if (elements.spec.data !== "verdict") continue;
    for (const chain of elements.deferredTargets()) if (isLeftover(chain)) held.add(chain);
  }
  const refs = (name: string) => state.chains.get(name)?.rules.map((rule) => rule.refs) ?? [];
  for (const name of held) for (const { chains } of refs(name)) chains.filter(isLeftover).forEach((to) => held.add(to));
  const goingSets = new Set(
    fates.flatMap(({ name, action }) => (action === "delete" || action === "recreate" ? name : [])),
  );
  for (let before = -1; before !== held.size;) {
    before = held.size;
    for (const name of held) {
      const works = refs(name).every(
        ({ chains, sets }) =>
          !sets.some((set) => goingSets.has(set)) &&
          chains.every((target) => held.has(target) || (desired.chains.has(target) && state.chains.has(target))),
      );
      if (!works) held.delete(name);
    }
  }
  return held;
}

/** An element in its grace period must not keep a chain busy that goes now. */
function releaseChains(going: ReadonlySet<string>, { sets, watched }: DesiredState): void {
  if (going.size === 0) return;
  for (const name of watched) {
    const elements = sets.get(name);
    if (elements?.spec.data === "verdict") elements.undeferTargets(going);
  }
}

/** Verdict maps with elements that go to a chain which is created anew: they are created anew with it. */
function mapsThatName(chains: readonly string[], desired: DesiredState, state: KernelState): Set<string> {
  const names = new Set<string>();
  if (chains.length === 0) return names;
  const ids = new Set(
    chains.flatMap((chain) => (["goto", "jump"] as const).map((verdict) => desired.verdicts.id({ verdict, chain }))),
  );
  for (const [name, elements] of desired.sets) {
    if (elements.spec.data === "verdict" && state.sets.has(name) && elements.kernelMentions(ids)) names.add(name);
  }
  return names;
}

function takeSet({ name, action, elements }: SetFate, desired: DesiredState): SetSnapshot {
  if (elements === undefined) {
    const kernelElements = desired.retired.get(name)?.kernelSize ?? 0;
    return { name, action, kernelElements, additions: 0, ahead: false };
  }
  const { spec, kernelSize: kernelElements } = elements;
  const full = action !== "keep";
  const takes = spec.dynamic !== true && (full || elements.dirty);
  const additions = !takes ? 0 : full ? elements.size : elements.pendingAdds;
  const size = perRow(elements) * Math.max(elements.size, kernelElements);
  if (takes) elements.take(full);
  return {
    name,
    action,
    ...(full ? { info: setInfo(spec, sizeFor(spec, size)) } : {}),
    kernelElements,
    ...(takes ? { taken: elements } : {}),
    additions,
    ahead: false,
  };
}

/** Picks the sets whose elements go ahead, where those are more than one transaction is to have. */
function markAhead(sets: readonly SetSnapshot[], state: KernelState, pieceElements: number): void {
  // A table that has to go first goes in the transaction that brings all of the new one.
  if (state.inTheWay) return;
  const many = (some: readonly SetSnapshot[]): boolean =>
    some.reduce((sum, { additions }) => sum + additions, 0) > pieceElements;
  const candidates = sets.filter(
    ({ taken }) => taken !== undefined && taken.spec.data !== "verdict" && taken.spec.interval !== true,
  );
  if (!many(candidates)) return;
  const named = new Set([...state.chains.values()].flatMap(({ rules }) => rules.flatMap(({ refs }) => refs.sets)));
  const quiet = !packetsComeBy(state);
  // What rules name can be made anew with them alone.
  const unseen = candidates.filter(({ name, action }) => !named.has(name) || (quiet && action !== "recreate"));
  if (many(unseen)) for (const set of unseen) set.ahead = true;
}

/** The changed chains, and those whose rules name a set or chain that is created anew: also of leftovers, which are emptied then. */
function planChains(
  dirty: ReadonlySet<string>,
  going: ReadonlySet<string>,
  sets: readonly SetSnapshot[],
  desired: DesiredState,
  state: KernelState,
): ChainPlan[] {
  const newSets = new Set(sets.filter((set) => set.action === "recreate").map((set) => set.name));
  const rebuilt = new Set<string>();
  if (newSets.size > 0 || going.size > 0) {
    for (const [name, { rules }] of state.chains) {
      const rebuilds = rules.some(
        ({ refs }) => refs.sets.some((set) => newSets.has(set)) || refs.chains.some((target) => going.has(target)),
      );
      if (rebuilds) rebuilt.add(name);
    }
  }
  return [...new Set([...dirty, ...rebuilt])].map((name) => ({
    name,
    desired: desired.chains.get(name),
    rebuild: rebuilt.has(name),
  }));
}
