/** Decides what to do with each object. Synchronous. */
import type { SetInfo } from "../kernel/kernel.js";
import type { TrackedElements } from "../elements/tracked-elements.js";
import type { References } from "./diff.js";
import { objectFate } from "../statements/object-definitions.js";
import { fitsSize, formOf, hasTargets, serves, setInfo, sizeFor } from "../language/schema.js";
import type { SetSpec } from "../language/set-spec.js";
import type { DesiredState, DirtyNames } from "./desired-state.js";
import { type ChainPlan, chainServes, type Names, namesAny, type ObjectPlan, type SetPlan } from "./plan.js";
import { type KernelState, packetsComeBy } from "./table-dump.js";

export interface Decisions {
  readonly dirty: DirtyNames;
  readonly chains: readonly ChainPlan[];
  readonly sets: readonly SetPlan[];
  readonly objects: readonly ObjectPlan[];
  /** Sets whose elements go ahead of the main transaction (make-before-break.ts). */
  readonly ahead: ReadonlySet<string>;
  /** Objects that are deleted, even if they are created again. Rules that name them must come in the same transaction. */
  readonly going: Names;
  /**
   * Undesired objects of an earlier owner of the table, kept for a grace period. Packets in flight continue with that owner's rules, but each look-up
   * uses the current content of maps. If a map were gone, named or anonymous, the look-up would fail, and our rules would reject the packet. The
   * chains have no hook, and elements of the sets may refer to them. They keep their rules, unless these name objects that are deleted or replaced.
   */
  readonly inherited: Names;
}

/** The desired state, and the state to compare it with. */
interface Moment {
  readonly desired: DesiredState;
  readonly state: KernelState;
  readonly dirty: DirtyNames;
}

/** Maximum number of deferred deletions in a transaction. A service that shrinks may have more, and other changes must not wait. */
const MOST_ENDED = 16_384;

type Action = SetPlan["action"];
/** The action per set. */
type Fates = Map<string, Action>;

/** @param keepInherited keep undesired objects for now if packets in flight may use them. */
export function decideChanges(
  desired: DesiredState,
  state: KernelState,
  now: number,
  pieceElements: number,
  keepInherited: boolean,
): Decisions {
  const dirty = desired.takeDirty();
  const moment = { desired, state, dirty };
  let most = MOST_ENDED;
  for (const name of desired.watched) most -= desired.sets.get(name)?.endGrace(now, most) ?? 0;
  const replaced = new Set<string>();
  const unused = new Set<string>();
  for (const name of dirty.chains) {
    const [kernel, chain] = [state.chains.get(name), desired.chains.get(name)];
    if (kernel === undefined) continue;
    if (chain === undefined) unused.add(name);
    else if (!chainServes(kernel, chain)) replaced.add(name);
  }
  const objects = objectPlans(moment);
  const goingObjects = new Set(
    objects.flatMap(({ name, fate }) => (fate === "delete" || fate === "recreate" ? name : [])),
  );
  const recreated = objects.flatMap(({ name, fate }) => (fate === "recreate" ? name : []));
  const remade = mapsThatName(new Set([...replaced, ...recreated]), moment);
  const fates = setFates(remade, moment);
  // Elements may refer to chains without a hook.
  const idle = new Set([...unused].filter((name) => state.chains.get(name)?.base === undefined));
  const left =
    keepInherited && packetsComeBy(state) && goingObjects.size === 0 ? withAction(fates, "delete") : new Set<string>();
  const inherited = { sets: left, chains: left.size > 0 ? idle : new Set<string>(), objects: new Set<string>() };
  for (const name of inherited.sets) fates.delete(name);
  const held = chainsInGrace(fates, goingObjects, idle, moment);
  for (const name of held) dirty.chains.delete(name);
  // The next decision checks them again, even if this one fails.
  desired.mark({ chains: held });
  const stay = new Set([...held, ...inherited.chains]);
  const goingChains = new Set([...replaced, ...[...unused].filter((name) => !stay.has(name))]);
  undeferElements(new Set([...goingChains, ...goingObjects]), desired);
  const changed = [...fates].filter(
    ([name]) => dirty.sets.has(name) || remade.has(name) || desired.sets.get(name)?.dirty === true,
  );
  const ahead = setsAhead(changed, moment, pieceElements);
  const sets = changed.map(([name, action]) => planSet(name, action, desired));
  const going = { chains: goingChains, sets: withAction(changed, "recreate"), objects: goingObjects };
  return { dirty, chains: planChains(going, inherited, moment), sets, objects, ahead, going, inherited };
}

function objectPlans({ desired, state, dirty }: Moment): ObjectPlan[] {
  return [...dirty.objects].flatMap((name) => {
    const [found, wanted] = [state.objects.get(name), desired.objects.get(name)];
    const fate = objectFate(found, wanted);
    return fate === "keep" ? [] : { name, fate, found, desired: wanted };
  });
}

function withAction(fates: Iterable<readonly [string, Action]>, ...actions: readonly Action[]): Set<string> {
  return new Set([...fates].flatMap(([name, action]) => (actions.includes(action) ? name : [])));
}

function setFates(remade: ReadonlySet<string>, { desired, state, dirty }: Moment): Fates {
  const fates: Fates = new Map();
  for (const name of new Set([...dirty.sets, ...desired.watched, ...remade])) {
    const elements = desired.sets.get(name);
    const kernel = state.sets.get(name);
    if (elements === undefined) {
      if (kernel !== undefined) fates.set(name, "delete");
    } else if (kernel === undefined) fates.set(name, "create");
    else fates.set(name, !remade.has(name) && fits(kernel, elements, state) ? "keep" : "recreate");
  }
  return fates;
}

