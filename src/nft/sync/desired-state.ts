/** The desired chains and sets, and their changes since the last apply. */
import { counted } from "../../base/counted.js";
import { isDeepStrictEqual } from "node:util";

import type { TableRef } from "../kernel/kernel.js";
import type { KeptSpec } from "../elements/element-set.js";
import { type ChangeGate, TrackedElements, tracksEnds } from "../elements/tracked-elements.js";
import type { KernelState } from "./table-dump.js";
import { TableError } from "./results.js";
import { TrackedIntervals } from "../elements/tracked-intervals.js";
import { type DesiredChain, type NumberedChain, type PreparedRule, prepareRule } from "./diff.js";
import { kernelBaseOf } from "../language/hooks-and-priorities.js";
import { versionOf } from "../lowering/dependencies.js";
import { checkSetSpec } from "../language/schema.js";
import { FieldError, within } from "../language/fields/field-error.js";
import { checkChain } from "../statements/checks.js";
import { objectKey, type ObjectName, type ObjectSpec } from "../language/object-kinds.js";
import { desiredObject, type DesiredObject } from "../statements/object-definitions.js";
import type { ChainSpec } from "../statements/rule.js";
import type { SetSpec } from "../language/set-spec.js";
import type { FaultyObject } from "./apply-result.js";
import { Turns } from "./turns.js";
import { isObjectKey, VerdictRegistry } from "../elements/verdict-registry.js";

export interface DirtyNames {
  readonly chains: Set<string>;
  readonly sets: Set<string>;
  /** By key ("counter web"). Includes objects that elements began to use. */
  readonly objects: Set<string>;
  /** Chains that elements began to use. */
  readonly newlyUsed: Set<string>;
}

export class DesiredState implements ChangeGate {
  readonly chains = new Map<string, DesiredChain>();
  readonly sets = new Map<string, TrackedElements>();
  /** By key ("counter web"). */
  readonly objects = new Map<string, DesiredObject>();
  /** Removed sets that the kernel may still hold. Declaring such a set again restores its observed state. */
  readonly retired = new Map<string, TrackedElements>();
  readonly verdicts = new VerdictRegistry();
  /**
   * Sets that the next transaction has to check: changed elements, grace periods, or an unknown kernel side. A change of one set must not cost a walk
   * over all sets, of which there are many if services have affinity.
   */
  readonly watched = new Set<string>();
  readonly turns: Turns;
  /** Number of calls of `holding` that run or wait. */
  #holds = 0;
  #dirty = noNames();
  /** Chains whose rules name a set before it is declared, by set. */
  readonly #awaiting = new Map<string, Set<string>>();
  /** Sets that were declared again with other types. */
  readonly #reshaped = new Set<string>();

  /** @param now the clock for timeouts. */
  constructor(
    readonly ref: TableRef,
    readonly now?: () => number,
  ) {
    this.turns = new Turns(ref.table);
  }

  get isHeld(): boolean {
    return this.#holds > 0;
  }

