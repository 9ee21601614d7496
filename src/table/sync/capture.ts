/** Freezes what is wanted at one moment, and decides per object what happens to it. Synchronous. */
import { DATA_VERDICT } from "../../kernel/constants.js";
import type { TrackedElements } from "../elements/element-set.js";
import { chainServes, type ChainPlan, type SetPlan } from "./plan.js";
import { fitsSize, serves, setInfo, sizeFor } from "../rules/schema.js";
import { type KernelState, packetsComeBy } from "./state.js";
import type { DirtyNames, SetRecord, WantedState } from "./desired.js";

export interface CapturedSet extends Omit<SetPlan, "change"> {
  /** Its elements were taken: pack them, then settle or abort. */
  readonly taken?: TrackedElements;
  /** About as many are to be added. */
  readonly additions: number;
  /** Its elements go ahead of the transaction that brings the rest: see pieces.ts. */
  ahead: boolean;
}

export interface Captured {
  readonly dirty: DirtyNames;
  /** Unwanted chains whose wait was over, with its end: what is refused need not wait again. */
  readonly due: ReadonlyMap<string, number>;
  readonly chains: readonly ChainPlan[];
  readonly sets: readonly CapturedSet[];
  /** Sets that were removed and are gone when the transaction is in force. */
  readonly retired: readonly string[];
}

/** See TableOptions.lateChains. */
export interface Lateness {
  readonly applies: (chain: string) => boolean;
  readonly delayMs: number;
}

export function capture(
  wanted: WantedState,
  state: KernelState,
  now: number,
  lateness: Lateness,
  pieceElements: number,
): Captured {
  const taken = wanted.takeDirty();
  const due = dueChains(wanted, now);
  const dirty = { ...taken, chains: new Set([...taken.chains, ...due.keys()]) };
  try {
    wanted.checkReferences(dirty);
  } catch (error) {
    wanted.restore(dirty, due);
    throw error;
  }
  const goingChains = chainsThatGo(dirty, wanted, state);
  for (const name of wanted.watched) {
    const record = wanted.sets.get(name);
    if (record !== undefined) releaseLate(record.elements, wanted, goingChains, now);
  }
  const forced = setsThatName(goingChains, wanted, state);
  const sets: CapturedSet[] = [];
  for (const name of new Set([...dirty.sets, ...wanted.watched, ...forced])) {
    const record = wanted.sets.get(name);
    if (record === undefined) continue;
    if (!dirty.sets.has(name) && !record.elements.dirty && !forced.has(name)) continue;
    sets.push(captureSet(name, record, state, forced.has(name)));
  }
  for (const name of dirty.sets) {
    if (wanted.sets.has(name)) continue;
    const kernel = state.sets.get(name);
    if (kernel === undefined) continue;
    const known = wanted.retired.get(name)?.elements.kernelSize ?? 0;
    const holdsChains = kernel.dataType === DATA_VERDICT;
    sets.push({ name, action: "delete", holdsChains, kernelElements: known, additions: 0, ahead: false });
  }
  markAhead(sets, state, pieceElements);
  const staying = chainsThatStay((name) => lateness.applies(name) && !due.has(name), dirty, wanted, state, sets);
  for (const name of wanted.lateChains.keys()) {
    if (staying.has(name)) continue;
    wanted.lateChains.delete(name);
    dirty.chains.add(name);
  }
  for (const name of staying) {
    goingChains.delete(name);
    dirty.chains.delete(name);
    if (!wanted.lateChains.has(name)) wanted.lateChains.set(name, now + lateness.delayMs);
  }
  return {
    dirty,
    due,
    chains: captureChains(dirty, wanted, state, sets, goingChains),
    sets,
    retired: [...wanted.retired.keys()],
  };
}

/** Kernel chains that are deleted, whether or not they come anew. */
function chainsThatGo(dirty: DirtyNames, wanted: WantedState, state: KernelState): Set<string> {
  const going = new Set<string>();
  for (const name of dirty.chains) {
    const kernel = state.chains.get(name);
    const target = wanted.chains.get(name);
    if (kernel !== undefined && (target === undefined || !chainServes(kernel, target))) going.add(name);
  }
  return going;
}

/** Forgets the chains that need not wait any longer; returns them, and until when they had to. */
function dueChains(wanted: WantedState, now: number): ReadonlyMap<string, number> {
  const due = new Map<string, number>();
  for (const [name, at] of wanted.lateChains) if (at <= now || wanted.chains.has(name)) due.set(name, at);
  for (const name of due.keys()) wanted.lateChains.delete(name);
  return due;
}

