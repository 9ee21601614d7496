/** `Table` and `TableWatch` as the library offers them: over the engine's own, with values as people write them. */
import { isDeepStrictEqual } from "node:util";
import type { Kernel, TableRef, Verdict } from "../netlink/kernel.js";
import {
  type ApplyOptions as EngineApplyOptions,
  type ApplyResult,
  type ElementSet,
  type Features,
  type ForeignChange,
  type Insertion as FullInsertion,
  Table as Engine,
  type TableOptions as EngineOptions,
  TableWatch as EngineWatch,
  type WatchOptions,
} from "../table/table-exports.js";
import {
  DataMap,
  DynamicSet,
  type ElementsOf,
  NetworkSet,
  PlainSet,
  type SetFate,
  type SetSpec,
  VerdictMap,
} from "./elements.js";
import {
  applyOptions,
  check,
  checkChain,
  checkRule,
  checkSet,
  insertion,
  tableOptions,
  watchHandlers,
  watchOptions,
} from "./checks.js";
import { type ChainSpec, fullChain, fullRule, type Rule } from "./rules.js";

/** What a table is. */
export interface TableOptions extends Pick<EngineOptions, "family" | "name" | "comment" | "own" | "ownerMark"> {}

/** How a table is applied. */
export interface ApplyOptions extends Pick<EngineApplyOptions, "rebuild"> {}

/** Rules of ours in a chain of another table. */
export interface Insertion extends Omit<FullInsertion, "rules"> {
  readonly rules: readonly Rule[];
}

const engines = new WeakMap<Table, Engine>();

/**
 * An nf_tables table that this program owns. Say which chains, sets and elements are desired, in any order, then `apply()`.
 * The first apply reads what the kernel holds; everything else in the table goes, and what is the same stays untouched
 * (counters and the contents of dynamic sets survive). Later ones cost as much as what changed. Each is one atomic
 * transaction, or none when there is nothing to do.
 *
 * Methods that change what is desired, also those of set handles, throw TableError "busy" while `apply()` or `load()` runs.
 */
export class Table {
  readonly #engine: Engine;
  /** Verdicts that maps were given, by the engine's numbers. */
  readonly #verdicts = new Map<number, Verdict>();
  /** Sets by name, as they were declared last. */
  readonly #sets = new Map<string, { readonly elements: ElementSet; readonly spec: SetSpec; readonly fate: SetFate }>();

