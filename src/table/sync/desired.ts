/** What is desired: chains, sets, and what of them changed since it was last brought to the kernel. */
import { isDeepStrictEqual } from "node:util";

import type { Family } from "../../kernel/types.js";
import { Hook } from "../../kernel/constants.js";
import type { CounterSource } from "../elements/counted-rows.js";
import { TrackedElements, type TrackerOptions } from "../elements/element-set.js";
import { TableError } from "./results.js";
import { TrackedIntervals } from "../elements/interval-set.js";
import { prepareRule, type References, type DesiredChain } from "../rules/diff.js";
import { checkSetSpec, rowWidths } from "../rules/schema.js";
import { checkComment, checkName } from "../rules/text.js";
import type { ChainSpec, SetSpec } from "../rules/types.js";
import { VerdictRegistry } from "../elements/verdicts.js";

export interface DirtyNames {
  readonly chains: Set<string>;
  readonly sets: ReadonlySet<string>;
  /** Chains that elements came to name. */
  readonly targets: ReadonlySet<string>;
}

export class DesiredState {
  readonly chains = new Map<string, DesiredChain>();
  readonly sets = new Map<string, TrackedElements>();
  /** Removed sets that the kernel may still hold: back with their observed state when they are declared again. */
  readonly retired = new Map<string, TrackedElements>();
  readonly verdicts = new VerdictRegistry();
  /**
   * Sets that the next transaction has to look at: changed elements, grace periods, or a kernel side that is not known. A
   * change of one set must not cost a walk over all; there are many where services have affinity.
   */
  readonly watched = new Set<string>();
  /** Chains that are not desired, but stay while elements in their grace period lead there. */
  heldChains: ReadonlySet<string> = new Set();
  #dirtyChains = new Set<string>();
  #dirtySets = new Set<string>();
  #targets = new Set<string>();
  /** Where sets with counters are read. */
  counterSource: CounterSource = () => Promise.resolve(undefined);
  readonly #chainUses = new Map<string, number>();
  readonly #setUses = new Map<string, number>();

  constructor(
    readonly table: string,
    readonly family: Family,
  ) {}

  readonly setSpec = (name: string): SetSpec | undefined => this.sets.get(name)?.spec;

  chain(spec: ChainSpec): void {
    const former = this.chains.get(spec.chain);
    // Said again: nothing to do. In an inet table the same words may mean other expressions once a set has another key.
    if (former !== undefined && this.family !== "inet" && isDeepStrictEqual(former.spec, spec)) return;
    checkName("chain", spec.chain);
    checkComment(`chain ${spec.chain}`, spec.comment);
    if (spec.base !== undefined && !Object.values<number>(Hook).includes(spec.base.hook))
      throw new RangeError(`chain ${spec.chain}: hook ${spec.base.hook}`);
    const rules = spec.rules.map((rule, index) => {
      try {
        return prepareRule(rule, { family: this.family, setSpec: this.setSpec });
      } catch (error) {
        throw error instanceof RangeError
          ? new RangeError(`chain ${spec.chain}, rule ${index}: ${error.message}`, { cause: error })
          : error;
      }
    });
    this.#unref(former);
    for (const rule of rules) this.#count(rule.refs, 1);
    this.chains.set(spec.chain, { spec, rules });
    this.#dirtyChains.add(spec.chain);
  }

  removeChain(name: string): void {
    this.#unref(this.chains.get(name));
    if (this.chains.delete(name)) this.#dirtyChains.add(name);
  }

  set(spec: SetSpec): TrackedElements {
    checkSetSpec(spec);
    const former = this.sets.get(spec.set) ?? this.retired.get(spec.set);
    this.retired.delete(spec.set);
    this.#dirtySets.add(spec.set);
    this.watched.add(spec.set);
    if (former !== undefined && sameShape(former.spec, spec)) {
      former.spec = spec;
      this.sets.set(spec.set, former);
      return former;
    }
    former?.clear();
    const elements = this.#newElements(spec);
    this.sets.set(spec.set, elements);
    return elements;
  }

  removeSet(name: string): void {
    const elements = this.sets.get(name);
    if (elements === undefined) return;
    elements.clear();
    this.sets.delete(name);
    this.retired.set(name, elements);
    this.#dirtySets.add(name);
  }

  /** Verdicts that lead to those of `changed` that are neither desired nor in the kernel: nothing does there, once elements are settled. */
  forgetVerdicts(changed: Iterable<{ readonly name: string }>, inKernel: ReadonlyMap<string, unknown>): void {
    for (const { name } of changed) {
      if (!this.chains.has(name) && !inKernel.has(name)) this.verdicts.forget(name);
    }
  }

