/** `Table`, which a program declares and owns. */
import { performance } from "node:perf_hooks";
import type { ChangeBatch, Kernel, TableRef } from "./kernel/kernel.js";
import type { ChainSpec } from "./statements/rule.js";
import type { ObjectName, ObjectSpec } from "./language/object-kinds.js";
import { check } from "./language/fields/field-error.js";
import type { ElementSet, KeptSpec } from "./elements/element-set.js";
import type { Target } from "./elements/verdict-registry.js";
import { applyOptions, checkSet, insertion, tableOptions } from "./statements/checks.js";
import type { ApplyOptions, ApplyResult, TableOptions } from "./sync/apply-result.js";
import { DesiredState } from "./sync/desired-state.js";
import { type Features, probeFeatures } from "./sync/features.js";
import { ForeignChanges } from "./sync/foreign-changes.js";
import { InsertedRules, type Insertion, joinInserted, joinPlans } from "./sync/inserted-rules.js";
import type { TablePlan } from "./sync/plan-text.js";
import { renderTable } from "./sync/print.js";
import { type CheckOutcome, TableCheck } from "./sync/table-check.js";
import { TableWriter } from "./sync/table-writer.js";
import type { ElementsOf } from "./handles/elements.js";
import { CountingObject, NamedObject, type ObjectOf } from "./handles/named-objects.js";
import type { SetSpec } from "./handles/set-spec.js";
import type { KernelTable } from "./handles/filled-sets.js";
import * as vocabulary from "./language/vocabulary.js";
import { setHandle } from "./handles/set-handle.js";

/** The methods that declare chains, and sets by packed bytes. */
export type TableDeclarations = Pick<Table, "chain" | "removeChain" | "packedSet" | "removeSet" | "verdictId">;

/** The parts that use the kernel. */
interface KernelSide {
  readonly kernel: Kernel;
  readonly writer: TableWriter;
  readonly foreign: ForeignChanges;
  readonly checks: TableCheck;
  /** Undefined without `ownerMark`. */
  readonly inserted: InsertedRules | undefined;
}

/**
 * An nf_tables table that this program owns. Declare the desired chains, sets and elements, in any order, then call `apply()`.
 * The first apply reads the kernel's table, removes everything undesired, and leaves equal objects untouched (counters and the
 * contents of dynamic sets survive). The cost of a later apply depends only on the changes since. Each apply is one atomic
 * transaction, or none if there is nothing to do. A second one writes our rules in other programs' chains.
 *
 * `apply()`, `load()`, `plan()` and `replace()` of its sets run one after the other, in the order of the calls. Until they end, all other methods that
 * change the desired state, also of set handles, throw TableError "busy".
 */
export class Table {
  /** The table's family and name. */
  readonly ref: TableRef;
  readonly #options: TableOptions;
  readonly #desired: DesiredState;
  readonly #inKernel: KernelTable;
  readonly #kernelSide: KernelSide | undefined;
  #features: Promise<Features> | undefined;

