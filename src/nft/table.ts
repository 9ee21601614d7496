/** The library's `Table`: a wrapper of the engine's own, with readable values. */
import { isDeepStrictEqual } from "node:util";
import type { ChangeBatch, Kernel, ObjectDump, TableRef, Verdict } from "./kernel/kernel.js";
import type { ChainSpec, ObjectName, ObjectSpec } from "./language/rule.js";
import type { ApplyOptions as EngineApplyOptions, TableOptions as EngineOptions } from "./sync/apply-result.js";
import type { WatchedTable } from "./sync/table-watch.js";
import type { ListedElements } from "./elements/tracked-elements.js";
import { objectKey } from "./language/object-kinds.js";
import { Table as Engine } from "./sync/engine-table.js";
import type { TablePlan } from "./sync/plan-text.js";
import type { Target } from "./elements/verdict-registry.js";
import * as vocabulary from "./language/vocabulary.js";
import { DataMap, type ElementsOf, NetworkSet, ObjectMap, PlainSet, RangeSet, VerdictMap } from "./handles/elements.js";
import { DynamicMap, DynamicSet, type ElementChange, type FilledSet } from "./handles/filled-sets.js";
import type { SetFate, SetSpec } from "./handles/set-spec.js";
import {
  applyOptions,
  check,
  checkChain,
  checkObject,
  checkRule,
  checkSet,
  insertion,
  tableOptions,
} from "./statements/checks.js";
import { type Features, probeFeatures } from "./sync/features.js";
import { type ApplyResult, InsertedRules, type Insertion, joinInserted, joinPlans } from "./sync/inserted-rules.js";
import { CountingObject, NamedObject, type ObjectOf } from "./handles/named-objects.js";
import { parseVerdict, VERDICT, verdictText } from "./language/verdicts.js";

/** Identity and marks of a table. */
export interface TableOptions extends Pick<EngineOptions, "family" | "name" | "comment" | "own"> {
  /**
   * Marks our rules in chains of other programs, in their comments. `insertions` needs it. Use one mark per Table: apply removes
   * undesired rules with this mark from every chain of the namespace, so that none remains after an upgrade. This
   * costs a dump of all tables' rules at each full read.
   */
  readonly ownerMark?: string;
}

/** Options of `Table.apply`. */
export interface ApplyOptions extends Pick<EngineApplyOptions, "rebuild"> {}

/**
 * An nf_tables table that this program owns. Declare the desired chains, sets and elements, in any order, then call `apply()`.
 * The first apply reads the kernel's table, removes everything undesired, and leaves equal objects untouched (counters and the
 * contents of dynamic sets survive). The cost of a later apply depends only on the changes since. Each apply is one atomic
 * transaction, or none if there is nothing to do. A second one writes our rules in other programs' chains.
 *
 * While `apply()` or `load()` runs, all methods that change the desired state, also of set handles, throw TableError "busy".
 */
export class Table implements WatchedTable {
  readonly #kernel: Kernel;
  readonly #engine: Engine;
  /** Undefined without `ownerMark`. */
  readonly #inserted: InsertedRules | undefined;
  /** A TableWatch reports changes by others. */
  #isWatched = false;
  /** The ruleset's generation at the start of the last apply, and the transactions that our connection had committed. */
  #lastSeen: { readonly id: number; readonly committed: number } | undefined;
  #features: Promise<Features> | undefined;
  /** The verdicts and objects of maps, by the engine's numbers. */
  readonly #targets = new Map<number, Target>();
  /** Named objects by key, as declared. */
  readonly #objects = new Map<string, SetFate>();
  /** Sets by name, as last declared. */
  readonly #sets = new Map<
    string,
    { readonly elements: ListedElements; readonly spec: SetSpec; readonly fate: SetFate }
  >();

  /** Throws FieldError, or RangeError if the mark does not fit in a comment. */
  constructor(kernel: Kernel, options: TableOptions) {
    check(tableOptions, "options", options);
    const { ownerMark, ...engineOptions } = options;
    this.#kernel = kernel;
    this.#engine = new Engine(kernel, engineOptions);
    if (ownerMark !== undefined) this.#inserted = new InsertedRules(kernel, { own: this.ref, ownerMark });
  }

  /** The table's family and name. */
  get ref(): TableRef {
    return this.#engine.ref;
  }

  /**
   * Declares a chain with exactly these rules. In an `inet` table, declare the sets that its rules look up first. Throws FieldError, or RangeError
   * for a rule that cannot be expressed.
   */
  chain(spec: ChainSpec): void {
    checkChain(spec, this.ref.family);
    this.#engine.chain(spec);
  }

  removeChain(name: string): void {
    this.#engine.removeChain(name);
  }