/** Chains that nobody wants and that can stay for now: of the late kind, and nothing goes that their rules name. */
function chainsThatStay(
  applies: (chain: string) => boolean,
  dirty: DirtyNames,
  wanted: WantedState,
  state: KernelState,
  sets: readonly CapturedSet[],
): Set<string> {
  const goingSets = new Set(
    sets.filter(({ action }) => action !== "keep" && action !== "create").map(({ name }) => name),
  );
  const unwanted = [...dirty.chains, ...wanted.lateChains.keys()].filter((name) => !wanted.chains.has(name));
  const staying = new Set(unwanted.filter((name) => applies(name) && state.chains.get(name)?.base === undefined));
  for (let before = -1; before !== staying.size;) {
    before = staying.size;
    for (const name of staying) {
      const rules = state.chains.get(name)?.rules;
      const free = rules?.every(
        ({ refs }) =>
          !refs.sets.some((set) => goingSets.has(set)) &&
          refs.chains.every((target) => staying.has(target) || (wanted.chains.has(target) && state.chains.has(target))),
      );
      if (free !== true) staying.delete(name);
    }
  }
  return staying;
}

/** Late deletions that are due; an element that waits must not keep a chain busy that goes now. */
function releaseLate(elements: TrackedElements, wanted: WantedState, going: ReadonlySet<string>, now: number): void {
  if (elements.nextLate === undefined) return;
  if (going.size === 0 || elements.spec.data !== "verdict") return elements.releaseLate(now);
  elements.releaseLate(now, (verdict) => {
    const chain = wanted.verdicts.chainOf(verdict);
    return chain !== undefined && going.has(chain);
  });
}

/** Verdict maps with wanted elements that go to a chain which is created anew: they are created anew with it. */
function setsThatName(going: ReadonlySet<string>, wanted: WantedState, state: KernelState): Set<string> {
  const names = new Set<string>();
  const ids = new Set<number>();
  for (const chain of going) {
    if (!wanted.chains.has(chain)) continue;
    ids.add(wanted.verdicts.id({ verdict: "goto", chain })).add(wanted.verdicts.id({ verdict: "jump", chain }));
  }
  if (ids.size === 0) return names;
  for (const [name, { elements }] of wanted.sets) {
    if (elements.spec.data === "verdict" && state.sets.has(name) && elements.kernelMentions(ids)) names.add(name);
  }
  return names;
}

function captureSet(name: string, { elements }: SetRecord, state: KernelState, forced: boolean): CapturedSet {
  const { spec } = elements;
  const kernel = state.sets.get(name);
  // A range has a start and an end.
  const perRow = spec.interval === true ? 2 : 1;
  const fits =
    kernel !== undefined &&
    !state.unusable.has(name) &&
    serves(kernel, spec) &&
    fitsSize(kernel.size, spec, perRow * (elements.kernelSize + elements.pendingAdds));
  const action = kernel === undefined ? "create" : fits && !forced ? "keep" : "recreate";
  const full = action !== "keep";
  const taken = spec.dynamic !== true && (full || elements.dirty);
  const additions = !taken ? 0 : full ? elements.size : elements.pendingAdds;
  const size = perRow * Math.max(elements.size, elements.kernelSize);
  if (taken) elements.take(full);
  return {
    name,
    action,
    ...(full ? { info: setInfo(spec, sizeFor(spec, size)) } : {}),
    holdsChains: kernel?.dataType === DATA_VERDICT,
    kernelElements: elements.kernelSize,
    ...(taken ? { taken: elements } : {}),
    additions,
    ahead: false,
  };
}

/** Picks the sets whose elements go ahead, where those are more than one transaction is to have. */
function markAhead(sets: readonly CapturedSet[], state: KernelState, pieceElements: number): void {
  // A table that has to go first goes in the transaction that brings all of the new one.
  if (state.inTheWay) return;
  const many = (some: readonly CapturedSet[]): boolean =>
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

/** The changed chains, and those whose rules name a set or chain that is created anew. */
function captureChains(
  dirty: DirtyNames,
  wanted: WantedState,
  state: KernelState,
  sets: readonly CapturedSet[],
  going: ReadonlySet<string>,
): ChainPlan[] {
  const newSets = new Set(sets.filter((set) => set.action === "recreate").map((set) => set.name));
  const rebuilt = new Set<string>();
  if (newSets.size > 0 || going.size > 0) {
    for (const [name, chain] of state.chains) {
      const names = chain.rules.some(
        ({ refs }) => refs.sets.some((set) => newSets.has(set)) || refs.chains.some((target) => going.has(target)),
      );
      if (names && wanted.chains.has(name)) rebuilt.add(name);
    }
  }
  return [...new Set([...dirty.chains, ...rebuilt])].map((name) => ({
    name,
    wanted: wanted.chains.get(name),
    rebuild: rebuilt.has(name),
  }));
}