  /** Names that changed since the last call; `restore` gives them back when they did not reach the kernel. */
  takeDirty(): DirtyNames {
    for (const chain of this.verdicts.takeNewlyUsed()) this.#targets.add(chain);
    for (const chain of this.heldChains) this.#dirtyChains.add(chain);
    const dirty = { chains: this.#dirtyChains, sets: this.#dirtySets, targets: this.#targets };
    this.#dirtyChains = new Set();
    this.#dirtySets = new Set();
    this.#targets = new Set();
    return dirty;
  }

  restore(dirty: DirtyNames): void {
    for (const name of dirty.chains) this.#dirtyChains.add(name);
    for (const name of dirty.sets) this.#dirtySets.add(name);
    for (const name of dirty.targets) this.#targets.add(name);
  }

  /** After a read of the kernel everything is to be compared: what is desired and what is there. */
  markAll(kernelChains: Iterable<string>, kernelSets: Iterable<string>): void {
    for (const names of [this.chains.keys(), kernelChains]) for (const name of names) this.#dirtyChains.add(name);
    for (const names of [this.sets.keys(), kernelSets]) for (const name of names) this.#dirtySets.add(name);
  }

  get dirtyChains(): ReadonlySet<string> {
    return this.#dirtyChains;
  }

  /** Throws TableError "invalid" when something desired names what is not. */
  checkReferences(dirty: DirtyNames): void {
    for (const name of dirty.chains) {
      const desired = this.chains.get(name);
      if (desired === undefined) this.#checkUnused(name);
      for (const [index, rule] of desired?.rules.entries() ?? []) this.#checkRule(name, index, rule.refs);
    }
    for (const name of dirty.sets) {
      if (!this.sets.has(name) && (this.#setUses.get(name) ?? 0) > 0)
        throw this.#invalid({ set: name }, `set ${name} is not declared, but ${this.#userOf("sets", name)} names it`);
    }
    for (const chain of dirty.targets) if (!this.chains.has(chain)) this.#checkUnused(chain);
  }

  #checkUnused(chain: string): void {
    const elements = this.verdicts.usesOf(chain);
    if (elements > 0)
      throw this.#invalid({ chain }, `chain ${chain} is not declared, but ${elements} desired elements go to it`);
    if ((this.#chainUses.get(chain) ?? 0) > 0)
      throw this.#invalid({ chain }, `chain ${chain} is not declared, but ${this.#userOf("chains", chain)} names it`);
  }

  #checkRule(chain: string, ruleIndex: number, refs: References): void {
    const lost = refs.chains.find((name) => !this.chains.has(name)) ?? refs.sets.find((name) => !this.sets.has(name));
    if (lost !== undefined)
      throw this.#invalid({ chain, ruleIndex }, `chain ${chain}, rule ${ruleIndex}: ${lost} is not declared`);
  }

  #userOf(kind: "chains" | "sets", name: string): string {
    for (const [chain, { rules }] of this.chains) {
      const index = rules.findIndex((rule) => rule.refs[kind].includes(name));
      if (index >= 0) return `rule ${index} of chain ${chain}`;
    }
    return "a rule";
  }

  #invalid(where: { chain?: string; ruleIndex?: number; set?: string }, message: string): TableError {
    const kind = where.ruleIndex !== undefined ? "rule" : where.chain !== undefined ? "chain" : "set";
    return new TableError("invalid", `${this.table}: ${message}`, [{ kind, ...where, errno: "EINVAL", text: message }]);
  }

  #newElements(spec: SetSpec): TrackedElements {
    const options: TrackerOptions = {
      verdicts: this.verdicts,
      onDirty: () => void this.watched.add(spec.set),
      counterSource: (set) => this.counterSource(set),
    };
    return spec.interval === true ? new TrackedIntervals(spec, options) : new TrackedElements(spec, options);
  }

  #unref(chain: DesiredChain | undefined): void {
    for (const rule of chain?.rules ?? []) this.#count(rule.refs, -1);
  }

  #count(refs: References, by: number): void {
    for (const name of refs.chains) countUse(this.#chainUses, name, by);
    for (const name of refs.sets) countUse(this.#setUses, name, by);
  }
}

function countUse(uses: Map<string, number>, name: string, by: number): void {
  const now = (uses.get(name) ?? 0) + by;
  if (now === 0) uses.delete(name);
  else uses.set(name, now);
}

function sameShape(a: SetSpec, b: SetSpec): boolean {
  return (
    isDeepStrictEqual(rowWidths(a), rowWidths(b)) &&
    (a.data === "verdict") === (b.data === "verdict") &&
    (a.interval === true) === (b.interval === true) &&
    (a.counters === undefined) === (b.counters === undefined)
  );
}
