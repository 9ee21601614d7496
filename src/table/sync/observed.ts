/** Our idea of the kernel's table: what it holds, how much of that is in doubt, and how a read mends it. */
import type { ElementBatch, Kernel, SetInfo, TableRef } from "../../kernel/types.js";
import { Announcements } from "./announcements.js";
import { Doubts, type DoubtScope } from "./invalidations.js";
import { compareStructure, driftIsEmpty, DriftReport } from "./drift.js";
import { dumpRules, dumpTable, unlessTorn, type TableDump } from "./dump.js";
import type { ElementDrift } from "../elements/element-set.js";
import { fateOf } from "../quirks/ownership.js";
import { needsHandles } from "./plan.js";
import { serves } from "../rules/schema.js";
import { emptyState, type KernelState } from "./state.js";
import type { Drift } from "../rules/types.js";
import type { SetRecord, WantedState } from "./desired.js";

/** What a read came to. */
export interface Reading {
  /** Why it was done. */
  readonly reason: string;
  /** All sets were read, not only those in doubt. */
  readonly whole: boolean;
  /** Generation that all of it belongs to; absent: only a part was read, or it changed all the time. */
  readonly generation?: number;
  /** What was not as thought. Absent: nothing, or nothing was thought before. */
  readonly drift?: Drift;
}

export class KernelView {
  state: KernelState = emptyState();
  readonly doubts = new Doubts();
  readonly announcements = new Announcements();
  /** Whether the table is to be owned by our socket. */
  own = false;
  readonly #kernel: Kernel;
  readonly #ref: TableRef;
  readonly #wanted: WantedState;

  constructor(kernel: Kernel, ref: TableRef, wanted: WantedState) {
    this.#kernel = kernel;
    this.#ref = ref;
    this.#wanted = wanted;
  }

  /** Reads what is in doubt. Everything wanted is compared with it by the next transaction. */
  async read(): Promise<Reading> {
    const scope = this.doubts.begin();
    try {
      const dump = await this.dump((set) => this.#inScope(set, scope));
      const drift = await this.#takeOver(dump, scope);
      const whole = scope.sets === "all";
      this.doubts.settled(whole ? dump.since : undefined);
      return {
        reason: scope.reason,
        whole,
        ...(whole && dump.generation !== undefined ? { generation: dump.generation } : {}),
        ...(drift === undefined ? {} : { drift }),
      };
    } catch (error) {
      this.doubts.failed();
      throw error;
    }
  }

  /** Sets that were declared since the kernel was read. */
  async readUnknownSets(): Promise<void> {
    for (const name of [...this.#wanted.watched]) {
      const record = this.#wanted.sets.get(name);
      if (record === undefined || record.known) continue;
      const kernel = this.state.sets.get(name);
      const readable = kernel !== undefined && isReadable(kernel, record);
      await this.#load(name, record, readable ? await this.#kernel.elements(this.#ref, kernel) : undefined);
      record.known = true;
    }
  }

  /** Reads the rules of changed chains whose handles are not known. */
  async readHandles(): Promise<void> {
    for (const name of [...this.#wanted.dirtyChains]) {
      const kernel = this.state.chains.get(name);
      const wanted = this.#wanted.chains.get(name);
      if (kernel !== undefined && wanted !== undefined && needsHandles(kernel, wanted))
        kernel.rules = await dumpRules(this.#kernel, this.#ref, name);
    }
  }

  /** Dumps the table with the elements of those wanted sets that `picks` picks. */
  dump(picks: (set: string) => boolean): Promise<TableDump> {
    const { sets, chains } = this.#wanted;
    return dumpTable(this.#kernel, this.#ref, {
      likelyChains: new Set([...chains.keys(), ...this.state.chains.keys()]),
      begin: () => this.announcements.begin(),
      wantsChain: (chain) => chains.has(chain),
      wantsElements: (info) => {
        const record = sets.get(info.set);
        return record !== undefined && isReadable(info, record) && picks(info.set);
      },
    });
  }

  /** Whether everything but elements is as thought, and the sets whose elements can be compared. */
  async compareStructure(): Promise<{ readonly same: boolean; readonly sets: readonly string[] }> {
    const { state } = await this.dump(() => false);
    const report = new DriftReport(new Set());
    compareStructure(this.state, state, report);
    const sets = [...state.sets.values()].filter((info) => this.#comparable(info.set, info) !== undefined);
    return { same: report.finish() === undefined, sets: sets.map(({ set }) => set) };
  }

  /** Whether the kernel's set has exactly the elements that it is thought to have. Also true when nothing is thought of it any more. */
  async compareElements(set: string): Promise<boolean> {
    const info = this.state.sets.get(set);
    const record = this.#comparable(set, info);
    if (info === undefined || record === undefined) return true;
    const batch = await unlessTorn(() => this.#kernel.elements(this.#ref, info));
    return batch !== undefined && driftIsEmpty(await record.elements.compare(batch));
  }

  #comparable(set: string, info: SetInfo | undefined): SetRecord | undefined {
    const record = this.#wanted.sets.get(set);
    if (record?.known !== true || !this.state.sets.has(set)) return undefined;
    return info !== undefined && isReadable(info, record) ? record : undefined;
  }

  #inScope(set: string, { sets }: DoubtScope): boolean {
    return sets === "all" || sets.has(set) || this.#wanted.sets.get(set)?.known !== true || !this.state.sets.has(set);
  }

  async #takeOver(dump: TableDump, scope: DoubtScope): Promise<Drift | undefined> {
    const before = this.state;
    const report = new DriftReport(scope.causes);
    const inDetail = compareStructure(before, dump.state, report);
    const { state, elements } = this.#isInTheWay(dump.state)
      ? { state: { ...emptyState(), inTheWay: true }, elements: new Map<string, ElementBatch>() }
      : dump;
    this.state = state;
    for (const [name, record] of [...this.#wanted.sets, ...this.#wanted.retired]) {
      const batch = elements.get(name);
      if (batch === undefined && state.sets.has(name) && !this.#inScope(name, scope)) {
        if (before.unusable.has(name)) state.unusable.add(name);
        continue;
      }
      const wasKnown = record.known;
      const drift = await this.#load(name, record, batch);
      // Nobody wants a retired set: its elements were not read, so that nothing can be said of them.
      const comparable = wasKnown && this.#wanted.sets.get(name) === record;
      if (inDetail && comparable && before.sets.has(name) && state.sets.has(name)) report.elements(name, drift);
      record.known = !state.sets.has(name) || elements.has(name);
      if (!record.known) this.#wanted.watched.add(name);
    }
    this.#wanted.markAll(state.chains.keys(), state.sets.keys());
    return scope.believed ? report.finish() : undefined;
  }

  /** Whether the table has to be made anew, so that it does not matter what is in it. */
  #isInTheWay({ table }: KernelState): boolean {
    return table !== undefined && fateOf(table, this.own, this.#kernel.portId) === "recreate";
  }

  async #load(name: string, { elements }: SetRecord, batch: ElementBatch | undefined): Promise<ElementDrift> {
    const { complete, drift } = await elements.load(batch);
    if (!complete) this.state.unusable.add(name);
    return drift;
  }
}

/** Whether the kernel's set holds elements that the wanted one's rows can stand for. */
function isReadable(kernel: SetInfo, { elements: { spec } }: SetRecord): boolean {
  return spec.dynamic !== true && serves(kernel, spec);
}