  /**
   * Throws FieldError.
   * @param kernel undefined for a table that is only declared and rendered. Methods that need the kernel then throw TypeError.
   * @example
   * new Table(kernel, { family: "inet", name: "mine", comment: "made by my program" });
   */
  constructor(kernel: Kernel | undefined, options: TableOptions) {
    check(tableOptions, "options", options);
    const { family, name, ownerMark, clock = { now: () => performance.now() } } = options;
    this.#options = options;
    this.ref = { family, table: name };
    this.#desired = new DesiredState(this.ref, () => clock.now());
    this.#inKernel = {
      ref: this.ref,
      call: (call) => this.#desired.turns.take(() => call(this.#side.kernel)),
      commit: (ops) =>
        this.#desired.turns.take(async () => {
          await this.#side.kernel.commit(ops);
          this.#side.foreign.own({ transactions: 1 });
        }),
    };
    if (kernel === undefined) return;
    const writer = new TableWriter(kernel, this.#desired, { ...options, clock });
    this.#kernelSide = {
      kernel,
      writer,
      foreign: new ForeignChanges(kernel, writer.observed),
      checks: new TableCheck(writer.observed),
      inserted: ownerMark === undefined ? undefined : new InsertedRules(kernel, { own: this.ref, ownerMark, clock }),
    };
  }

  get #side(): KernelSide {
    if (this.#kernelSide === undefined) throw new TypeError(`table ${this.ref.table} was declared without a kernel`);
    return this.#kernelSide;
  }

  /**
   * Declares a chain with exactly these rules. In an `inet` table, declare the sets that its rules look up first. Throws FieldError.
   * @example
   * table.chain({
   *   chain: "input",
   *   base: { type: "filter", hook: "input", priority: "filter", policy: "drop" },
   *   rules: [{ statements: [{ field: "tcp dport", value: [22, 443] }, { action: "verdict", verdict: "accept" }] }],
   * });
   */
  chain(spec: ChainSpec): void {
    this.#desired.chain(spec);
  }

  /**
   * No longer declares the chain. Rules that jump to it have to go, too.
   * @example
   * table.removeChain("input");
   */
  removeChain(name: string): void {
    check(vocabulary.name, "removeChain", name);
    this.#desired.removeChain(name);
  }

  /**
   * Declares a set or map, and returns a handle. A repeated call with the same name and types keeps the elements, and the earlier handle stays
   * valid. With other types, the set is empty, and the earlier handle then throws TableError "invalid", as after `removeSet`. Throws
   * FieldError.
   * @example
   * const ports = table.set({ set: "open-ports", key: ["inet_service"] });
   * ports.put(443);
   * const services = table.set({ set: "doors", key: ["inet_service"], data: "verdict" });
   * services.put(22, "accept");
   */
  set<const Spec extends SetSpec>(spec: Spec): ElementsOf<Spec> {
    checkSet(spec);
    return setHandle(spec, this.#desired.set(spec), this.#desired.verdicts, this.#inKernel);
  }

  /**
   * Declares a set or map, and returns its elements as packed bytes: the fast path, for sets with many changes. The specification is not checked,
   * beyond what the kernel needs. A repeated call returns the same elements, unless the width of the key or data, or whether it is a set of
   * intervals, has changed. Throws FieldError.
   * @example
   * const fast = table.packedSet({ set: "fast", key: ["ipv4_addr"] });
   * fast.put(Uint8Array.of(192, 0, 2, 1));
   */
  packedSet(spec: KeptSpec): ElementSet {
    return this.#desired.set(spec);
  }

  /**
   * Number that stands for the verdict or named object in the packed data of this table's maps, until its chain or object is neither declared nor in
   * the kernel.
   * @example
   * const doors = table.packedSet({ set: "doors", key: ["mark"], data: "verdict" });
   * const target = table.verdictId({ verdict: "goto", chain: "web" });
   * doors.put(Uint8Array.of(1, 0, 0, 0), new Uint8Array(Uint32Array.of(target).buffer));
   */
  verdictId(target: Target): number {
    return this.#desired.verdicts.id(target);
  }

  /**
   * No longer declares the set or map. Its handles then throw TableError "invalid".
   * @example
   * table.removeSet("banned");
   */
  removeSet(name: string): void {
    check(vocabulary.name, "removeSet", name);
    this.#desired.removeSet(name);
  }

  /**
   * Declares a named object, and returns a handle. A repeated call with the same kind and name changes the definition, and the earlier handle stays
   * valid. Throws FieldError.
   * @example
   * const requests = table.object({ object: "requests", kind: "counter" });
   * await table.apply();
   * console.log(await requests.read()); // { packets: 0, bytes: 0 }
   */
  object<const Spec extends ObjectSpec>(spec: Spec): ObjectOf<Spec> {
    this.#desired.object(spec);
    const { kind, object } = spec;
    const counts = kind === "counter" || kind === "quota";
    const handle = counts ? new CountingObject({ kind, object }, this.#desired, this.#inKernel) : new NamedObject(spec);
    return handle as unknown as ObjectOf<Spec>;
  }

  /**
   * Its handles then throw TableError "invalid", unless it is declared again.
   * @example
   * table.removeObject({ object: "requests", kind: "counter" });
   */
  removeObject(object: ObjectName): void {
    check(vocabulary.name, "removeObject, object", object.object);
    this.#desired.removeObject(object);
  }

  /**
   * Declares all our rules at one end of another table's chain. Needs `ownerMark`.
   * @example
   * table.insertions({
   *   family: "ip",
   *   table: "filter",
   *   chain: "FORWARD",
   *   mode: "insert",
   *   rules: [{ statements: [{ field: "iifname", value: "eth0" }, { action: "verdict", verdict: "accept" }] }],
   * });
   */
  insertions(desired: Insertion): void {
    check(insertion, "insertion", desired);
    const { inserted } = this.#side;
    if (inserted === undefined) throw new TypeError("insertions() needs the option ownerMark");
    this.#desired.checkChangeable();
    inserted.set(desired);
  }

  /**
   * Starts reading the kernel in the background. The first `load` or `apply` uses the result if nothing has changed since.
   * @example
   * table.readAhead();
   * await table.load();
   */
  readAhead(): void {
    this.#side.writer.observed.readAhead();
  }

  /**
   * Reads the kernel's state, unless it is known. Writes nothing. Throws TableError.
   * @example
   * await table.load();
   * console.log(banned.keys()); // [ "192.0.2.1" ]
   */
  load(): Promise<void> {
    return this.#holding(({ writer }) => writer.load());
  }

  /**
   * Reads the counters of all elements of sets with `counters`, for their `counted` methods. Throws TableError.
   * @example
   * await table.readCounters();
   * console.log(banned.counted("192.0.2.1")); // { packets: 0, bytes: 0 }
   */
  readCounters(): Promise<void> {
    return this.#desired.turns.named(() => this.#side.writer.observed.readCounters());
  }

  /**
   * Changes the kernel to the desired state. If it throws TableError, nothing has changed, and everything stays desired.
   * @example
   * const { transactions, operations } = await table.apply();
   * console.log(transactions, operations.element.add); // 0 0: nothing differs
   */
  async apply(options: ApplyOptions = {}): Promise<ApplyResult> {
    check(applyOptions, "apply", options);
    return this.#holding(async ({ writer, inserted, foreign }) => {
      await this.#noticeOthers();
      const table = foreign.own(await writer.apply(options));
      if (inserted === undefined) return table;
      if (table.resynced !== undefined) inserted.invalidate();
      return joinInserted(table, foreign.own(await inserted.apply()));
    });
  }

  /**
   * Returns what `apply()` would write now, as operations and as text. Reads the kernel if its state is not known, and writes nothing. The desired
   * state is kept. An apply may split the operations into several transactions, and may delete some objects of an earlier owner after their grace
   * period only. Throws TableError.
   * @example
   * banned.put("192.0.2.9");
   * console.log((await table.plan()).text); // add element inet guard banned …
   */
  plan(): Promise<TablePlan> {
    return this.#holding(async ({ writer, inserted }) => {
      await this.#noticeOthers();
      const table = await writer.plan();
      return inserted === undefined ? table : joinPlans(table, await inserted.plan());
    });
  }

  /**
   * Without a TableWatch: if anyone else has committed since the last call, whatever it was, the kernel is read again. A
   * program never writes on a state that is no longer the kernel's.
   */
  async #noticeOthers(): Promise<void> {
    if (await this.#side.foreign.unreported(this.noticesAllTables))
      this.eventsLost("the ruleset has changed since the last apply");
  }

  /**
   * Compares everything with the kernel, part by part: the structure, then each set. If an apply disturbs a part, the part is repeated while the next
   * apply waits. Writes nothing: the next apply reads and repairs the differences. Throws TableError.
   * @param mostElements if the kernel counts elements (Linux 6.16): compare about this many elements, of all sets in turn from one check to
   * the next. For the other sets, only compare the number of elements.
   * @example
   * if ((await table.check()) === "different") await table.apply();
   */
  async check(mostElements = Infinity): Promise<CheckOutcome> {
    const { checks, inserted } = this.#side;
    const own = await checks.run((part) => this.#desired.turns.undisturbed(part), mostElements);
    if (inserted === undefined) return own;
    return (await this.#desired.turns.take(() => inserted.check())) === "different" ? "different" : own;
  }

  /**
   * Makes the next apply read everything first. Its result contains `reason`.
   * @example
   * table.invalidate("the firewall was restarted");
   * await table.apply(); // reads the table again
   */
  invalidate(reason: string): void {
    const { writer, inserted } = this.#side;
    writer.observed.invalidations.add({ cause: "asked", reason });
    inserted?.invalidate();
  }

  /**
   * Whether the kernel's table may differ from what we last wrote. The next apply that repairs reads it.
   * @example
   * console.log(table.invalidated); // false
   */
  get invalidated(): boolean {
    return this.#side.writer.observed.invalidations.any;
  }

  /** TableWatch passes a transaction. Returns the changes by other processes, in words. */
  notice(batch: ChangeBatch): readonly string[] {
    const { foreign, inserted } = this.#side;
    return [...foreign.notice(batch), ...(inserted?.notice(batch) ?? [])];
  }

  /** Whether `notice` needs the transactions of all tables, because some of our rules are in others' chains. */
  get noticesAllTables(): boolean {
    return this.#side.inserted !== undefined;
  }

  /** TableWatch tells whether it passes every transaction from now on. */
  listening(listening: boolean): void {
    this.#side.foreign.listening(listening);
  }

  /** TableWatch tells that it missed transactions. Returns false if this was known. */
  eventsLost(reason: string): boolean {
    const { foreign, inserted } = this.#side;
    inserted?.invalidate();
    return foreign.lost(reason);
  }

  /**
   * Returns the kernel's features. They are probed once, or again with `refresh`, by transactions that are rolled back.
   * @example
   * console.log((await table.features()).tableOwner); // true
   */
  features(refresh = false): Promise<Features> {
    if (this.#features === undefined || refresh) {
      const probing = probeFeatures(this.#side.kernel, this.ref.family);
      probing.catch(() => {
        if (this.#features === probing) this.#features = undefined;
      });
      this.#features = probing;
    }
    return this.#features;
  }

  /**
   * Whether this process should own the table (TableOptions.own), and the kernel supports it.
   * @example
   * console.log(await table.owned()); // false
   */
  owned(): Promise<boolean> {
    return this.#side.writer.ownership.wanted();
  }

  /**
   * Whether another program owns the table now. Only asks the kernel for its list of tables.
   * @example
   * console.log(await table.ownedByOther()); // false
   */
  ownedByOther(): Promise<boolean> {
    return this.#side.writer.ownership.isTheirs();
  }

  /**
   * Returns the desired state as text for `nft -f` (1.0.6 or newer).
   * @example
   * console.log(table.render()); // add table inet guard…
   */
  render(): string {
    const text = renderTable(this.ref, this.#options.comment, this.#desired);
    const inserted = this.#kernelSide?.inserted?.render() ?? [];
    if (inserted.length === 0) return text;
    return `${[text, "# in chains of other tables, which must exist", ...inserted].join("\n")}\n`;
  }

  /**
   * Removes the table and our rules in other tables from the kernel. The desired state is kept. Throws TableError.
   * @example
   * await table.destroy();
   */
  async destroy(): Promise<ApplyResult> {
    const { writer, inserted, foreign } = this.#side;
    return this.#desired.turns.take(async () => {
      const table = foreign.own(await writer.destroy());
      return inserted === undefined ? table : joinInserted(table, foreign.own(await inserted.destroy()));
    });
  }

  /**
   * Rejects further calls. The kernel's state does not change.
   * @example
   * table.close();
   */
  close(): void {
    this.#desired.turns.close();
  }

  /** Runs the call after all earlier ones. The desired state cannot change until it ends. Rejects with TableError. */
  #holding<T>(call: (side: KernelSide) => Promise<T>): Promise<T> {
    const side = this.#side;
    return this.#desired.holding(() => this.#desired.turns.named(() => call(side)));
  }
}
