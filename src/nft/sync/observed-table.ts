/** The observed table: the kernel's state, the parts of it that are invalidated, and the reads that settle them. */
import { TimeSlice } from "../../base/time-slice.js";
import { SetFlag } from "../kernel/constants.js";
import { KernelError } from "../kernel/errors.js";
import type { ElementBatch, Kernel, ObjectDump, SetInfo, TableRef } from "../kernel/kernel.js";
import { Announcements, type Period } from "./announcements.js";
import { believed, Invalidations, type InvalidationScope } from "./invalidations.js";
import { driftOf, elementChanges, structureChanges } from "./drift.js";
import type { ElementDrift, TrackedElements } from "../elements/tracked-elements.js";
import { fateOf, type TableFacts } from "./quirks.js";
import { needsHandles, type SetPlan } from "./plan.js";
import { dataFields, hasTargets, packedBytes, serves, typeId } from "../language/schema.js";
import {
  dumpRules,
  dumpTable,
  emptyState,
  type KernelState,
  packetsComeBy,
  type TableDump,
  unlessTorn,
} from "./table-dump.js";
import type { SetSpec } from "../language/set-spec.js";
import type { Drift } from "./apply-result.js";
import type { DesiredState } from "./desired-state.js";
import type { Decisions } from "./decisions.js";

export interface Reading {
  readonly reason: string;
  /** Whether all sets were read, not only invalidated ones. */
  readonly whole: boolean;
  /** The generation of the whole read. Undefined if only a part was read, or the table changed all the time. */
  readonly generation: number | undefined;
  /** Differences from the observed state. Undefined if there are none, or nothing was observed before. */
  readonly drift: Drift | undefined;
}

/** A set with known elements, which can be compared with the kernel's. */
export interface ComparableSet {
  readonly set: string;
  /** The observed number of elements. */
  readonly elements: number;
  /** Whether the kernel reports another number. Undefined if it does not count elements. */
  readonly countDiffers: boolean | undefined;
}

export class ObservedTable {
  state: KernelState = emptyState();
  readonly invalidations = new Invalidations();
  readonly announcements = new Announcements();
  /** Whether our socket should own the table. */
  own = false;
  /** The named objects of a table that has to be deleted before ours can be created. */
  former: ReadonlyMap<string, ObjectDump> = new Map();
  /** The dynamic sets of a table that has to be deleted before ours can be created. */
  #filled: readonly SetInfo[] = [];
  #condemned = false;
  /** The comment of the table that served packets at the first read: it is kept. Undefined if there was no such table. */
  #tolerated: { readonly comment: string | undefined } | undefined;
  #wasRead = false;
  /** A dump that began before anything was desired, and the events received since. */
  #ahead: { readonly dump: Promise<TableDump | undefined>; readonly period: Period | undefined } | undefined;

  constructor(
    readonly kernel: Kernel,
    readonly desired: DesiredState,
    /** The table's desired comment. Undefined: any comment is accepted. */
    readonly comment: string | undefined,
  ) {}

  get ref(): TableRef {
    return this.desired.ref;
  }

  /**
   * Starts dumping the whole table for the first read, so the kernel walks it while the first objects arrive. Sets that packets fill are left to that
   * read.
   */
  readAhead(): void {
    const period = this.announcements.begin();
    const dump = dumpTable(this.kernel, this.ref, this.announcements, {
      wantsChain: () => true,
      wantsElements: ({ flags }) => (flags & (SetFlag.eval | SetFlag.timeout)) === 0,
    });
    // The read that would use the dump gets the same error, and reports it.
    this.#ahead = { dump: dump.catch(() => undefined), period };
  }