function fits(
  kernel: SetInfo,
  { spec, kernelSize, pendingAdds, planned }: TrackedElements,
  { unusable }: KernelState,
): boolean {
  if (unusable.has(kernel.set) || !serves(kernel, spec)) return false;
  return fitsSize(kernel.size, spec, perRow(spec) * Math.max(kernelSize + pendingAdds, planned));
}

function perRow(spec: SetSpec): number {
  return formOf(spec) === "starts and ends" ? 2 : 1;
}

/**
 * Returns the undesired idle chains that stay with their rules. Elements in their grace period refer to them, directly or through other chains.
 * Chains whose rules need an object that is deleted are excluded.
 */
function chainsInGrace(
  fates: Fates,
  goingObjects: ReadonlySet<string>,
  idle: ReadonlySet<string>,
  { desired, state }: Moment,
): Set<string> {
  const held = new Set<string>();
  if (idle.size === 0) return held;
  for (const elements of desired.sets.values()) {
    if (elements.spec.data !== "verdict") continue;
    for (const chain of elements.deferredTargets()) if (idle.has(chain)) held.add(chain);
  }
  const refs = (name: string): readonly References[] => state.chains.get(name)?.rules.map((rule) => rule.refs) ?? [];
  for (const name of held) for (const { chains } of refs(name)) for (const to of chains) if (idle.has(to)) held.add(to);
  const goingSets = withAction(fates, "delete", "recreate");
  const leads = (to: string): boolean => held.has(to) || (desired.chains.has(to) && state.chains.has(to));
  const works = ({ chains, sets, objects }: References): boolean =>
    chains.every(leads) && !sets.some((set) => goingSets.has(set)) && !objects.some((key) => goingObjects.has(key));
  for (let before = -1; before !== held.size;) {
    before = held.size;
    for (const name of held) if (!refs(name).every(works)) held.delete(name);
  }
  return held;
}

/** An element in its grace period must not keep a chain or object busy that is deleted now. */
function undeferElements(going: ReadonlySet<string>, { sets, watched }: DesiredState): void {
  if (going.size === 0) return;
  for (const name of watched) {
    const elements = sets.get(name);
    if (elements !== undefined && hasTargets(elements.spec)) elements.undeferTargets(going);
  }
}

/** Returns the maps with elements that lead to a chain or object that is created again: the maps are created again with it. */
function mapsThatName(targets: ReadonlySet<string>, { desired, state }: Moment): Set<string> {
  const names = new Set<string>();
  if (targets.size === 0) return names;
  for (const [name, elements] of desired.sets) {
    if (hasTargets(elements.spec) && state.sets.has(name) && elements.leadsTo(targets)) names.add(name);
  }
  return names;
}

function planSet(name: string, action: Action, desired: DesiredState): SetPlan {
  const elements = desired.sets.get(name);
  if (elements === undefined) return { name, action, kernelElements: desired.retired.get(name)?.kernelSize ?? 0 };
  const { spec, kernelSize, planned } = elements;
  const full = action !== "keep";
  const size = perRow(spec) * Math.max(elements.size, kernelSize, planned);
  const takes = spec.dynamic !== true && (full || elements.dirty);
  if (takes) elements.packing.take(full);
  return {
    name,
    action,
    info: full ? setInfo(spec, sizeFor(spec, size)) : undefined,
    kernelElements: kernelSize,
    taken: takes ? elements.packing : undefined,
  };
}

/** Returns the sets whose elements go ahead, if they have more elements than fit one transaction. */
function setsAhead(
  changed: readonly (readonly [string, Action])[],
  { desired, state }: Moment,
  pieceElements: number,
): Set<string> {
  // A table that has to be deleted is replaced in one transaction.
  if (state.inTheWay) return new Set();
  const candidates = changed.flatMap(([name, action]) => {
    const elements = desired.sets.get(name);
    const { interval, dynamic } = elements?.spec ?? {};
    if (elements === undefined || hasTargets(elements.spec) || interval === true || dynamic === true) return [];
    if (action === "keep" && !elements.dirty) return [];
    return { name, action, additions: action === "keep" ? elements.pendingAdds : elements.size };
  });
  const many = (some: typeof candidates): boolean =>
    some.reduce((sum, { additions }) => sum + additions, 0) > pieceElements;
  if (!many(candidates)) return new Set();
  const named = new Set([...state.chains.values()].flatMap(({ rules }) => rules.flatMap(({ refs }) => refs.sets)));
  const quiet = !packetsComeBy(state);
  // A set that rules name can only be created again together with them.
  const unseen = candidates.filter(({ name, action }) => !named.has(name) || (quiet && action !== "recreate"));
  return new Set(many(unseen) ? unseen.map(({ name }) => name) : []);
}

/** Plans the changed chains, and chains whose rules name a set or chain that is created again. Inherited chains among them are emptied. */
function planChains(going: Names, inherited: Names, { desired, state, dirty }: Moment): ChainPlan[] {
  const rebuilt = new Set<string>();
  if (going.sets.size + going.chains.size + going.objects.size > 0) {
    for (const [name, { rules }] of state.chains) if (namesAny(rules, going)) rebuilt.add(name);
  }
  const changed = [...dirty.chains].filter((name) => !inherited.chains.has(name));
  return [...new Set([...changed, ...rebuilt])].map((name) => ({
    name,
    desired: desired.chains.get(name),
    going: rebuilt.has(name) ? going : undefined,
  }));
}