  /** Runs the call after all earlier ones. Until it ends, nothing else changes the desired state. */
  holding<T>(call: () => Promise<T>): Promise<T> {
    this.#holds++;
    return this.turns.queue(call).finally(() => this.#holds--);
  }

  /** Throws TableError "busy" while it is held. */
  checkChangeable(): void {
    if (!this.isHeld) return;
    const message = `table ${this.ref.table} cannot be changed while apply(), load() or replace() runs. Await it first`;
    throw new TableError("busy", message);
  }

  readonly setSpec = (name: string): SetSpec | undefined => this.sets.get(name)?.spec;

  chain(given: ChainSpec): void {
    this.checkChangeable();
    const { family } = this.ref;
    checkChain(given, family);
    const { base, ...rest } = given;
    const spec: NumberedChain = { ...rest, ...(base !== undefined && { base: kernelBaseOf(base, family) }) };
    const former = this.chains.get(spec.chain);
    // Nothing to do if the chain is unchanged. But in a table of both IP families, the same words mean other expressions once a set has another key.
    if (former !== undefined && versionOf(family) !== undefined && isDeepStrictEqual(former.spec, spec)) return;
    const rules = spec.rules.map((_, index) => this.#prepare(spec, index, this.setSpec));
    this.chains.set(spec.chain, { spec, rules });
    this.#dirty.chains.add(spec.chain);
    for (const { refs } of rules)
      for (const set of refs.sets)
        if (!this.sets.has(set)) this.#awaiting.set(set, new Set(this.#awaiting.get(set)).add(spec.chain));
  }

  /** Prepares the rules again that name the set, because they did not know its types. Throws FieldError, and changes nothing. */
  #prepareUsers(spec: SetSpec, chains: Iterable<string>): void {
    const setSpec = (name: string): SetSpec | undefined => (name === spec.set ? spec : this.setSpec(name));
    const changed = [...chains].flatMap((name): DesiredChain[] => {
      const chain = this.chains.get(name);
      if (chain?.rules.some(({ refs }) => refs.sets.includes(spec.set)) !== true) return [];
      return [
        { spec: chain.spec, rules: chain.spec.rules.map((_, index) => this.#prepare(chain.spec, index, setSpec)) },
      ];
    });
    // With other types, the same words may mean other expressions.
    for (const chain of changed) {
      this.chains.set(chain.spec.chain, chain);
      this.#dirty.chains.add(chain.spec.chain);
    }
    this.#awaiting.delete(spec.set);
  }

  /** Throws FieldError with the rule's place. */
  #prepare({ chain, rules, base }: NumberedChain, index: number, setSpec: DesiredState["setSpec"]): PreparedRule {
    const { family } = this.ref;
    let isAwaiting = false;
    const observed = (name: string): SetSpec | undefined => {
      const spec = setSpec(name);
      isAwaiting ||= spec === undefined;
      return spec;
    };
    return within(`chain ${chain}, rule ${index}`, () => {
      try {
        return prepareRule(rules[index], { family, base, setSpec: observed });
      } catch (error) {
        if (!(error instanceof FieldError)) throw error;
        // An undeclared set may tell the IP version. Its declaration prepares the rule again.
        for (const assumed of isAwaiting ? ([4, 6] as const) : [])
          try {
            return prepareRule(rules[index], { family, base, setSpec, assumed });
          } catch (other) {
            if (!(other instanceof FieldError)) throw other;
          }
        throw error;
      }
    });
  }

  removeChain(name: string): void {
    this.checkChangeable();
    if (this.chains.delete(name)) this.#dirty.chains.add(name);
  }

  object(spec: ObjectSpec): void {
    this.checkChangeable();
    const key = objectKey(spec);
    this.objects.set(key, desiredObject(spec, this.ref.family));
    this.#dirty.objects.add(key);
  }

  removeObject(object: ObjectName): void {
    this.checkChangeable();
    const key = objectKey(object);
    if (this.objects.delete(key)) this.#dirty.objects.add(key);
  }

  set(spec: KeptSpec): TrackedElements {
    this.checkChangeable();
    checkSetSpec(spec);
    const former = this.sets.get(spec.set) ?? this.retired.get(spec.set);
    if (former === undefined) this.#prepareUsers(spec, this.#awaiting.get(spec.set) ?? []);
    // The rules may change, too, before the next apply.
    else if (!isDeepStrictEqual(typesOf(former.spec), typesOf(spec))) this.#reshaped.add(spec.set);
    this.retired.delete(spec.set);
    this.#dirty.sets.add(spec.set);
    this.watched.add(spec.set);
    if (former !== undefined && sameShape(former.spec, spec)) {
      former.spec = spec;
      this.sets.set(spec.set, former);
      return former;
    }
    const Elements = spec.interval === true ? TrackedIntervals : TrackedElements;
    if (former !== undefined) former.fate.gone = "declared again with other types";
    const elements = new Elements(spec, {
      verdicts: this.verdicts,
      onDirty: () => void this.watched.add(spec.set),
      now: this.now,
      gate: this,
    });
    this.sets.set(spec.set, elements);
    if (former !== undefined && sameElements(former.spec, spec) && spec.dynamic !== true)
      former.forEach((key, data) => void elements.put(key, data, undefined, former.comment(key)));
    former?.clear();
    return elements;
  }

  removeSet(name: string): void {
    this.checkChangeable();
    const elements = this.sets.get(name);
    if (elements === undefined) return;
    elements.clear();
    elements.fate.gone = "removed from the table";
    elements.fate = {};
    this.sets.delete(name);
    this.retired.set(name, elements);
    this.#dirty.sets.add(name);
  }

  /** The kernel now holds the desired state of these chains and objects, and of all sets. Forgets everything that is neither desired nor in the kernel. */
  forget(changed: Iterable<{ readonly name: string }>, { chains, sets, objects }: KernelState): void {
    for (const { name } of changed)
      if (![this.chains, chains, this.objects, objects].some((there) => there.has(name))) this.verdicts.forget(name);
    for (const name of this.retired.keys()) if (!sets.has(name)) this.retired.delete(name);
  }

  /**
   * Returns the names that changed since the last call. If the changes do not reach the kernel, `mark` returns them. Throws TableError "invalid", and
   * takes nothing, if a desired object refers to an undeclared one.
   */
  takeDirty(): DirtyNames {
    this.#checkReshaped();
    const dirty = this.#dirty;
    for (const name of this.verdicts.takeNewlyUsed()) (isObjectKey(name) ? dirty.objects : dirty.newlyUsed).add(name);
    this.#checkReferences(dirty);
    this.#dirty = noNames();
    return dirty;
  }

  #checkReshaped(): void {
    for (const name of this.#reshaped) {
      const spec = this.setSpec(name);
      try {
        if (spec !== undefined) this.#prepareUsers(spec, this.chains.keys());
      } catch (error) {
        if (!(error instanceof FieldError)) throw error;
        throw this.#invalid({ kind: "set", set: name }, error.message);
      }
      this.#reshaped.delete(name);
    }
  }

  /** Marks what has changed, or may have: the next transaction checks it. */
  mark(names: { readonly [Kind in keyof DirtyNames]?: Iterable<string> }): void {
    for (const [kind, dirty] of Object.entries(this.#dirty) as [keyof DirtyNames, Set<string>][])
      for (const name of names[kind] ?? []) dirty.add(name);
  }

  get dirtyChains(): ReadonlySet<string> {
    return this.#dirty.chains;
  }

  #checkReferences(dirty: DirtyNames): void {
    const gone = [...dirty.chains, ...dirty.newlyUsed].filter((chain) => !this.chains.has(chain));
    const goneObjects = [...dirty.objects].filter((object) => !this.objects.has(object));
    for (const name of [...gone, ...goneObjects]) {
      const uses = this.verdicts.usesOf(name);
      const [fault, what] = isObjectKey(name)
        ? [{ kind: "object", object: name } as const, name]
        : [{ kind: "chain", chain: name } as const, `chain ${name}`];
      const message = `${what} is not declared, but ${counted(uses, "desired element refers", "desired elements refer")} to it`;
      if (uses > 0) throw this.#invalid(fault, message);
    }
    const ofAll = gone.length + goneObjects.length > 0 || [...dirty.sets].some((set) => !this.sets.has(set));
    for (const name of ofAll ? this.chains.keys() : dirty.chains) {
      for (const [ruleIndex, { refs }] of this.chains.get(name)?.rules.entries() ?? []) {
        const chain = refs.chains.find((to) => !this.chains.has(to));
        const set = refs.sets.find((other) => !this.sets.has(other));
        const object = refs.objects.find((key) => !this.objects.has(key));
        const missing = chain ?? set ?? object;
        if (missing === undefined) continue;
        const message = `chain ${name}, rule ${ruleIndex}: ${missing} is not declared`;
        // The last change is at fault.
        if (dirty.chains.has(name)) throw this.#invalid({ kind: "rule", chain: name, ruleIndex }, message);
        if (chain !== undefined) throw this.#invalid({ kind: "chain", chain }, message);
        throw this.#invalid(set === undefined ? { kind: "object", object } : { kind: "set", set }, message);
      }
    }
  }

  #invalid(object: Omit<FaultyObject, "errno">, message: string): TableError {
    return new TableError("invalid", `${this.ref.table}: ${message}`, [{ ...object, errno: "EINVAL", text: message }]);
  }
}

function noNames(): DirtyNames {
  return { chains: new Set(), sets: new Set(), objects: new Set(), newlyUsed: new Set() };
}

/** The parts of a set that rules depend on. */
function typesOf({ key, data, dynamic, interval }: SetSpec): unknown {
  return [key, data, dynamic === true, interval === true];
}

function sameShape(a: SetSpec, b: SetSpec): boolean {
  return sameElements(a, b) && tracksEnds(a) === tracksEnds(b);
}

function sameElements(a: SetSpec, b: SetSpec): boolean {
  return isDeepStrictEqual(typesOf(a), typesOf(b)) && (a.counters === undefined) === (b.counters === undefined);
}