  /** Reads the invalidated parts. The next transaction compares everything desired with them. */
  async read(): Promise<Reading> {
    const scope = this.invalidations.begin();
    try {
      const dump = (await this.#takeAhead()) ?? (await this.#dump((set) => this.#inScope(set, scope)));
      const drift = await this.#adopt(dump, scope);
      const whole = scope.sets === "all";
      this.invalidations.settled(whole ? dump.since : undefined);
      return { reason: scope.reason, whole, generation: whole ? dump.generation : undefined, drift };
    } catch (error) {
      this.invalidations.failed(scope);
      throw error;
    }
  }

  /**
   * Reads everything, and lets the next transaction delete the table first. If the read fails, nothing is known of the table, and the counters and
   * contents of its sets are lost.
   */
  async condemn(reason: string): Promise<Reading> {
    this.invalidations.add({ cause: "asked", reason });
    this.#condemned = true;
    try {
      return await this.read();
    } catch {
      const scope = this.invalidations.begin();
      const table = (await this.kernel.tables(this.ref.family)).find((info) => info.table === this.ref.table);
      const state = { ...emptyState(), table };
      const nothing = { state, elements: new Map<string, ElementBatch>(), since: 0, generation: undefined };
      await this.#adopt(nothing, scope);
      return { reason, whole: true, generation: undefined, drift: undefined };
    } finally {
      this.#condemned = false;
    }
  }

  /** Reads the elements that packets put into sets of a table that has to be deleted. Sets that cannot be read are skipped. */
  async readFilled(): Promise<Map<string, ElementBatch>> {
    const filled = new Map<string, ElementBatch>();
    if (!this.state.inTheWay) return filled;
    for (const info of this.#filled) {
      const batch = await this.kernel.elements(this.ref, info).catch(() => undefined);
      if (batch !== undefined && batch.count > 0) filled.set(info.set, batch);
    }
    return filled;
  }

  /** Reads the elements that packets put into sets that are created again, with or without their table. */
  async readSaved(plans: readonly SetPlan[]): Promise<Map<string, ElementBatch>> {
    const saved = await this.readFilled();
    for (const { name, action } of plans) {
      const [info, spec] = [this.state.sets.get(name), this.desired.setSpec(name)];
      if (action !== "recreate" || spec?.dynamic !== true || info === undefined) continue;
      if (!this.#canMove(info, spec)) continue;
      const batch = await this.kernel.elements(this.ref, info).catch(() => undefined);
      const fits = batch !== undefined && (typeof spec.size !== "number" || batch.count <= spec.size);
      if (fits && batch.count > 0) saved.set(name, batch);
    }
    return saved;
  }

  /** Whether the set that replaces the kernel's can hold its elements. Statements of single elements cannot be read. */
  #canMove(info: SetInfo, spec: SetSpec): boolean {
    const hasOwn = [...this.state.chains.values()].some(({ rules }) =>
      rules.some(({ canonical }) =>
        canonical.some((expr) => expr.type === "dynset" && expr.set === info.set && (expr.exprs ?? []).length > 0),
      ),
    );
    const timed = (info.flags & SetFlag.timeout) !== 0;
    const counts = (info.exprs ?? []).map(({ type }) => type).join();
    return (
      !hasOwn &&
      holdsSameElements(info, spec) &&
      (!timed || spec.timeoutMs !== undefined) &&
      (counts === "" || (counts === "counter" && spec.counters !== undefined))
    );
  }

  /** Reads the counts of objects that are created again, and the handles of rules beside those that name something that goes. */
  async readReplaced({ objects, chains }: Pick<Decisions, "objects" | "chains">): Promise<void> {
    for (const { name, fate, found } of objects) {
      if (fate !== "recreate" || found === undefined) continue;
      const now = await this.kernel.object(this.ref, found);
      if (now !== undefined) this.state.objects.set(name, now);
    }
    for (const { name, going, desired } of chains) {
      const kernel = this.state.chains.get(name);
      const unknown = kernel?.rules.some(({ handle }) => handle === undefined) === true;
      if (unknown && going !== undefined && desired !== undefined)
        kernel.rules = await dumpRules(this.kernel, this.ref, name);
    }
  }

  /** Reads sets that were declared since the last read of the kernel. */
  async readUnknownSets(): Promise<void> {
    for (const name of [...this.desired.watched]) {
      const elements = this.desired.sets.get(name);
      if (elements === undefined || elements.known) continue;
      const info = this.state.sets.get(name);
      const readable = info !== undefined && this.#counterpart(info) !== undefined;
      await this.#load(name, elements, readable ? await this.kernel.elements(this.ref, info) : undefined);
      elements.known = true;
    }
  }

  /** Reads the rules of changed chains with unknown handles. */
  async readHandles(): Promise<void> {
    for (const name of [...this.desired.dirtyChains]) {
      const kernel = this.state.chains.get(name);
      const desired = this.desired.chains.get(name);
      if (kernel !== undefined && desired !== undefined && needsHandles(kernel, desired))
        kernel.rules = await dumpRules(this.kernel, this.ref, name);
    }
  }

  /** Dumps the table, with the elements of the desired sets that `picks` selects. */
  #dump(picks: (set: string) => boolean): Promise<TableDump> {
    const { chains } = this.desired;
    return dumpTable(this.kernel, this.ref, this.announcements, {
      hasObjects: this.desired.objects.size + this.state.objects.size > 0,
      likelyChains: new Set([...chains.keys(), ...this.state.chains.keys()]),
      wantsChain: (chain) => chains.has(chain),
      wantsElements: (info) => this.#counterpart(info) !== undefined && picks(info.set),
    });
  }