  /**
   * Declares a set or map, and returns a handle. A repeated call with the same name and types keeps the elements, and the earlier handle stays
   * valid. With other types, the set is empty, and the earlier handle then throws TableError "invalid", as after `removeSet`. Throws
   * FieldError, or RangeError for a set that the kernel does not support.
   */
  set<const Spec extends SetSpec>(spec: Spec): ElementsOf<Spec> {
    checkSet(spec);
    // The cases of `#elementsOf` are those of `ElementsOf`.
    return this.#elementsOf(spec, ...this.#declare(spec)) as unknown as ElementsOf<Spec>;
  }

  /** Returns the set's elements, and the fate that its handles share. */
  #declare(spec: SetSpec): [elements: ListedElements, fate: SetFate] {
    const elements = this.#engine.set(spec);
    const former = this.#sets.get(spec.set);
    if (former?.elements === elements && isDeepStrictEqual(typesOf(former.spec), typesOf(spec))) {
      this.#sets.set(spec.set, { ...former, spec });
      return [elements, former.fate];
    }
    if (former !== undefined) former.fate.gone = "declared again with other types";
    if (former?.elements === elements) elements.clear();
    const fate: SetFate = {};
    this.#sets.set(spec.set, { elements, spec, fate });
    return [elements, fate];
  }

  /**
   * Declares a named object, and returns a handle. A repeated call with the same kind and name changes the definition, and the earlier handle stays
   * valid. Throws FieldError, or RangeError for an object that the kernel does not support.
   */
  object<const Spec extends ObjectSpec>(spec: Spec): ObjectOf<Spec> {
    checkObject(spec);
    this.#engine.object(spec);
    const { kind, object } = spec;
    const key = objectKey(spec);
    const fate = this.#objects.get(key) ?? {};
    this.#objects.set(key, fate);
    if (kind !== "counter" && kind !== "quota") return new NamedObject(spec) as unknown as ObjectOf<Spec>;
    const reference = { object, objType: vocabulary.OBJECT_TYPES[kind] };
    const read = (reset: boolean): Promise<ObjectDump | undefined> =>
      this.#engine.between(() => this.#kernel.object(this.ref, reference, reset));
    return new CountingObject({ kind, object }, { fate, read });
  }

  /** Its handles then throw TableError "invalid". */
  removeObject(object: ObjectName): void {
    this.#engine.removeObject(object);
    const key = objectKey(object);
    const fate = this.#objects.get(key);
    if (fate !== undefined) fate.gone = "removed from the table";
    this.#objects.delete(key);
  }

  removeSet(name: string): void {
    this.#engine.removeSet(name);
    const former = this.#sets.get(name);
    if (former !== undefined) former.fate.gone = "removed from the table";
    this.#sets.delete(name);
  }

  /** Reads the counters of all elements of sets with `counters`, for their `counted` methods. Throws TableError. */
  readCounters(): Promise<void> {
    return this.#engine.readCounters();
  }

  /** Declares all our rules at one end of another table's chain. Needs `ownerMark`. */
  insertions(desired: Insertion): void {
    check(insertion, "insertion", desired);
    for (const [index, rule] of desired.rules.entries())
      checkRule(`insertion in ${desired.table} ${desired.chain}, rule ${index}`, rule, desired.family);
    if (this.#inserted === undefined) throw new TypeError("insertions() needs the option ownerMark");
    this.#engine.checkChangeable();
    this.#inserted.set(desired);
  }

  /** Reads the kernel's state, unless it is known. Writes nothing. Throws TableError. */
  load(): Promise<void> {
    return this.#engine.load();
  }

  /**
   * Changes the kernel to the desired state. If it throws TableError, nothing has changed, and everything stays desired.
   * @param options `rebuild`: deletes the table and writes it from scratch, in one transaction. Use it as a last resort, if the kernel rejects one
   * apply after the other.
   */
  async apply(options: ApplyOptions = {}): Promise<ApplyResult> {
    check(applyOptions, "apply", options);
    // Both at once: the desired state is held from now on, and the engine runs them in turn.
    const [, table] = await Promise.all([this.#noticeOthers(), this.#engine.apply(options)]);
    if (this.#inserted === undefined) return table;
    if (table.resynced !== undefined) this.#inserted.invalidate();
    return joinInserted(table, await this.#inserted.apply());
  }

  /**
   * Returns what `apply()` would write now, as operations and as text. Reads the kernel if its state is not known, and writes nothing. The desired
   * state is kept. Throws TableError.
   */
  async plan(): Promise<TablePlan> {
    const [, table] = await Promise.all([this.#noticeOthers(), this.#engine.plan()]);
    return this.#inserted === undefined ? table : joinPlans(table, await this.#inserted.plan());
  }

  /** Compares everything with the kernel and writes nothing. The next apply repairs the differences. Throws TableError. */
  async check(): Promise<"same" | "different"> {
    const own = await this.#engine.check();
    return (await this.#inserted?.check()) === "different" ? "different" : own;
  }

  /**
   * Without a TableWatch: if anyone but this connection has committed since the last call, whatever it was, the kernel is read again. A
   * program never writes on a state that is no longer the kernel's.
   */
  async #noticeOthers(): Promise<void> {
    if (this.#isWatched) return;
    await this.#engine.between(async () => {
      const { committed } = this.#kernel;
      const { id } = await this.#kernel.generation();
      const before = this.#lastSeen;
      if (before !== undefined && ((id - before.id) | 0) !== committed - before.committed)
        this.invalidate("the ruleset has changed since the last apply");
      this.#lastSeen = { id, committed };
    });
  }

  get noticesAllTables(): boolean {
    return this.#inserted !== undefined;
  }

  /** TableWatch passes a transaction. Returns the changes by other processes, in words. */
  notice(batch: ChangeBatch): readonly string[] {
    return [...this.#engine.notice(batch), ...(this.#inserted?.notice(batch) ?? [])];
  }

  /** TableWatch tells whether it passes every transaction from now on. */
  listening(listening: boolean): void {
    this.#isWatched = listening;
    this.#lastSeen = undefined;
    this.#engine.listening(listening);
  }

  /** TableWatch tells that it missed transactions. Returns false if this was known. */
  eventsLost(reason: string): boolean {
    this.#inserted?.invalidate();
    return this.#engine.eventsLost(reason);
  }

  /** Makes the next apply read everything first. Its result contains `reason`. */
  invalidate(reason: string): void {
    this.#engine.invalidate(reason);
    this.#inserted?.invalidate();
  }

  /** Returns the kernel's features. They are probed once, or again with `refresh`, by transactions that are rolled back. */
  features(refresh = false): Promise<Features> {
    if (this.#features === undefined || refresh) {
      const probing = probeFeatures(this.#kernel, this.ref.family);
      probing.catch(() => {
        if (this.#features === probing) this.#features = undefined;
      });
      this.#features = probing;
    }
    return this.#features;
  }

  /** Returns the desired state as text for `nft -f` (1.0.6 or newer). */
  render(): string {
    const inserted = this.#inserted?.render() ?? [];
    if (inserted.length === 0) return this.#engine.render();
    const lines = ["# in chains of other tables, which must exist", ...inserted];
    return `${this.#engine.render()}\n${lines.join("\n")}\n`;
  }

  /** Removes the table and our rules in other tables from the kernel. The desired state is kept. Throws TableError. */
  async destroy(): Promise<ApplyResult> {
    const table = await this.#engine.destroy();
    return this.#inserted === undefined ? table : joinInserted(table, await this.#inserted.destroy());
  }

  /** Rejects further calls. The kernel's state does not change. */
  close(): void {
    this.#engine.close();
  }

  #elementsOf(spec: SetSpec, elements: ListedElements, fate: SetFate): object {
    if (spec.dynamic === true) {
      const filled = this.#filledSet(spec, fate);
      return Array.isArray(spec.data) ? new DynamicMap(filled) : new DynamicSet(filled);
    }
    if (spec.data === undefined) {
      if (spec.interval !== true) return new PlainSet(elements, fate);
      return new (spec.key.length === 1 && spec.key[0].endsWith("_addr") ? NetworkSet : RangeSet)(elements, fate);
    }
    const id = (target: Target): number => {
      const number = this.#engine.verdictId(target);
      this.#targets.set(number, target);
      return number;
    };
    const where = `map ${spec.set}, data`;
    if (spec.data === "verdict") {
      return new VerdictMap(elements, fate, {
        id: (text) => {
          check(VERDICT, where, text);
          return id(parseVerdict(text));
        },
        target: (number) => verdictText(this.#targets.get(number) as Verdict),
      });
    }
    if (!("object" in spec.data)) return new DataMap(elements, fate);
    const kind = spec.data.object;
    return new ObjectMap(elements, fate, {
      id: (object) => {
        check(vocabulary.name, where, object);
        return id({ kind, object });
      },
      target: (number) => (this.#targets.get(number) as ObjectName).object,
    });
  }

  #filledSet(spec: SetSpec, fate: SetFate): FilledSet {
    const { set } = spec;
    const { ref } = this;
    return {
      spec,
      fate,
      dump: (keyLen, dataLen) =>
        this.#engine.between(async () => {
          const info = (await this.#kernel.sets(ref)).find((found) => found.set === set);
          const fits = info?.keyLen === keyLen && (info.dataLen ?? 0) === dataLen;
          return fits ? this.#kernel.elements(ref, info) : undefined;
        }),
      commit: (changes: readonly ElementChange[]) =>
        this.#engine.between(async () => {
          await this.#kernel.commit(changes.map((change) => ({ kind: "elements", ...ref, set, ...change })));
        }),
    };
  }
}

function typesOf({ key, data, interval = false, dynamic = false }: SetSpec): readonly unknown[] {
  return [key, data, interval, dynamic];
}