  /** Throws FieldError, and RangeError for a mark that a comment cannot hold. */
  constructor(kernel: Kernel, options: TableOptions) {
    check(tableOptions, "options", options);
    this.#engine = new Engine(kernel, options);
    engines.set(this, this.#engine);
  }

  /** Family and name. */
  get ref(): TableRef {
    return this.#engine.ref;
  }

  /**
   * The chain has exactly these rules. In an `inet` table the sets that its rules look up come first. Throws FieldError, or RangeError
   * for what cannot be expressed.
   */
  chain(spec: ChainSpec): void {
    const { family } = this.ref;
    checkChain(spec, family);
    this.#engine.chain(fullChain(spec, family));
  }

  removeChain(name: string): void {
    this.#engine.removeChain(name);
  }

  /**
   * The set or map; called again with the same name and types it has the same elements, and what was returned before goes on. With other
   * types it is empty, and what was returned before throws TableError "invalid" from then on, as after `removeSet`. Throws FieldError, or
   * RangeError for what the kernel cannot hold.
   */
  set<const Spec extends SetSpec>(spec: Spec): ElementsOf<Spec> {
    checkSet(spec);
    // The cases of `#elementsOf` are those of `ElementsOf`.
    return this.#elementsOf(spec, ...this.#declare(spec)) as unknown as ElementsOf<Spec>;
  }

  /** The set's elements, and the fate that handles of it share. */
  #declare(spec: SetSpec): [elements: ElementSet, fate: SetFate] {
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

  removeSet(name: string): void {
    this.#engine.removeSet(name);
    const former = this.#sets.get(name);
    if (former !== undefined) former.fate.gone = "removed from the table";
    this.#sets.delete(name);
  }

  /** Reads what the elements of sets with `counters` have counted, for their `counted`. Throws TableError. */
  readCounters(): Promise<void> {
    return this.#engine.readCounters();
  }

  /** Exactly these rules of ours at that end of another table's chain; needs `ownerMark`. */
  insertions(target: Insertion): void {
    check(insertion, "insertion", target);
    const rules = target.rules.map((rule, index) => {
      const where = `insertion in ${target.table} ${target.chain}, rule ${index}`;
      checkRule(where, rule, target.family);
      return fullRule(where, rule);
    });
    this.#engine.insertions({ ...target, rules });
  }

  /** Reads what the kernel holds, unless that is known. Writes nothing. Throws TableError. */
  load(): Promise<void> {
    return this.#engine.load();
  }

  /**
   * Brings the kernel to what is desired. Throws TableError; then nothing has changed, and everything stays desired.
   * @param options `rebuild`: the table is deleted and written from scratch, in one transaction. The last resort for a table that the kernel refuses
   * to change, apply after apply.
   */
  async apply(options: ApplyOptions = {}): Promise<ApplyResult> {
    check(applyOptions, "apply", options);
    return this.#engine.apply(options);
  }

  /** Compares everything with the kernel and writes nothing; what differs is repaired by the next apply. Throws TableError. */
  check(): Promise<"same" | "different"> {
    return this.#engine.check();
  }

  /** The next apply reads everything first. `reason` comes back in its result. */
  invalidate(reason: string): void {
    this.#engine.invalidate(reason);
  }

  /** What the kernel can do, probed once by transactions that are rolled back; again with `refresh`. */
  features(refresh = false): Promise<Features> {
    return this.#engine.features(refresh);
  }

  /** What is desired, as text for `nft -f` (1.0.6 or newer). */
  render(): string {
    return this.#engine.render();
  }

  /** Removes the table and our rules in other tables. What is desired stays so. Throws TableError. */
  destroy(): Promise<ApplyResult> {
    return this.#engine.destroy();
  }

  /** Refuses further calls; the kernel keeps what it holds. */
  close(): void {
    this.#engine.close();
  }

  #elementsOf(
    spec: SetSpec,
    elements: ElementSet,
    fate: SetFate,
  ): DataMap | DynamicSet | NetworkSet | PlainSet | VerdictMap {
    if (spec.interval === true) return new NetworkSet(elements, fate);
    if (spec.dynamic === true) return new DynamicSet(spec);
    if (spec.data === undefined) return new PlainSet(elements, fate);
    if (spec.data !== "verdict") return new DataMap(elements, fate);
    return new VerdictMap(elements, fate, {
      id: (verdict) => {
        const id = this.#engine.verdictId(verdict);
        this.#verdicts.set(id, verdict);
        return id;
      },
      verdict: (id) => this.#verdicts.get(id)!,
    });
  }
}

function typesOf({ key, data, interval = false, dynamic = false }: SetSpec): readonly unknown[] {
  return [key, data, interval, dynamic];
}

export interface WatchHandlers {
  /** Another process changed the table: its next apply repairs it. */
  changed(table: Table, change: ForeignChange): void;
  /** Events were lost: every table's next apply reads it. */
  lost(reason: string): void;
  /** Listening failed; retrying in `againMs`. */
  failed(error: unknown, againMs: number): void;
}

/** Listens to what other processes do to tables of ours. */
export class TableWatch {
  readonly #watch: EngineWatch;

  constructor(kernel: Kernel, tables: readonly Table[], handlers: WatchHandlers, options: WatchOptions = {}) {
    check(watchHandlers, "handlers", handlers);
    check(watchOptions, "options", options);
    const outer = new Map(tables.map((table) => [engines.get(table)!, table]));
    this.#watch = new EngineWatch(
      kernel,
      [...outer.keys()],
      {
        changed: (engine, change) => handlers.changed(outer.get(engine)!, change),
        lost: (reason) => handlers.lost(reason),
        failed: (error, againMs) => handlers.failed(error, againMs),
      },
      options,
    );
  }

  /** Listens when it resolves, or retries by itself: call it before the tables are read. Never fails. */
  open(): Promise<void> {
    return this.#watch.open();
  }

  /** Ends for good. */
  close(): Promise<void> {
    return this.#watch.close();
  }
}