  /** Returns the dump that `readAhead` started. Undefined if there is none, or the table may have changed since. */
  async #takeAhead(): Promise<TableDump | undefined> {
    const ahead = this.#ahead;
    if (ahead === undefined) return undefined;
    this.#ahead = undefined;
    try {
      const dump = await ahead.dump;
      // When an owner ends, the generation does not change.
      if (dump?.generation === undefined || dump.state.table?.owner !== undefined) return undefined;
      const { id } = await this.kernel.generation();
      const same = id === dump.generation || (await ahead.period?.untouched(dump.generation, id)) === true;
      if (!same) return undefined;
      return { ...dump, since: id, generation: id };
    } finally {
      ahead.period?.end();
    }
  }

  /** Returns the desired set whose rows can represent the elements of the kernel's set. */
  #counterpart(info: SetInfo): TrackedElements | undefined {
    const elements = this.desired.sets.get(info.set);
    if (elements === undefined || elements.spec.dynamic === true) return undefined;
    const { spec } = elements;
    return serves(info, spec) || (spec.keep === true && holdsSameElements(info, spec)) ? elements : undefined;
  }

  /** Whether everything but elements is as observed, and the sets whose elements can be compared. */
  async compareStructure(): Promise<{ readonly same: boolean; readonly sets: readonly ComparableSet[] }> {
    const { state } = await this.#dump(() => false);
    const sets: ComparableSet[] = [];
    for (const info of state.sets.values()) {
      const { set, flags, count } = info;
      const elements = this.#counterpart(info);
      if (elements?.known !== true || !this.state.sets.has(set)) continue;
      const { kernelSize, kernelCount } = elements;
      // The kernel's count is unreliable for intervals, because it halves its number of interval ends.
      const differs = count !== kernelCount && (flags & SetFlag.interval) === 0;
      sets.push({ set, elements: kernelSize, countDiffers: count === undefined ? undefined : differs });
    }
    return { same: structureChanges(this.state, state).length === 0, sets };
  }

  /** Whether the kernel's set has exactly the observed elements. Also true if they are no longer known. */
  async compareElements(set: string): Promise<boolean> {
    const info = this.state.sets.get(set);
    const elements = info && this.#counterpart(info);
    if (info === undefined || elements?.known !== true) return true;
    const batch = await unlessTorn(() => this.kernel.elements(this.ref, info));
    return batch !== undefined && elementChanges(set, await elements.compare(batch)).length === 0;
  }

  /** Reads the counters of elements, for `ElementSet.count`. May run at the same time as any other call. */
  async readCounters(): Promise<void> {
    try {
      for (const [set, elements] of this.desired.sets)
        if (elements.known) await elements.readCounters(() => this.#counted(set));
    } catch (error) {
      // A set that was replaced meanwhile is read the next time.
      if (!(error instanceof KernelError) || error.code !== "not-found") throw error;
    }
  }

  /** Returns undefined if the kernel has no such set, or the set has no counters. */
  async #counted(set: string): Promise<ElementBatch | undefined> {
    const info = this.state.sets.get(set);
    return info?.exprs === undefined || info.exprs.length === 0 ? undefined : this.kernel.elements(this.ref, info);
  }

  #inScope(set: string, { sets }: InvalidationScope): boolean {
    return sets === "all" || sets.has(set) || this.desired.sets.get(set)?.known !== true || !this.state.sets.has(set);
  }

  async #adopt(dump: TableDump, scope: InvalidationScope): Promise<Drift | undefined> {
    const before = this.state;
    const changes = structureChanges(before, dump.state);
    const { table } = dump.state;
    if (!this.#wasRead && table !== undefined && packetsComeBy(dump.state))
      this.#tolerated = { comment: table.comment };
    this.#wasRead = true;
    const inTheWay = table !== undefined && this.#hasToGo(table);
    // The other content of a table that has to be created again does not matter.
    const state = inTheWay ? { ...emptyState(), inTheWay } : dump.state;
    this.state = state;
    this.former = inTheWay ? dump.state.objects : new Map();
    this.#filled = inTheWay ? [...dump.state.sets.values()].filter((info) => this.#isKept(info)) : [];
    // A set is read in slices, but many small sets would still block the event loop for long.
    const slice = new TimeSlice();
    for (const [name, elements] of [...this.desired.sets, ...this.desired.retired]) {
      if (slice.spent) await slice.yield();
      // Loads the counters of its elements, and the elements that stay.
      const { counters, keep } = elements.spec;
      if (inTheWay && (counters !== undefined || keep === true) && this.desired.sets.get(name) === elements)
        await elements.load(dump.elements.get(name));
      const info = state.sets.get(name);
      const batch = info && this.#counterpart(info) && dump.elements.get(name);
      if (batch === undefined && info !== undefined && !this.#inScope(name, scope)) {
        if (before.unusable.has(name)) state.unusable.add(name);
        continue;
      }
      const wasKnown = elements.known;
      const drift = await this.#load(name, elements, batch);
      // A retired set is not desired: its elements were not read, so drift in them is unknown.
      const comparable = wasKnown && this.desired.sets.get(name) === elements;
      if (comparable && before.sets.has(name) && info !== undefined) changes.push(...elementChanges(name, drift));
      elements.known = info === undefined || batch !== undefined;
      if (!elements.known) this.desired.watched.add(name);
    }
    // Lets the next transaction compare everything, desired and observed.
    for (const { chains, sets, objects } of [this.desired, state])
      this.desired.mark({ chains: chains.keys(), sets: sets.keys(), objects: objects.keys() });
    const tableDeleted = before.table !== undefined && table === undefined;
    return believed(scope) ? driftOf(scope.causes, changes, tableDeleted) : undefined;
  }

  /**
   * Whether the table has to be deleted before ours can be created. The kernel cannot change a table's comment (nf_tables_updtable). If the table
   * serves packets at our start, its comment is kept.
   */
  #hasToGo(table: TableFacts): boolean {
    const fate = fateOf(table, this.own, this.kernel.portId);
    if (fate === "theirs") return false;
    if (this.#condemned || fate === "recreate") return true;
    if (this.comment === undefined || table.comment === this.comment) return false;
    return this.#tolerated === undefined || table.comment !== this.#tolerated.comment;
  }

  /** Whether the elements that packets put into the set fit the set that replaces it. */
  #isKept(info: SetInfo): boolean {
    const spec = this.desired.setSpec(info.set);
    return spec?.dynamic === true && (info.exprs ?? []).length === 0 && serves(info, spec);
  }

  async #load(name: string, elements: TrackedElements, batch: ElementBatch | undefined): Promise<ElementDrift> {
    const { complete, drift } = await elements.load(batch);
    if (!complete) this.state.unusable.add(name);
    return drift;
  }
}

/** Whether the set can take over the kernel's elements, although its timeout, comment, bound or counters differ. */
function holdsSameElements(
  { flags, keyType, keyLen, dataType, dataLen }: SetInfo,
  { key, data, interval }: SetSpec,
): boolean {
  const fields = dataFields({ data });
  const sameData = fields.length > 0 ? dataType === typeId(fields) && dataLen === packedBytes(fields) : !dataType;
  if (hasTargets({ data })) return false;
  const sameRanges = ((flags & SetFlag.interval) !== 0) === (interval === true);
  return keyType === typeId(key) && keyLen === packedBytes(key) && sameData && sameRanges;
}
