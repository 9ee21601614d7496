/** Writes the desired state of a table to the kernel. */
import { performance } from "node:perf_hooks";

import { inTurn, TimeSlice } from "../../base/time-slice.js";
import { SetFlag } from "../kernel/constants.js";
import { nextGeneration } from "../kernel/generation.js";
import type { ElementBatch, Kernel } from "../kernel/kernel.js";
import { Quirks } from "./quirks.js";
import type { ApplyOptions, ApplyResult, Clock, Drift, TableOptions } from "./apply-result.js";
import type { Period } from "./announcements.js";
import type { DesiredState } from "./desired-state.js";
import { joined } from "./drift.js";
import { chainsAhead, Outgoing, type Piece, PIECE_ELEMENTS } from "./make-before-break.js";
import { emptyState } from "./table-dump.js";
import { ObservedTable, type Reading } from "./observed-table.js";
import { Ownership } from "./ownership.js";
import {
  type ChainPlan,
  holdsOn,
  isTimed,
  type Names,
  Plan,
  type PlanInput,
  planObjects,
  planTable,
  planWaking,
} from "./plan.js";
import { planText, type TablePlan } from "./plan-text.js";
import { commitPlan, isDrift, joinResults, TableError, toTableError } from "./results.js";
import { type Decisions, decideChanges } from "./decisions.js";

const DEFAULT_GRACE_PERIOD_MS = 500;
/** Maximum number of retries of one apply(), each after another read of the kernel. */
const MAX_RETRIES = 3;

/** By set: the elements that packets have put into it. */
type Filled = ReadonlyMap<string, ElementBatch>;

/** Whether the kernel refused the transaction for its size. */
function lacksMemory({ code, faulty }: TableError): boolean {
  return code === "too-large" || faulty.some(({ errno }) => errno === "ENOMEM" || errno === "ENOBUFS");
}

/**
 * Brings the kernel's table to the desired state. Each method throws TableError, and must have returned before the next is called. The desired state
 * must not change meanwhile.
 *
 * - The first apply reads the kernel. Everything in the table is ours, so undesired objects are deleted. Unchanged objects stay, with rule counters
 *   and the contents of dynamic sets.
 * - The cost of a later apply depends on the changes.
 * - Objects that packets must find before the main transaction, or may still use after it, go in transactions of their own (make-before-break.ts,
 *   deferred deletions).
 */
export class TableWriter {
  readonly observed: ObservedTable;
  readonly ownership: Ownership;
  readonly #kernel: Kernel;
  readonly #desired: DesiredState;
  readonly #options: TableOptions;
  readonly #clock: Clock;
  readonly #quirks: Quirks;
  /** The generation that the next transaction requires. Undefined: any. */
  #expected: number | undefined;
  /** Drift that reads found, and that is not repaired yet. */
  #drift: Drift | undefined;
  /**
   * Objects of the table's earlier owner. "unknown" before the first transaction, and "kept" while a transaction that keeps some is tried. Then: the
   * objects to delete after their grace period.
   */
  #inherited: "unknown" | "kept" | (Names & { readonly due: number }) | undefined = "unknown";

  constructor(kernel: Kernel, desired: DesiredState, options: TableOptions) {
    this.#kernel = kernel;
    this.#desired = desired;
    this.#options = options;
    this.#clock = options.clock ?? { now: () => performance.now() };
    this.observed = new ObservedTable(kernel, desired, options.comment);
    this.#quirks = new Quirks(kernel, options.family);
    this.ownership = new Ownership(kernel, this.observed, this.#quirks, options);
  }

  /** Reads the kernel's state, unless it is known. */
  async load(): Promise<void> {
    await this.ownership.resolve();
    if (this.observed.invalidations.any) await this.#read();
    await this.observed.readUnknownSets();
  }

  /** Brings the kernel to the desired state. If it fails, nothing has changed. */
  apply({ rebuild = false, repair = true }: ApplyOptions): Promise<ApplyResult> {
    return rebuild ? this.#rebuild() : this.#applyWithRetries(repair);
  }

  /**
   * Returns what `apply()` would write now. Reads the kernel if its state is not known. An apply may split the operations into several transactions,
   * and may delete some objects of an earlier owner after their grace period only.
   */
  async plan(): Promise<TablePlan> {
    await this.ownership.resolve();
    await this.ownership.recheck();
    const view = this.observed;
    if (view.invalidations.any) this.#drift = joined(this.#drift, (await this.#read()).drift);
    this.ownership.check(view.state.table);
    await view.readUnknownSets();
    await view.readHandles();
    const desired = this.#desired;
    const decisions = decideChanges(desired, view.state, this.#clock.now(), Infinity, false);
    const outgoing = new Outgoing(decisions);
    const plan = new Plan();
    try {
      await view.readReplaced(decisions);
      for await (const { sets } of outgoing.pieces(Infinity)) {
        const input = await this.#planInput({ ...decisions, sets }, new Set(), await view.readSaved(decisions.sets));
        planObjects(input, true, plan);
        await planTable(input, plan);
        planWaking(input, plan);
      }
    } finally {
      desired.mark(decisions.dirty);
      await outgoing.giveBack();
    }
    const isMap = (set: string): boolean =>
      ((view.state.sets.get(set)?.flags ?? 0) & (SetFlag.map | SetFlag.object)) !== 0;
    return {
      operations: plan.ops.map(({ op }) => op),
      counts: plan.counts,
      text: planText(plan.ops, desired, isMap),
    };
  }

  /** Removes the table. */
  async destroy(): Promise<ApplyResult> {
    const { ownership } = this;
    this.observed.invalidations.add({ cause: "asked", reason: "the table was removed" });
    const present = await ownership.present();
    ownership.check(present);
    const plan = new Plan();
    if (present !== undefined)
      plan.push("removeChains", this.observed.ref, { op: "delete", kind: "table" }, { kind: "table" });
    return this.#write(plan);
  }

  async #applyWithRetries(repair: boolean): Promise<ApplyResult> {
    let resynced: string | undefined;
    let readWhole = false;
    // Includes transactions before a retry: this apply wrote them all the same.
    const written: ApplyResult[] = [];
    for (let retry = 0; ; retry++) {
      const period = this.observed.announcements.begin();
      let reading: Reading | undefined;
      try {
        await this.ownership.resolve();
        await this.ownership.recheck();
        const { invalidations } = this.observed;
        if ((repair && invalidations.any) || invalidations.pressing) reading = await this.#read();
        resynced ??= reading?.reason;
        readWhole ||= reading?.whole === true;
        this.#drift = joined(this.#drift, reading?.drift);
        this.#expected = retry < MAX_RETRIES ? reading?.generation : undefined;
        await this.#applyOnce(written);
        return this.#resultOf(written, resynced);
      } catch (failure) {
        const error = toTableError(this.#options.name, failure);
        if (retry < MAX_RETRIES && (await this.#isStillRight(error, reading, period))) {
          // The retry uses the same read and expects no generation: events report any change of the table by another process.
          readWhole = false;
          continue;
        }
        if (
          this.#inherited === "kept" &&
          error.faulty.some(({ kind, errno }) => kind === "chain" && errno === "EBUSY")
        ) {
          // A kept element refers to a chain that is created again. Any other error would occur without the inherited objects too, so they stay.
          this.#inherited = undefined;
          if (retry < MAX_RETRIES) continue;
        }
        const busy = readWhole && this.#quirks.noteBusy(error.faulty, (chain) => this.#desired.chains.has(chain));
        if (!(busy || this.#mayRetry(error, readWhole, repair)) || retry >= MAX_RETRIES) throw error;
      } finally {
        this.#expected = undefined;
        period?.end();
      }
    }
  }

  /**
   * The last resort (ApplyOptions.rebuild). If the table is too large for one transaction, it is deleted first, and written in pieces. Until the last
   * piece, packets do not see it. If the kernel still refuses, the former contents of dynamic sets may be the reason, and are dropped. Each of the
   * two is tried once.
   */
  async #rebuild(): Promise<ApplyResult> {
    const reason = "the table is written from scratch";
    const written: ApplyResult[] = [];
    let filled: Filled | undefined;
    let [isDeleted, isEmptied] = [false, false];
    for (;;) {
      try {
        await this.ownership.resolve();
        if (!isDeleted) {
          this.#drift = joined(this.#drift, (await this.observed.condemn(reason)).drift);
          this.#quirks.busyChains.clear();
        }
        filled ??= await this.observed.readFilled();
        await this.#applyOnce(written, filled);
        return this.#resultOf(written, reason);
      } catch (failure) {
        const error = toTableError(this.#options.name, failure);
        if (lacksMemory(error) && !isDeleted) {
          written.push(await this.#deleteTable());
          isDeleted = true;
        } else if (!isEmptied) {
          filled = new Map();
          isEmptied = true;
        } else throw error;
      }
    }
  }

  /** Deletes a table that is too large to be replaced in one transaction. */
  async #deleteTable(): Promise<ApplyResult> {
    const plan = new Plan();
    plan.push("addTable", this.observed.ref, { op: "delete", kind: "table" }, { kind: "table" });
    plan.onCommit(() => void (this.observed.state = emptyState()));
    return this.#write(plan);
  }

  #resultOf(written: readonly ApplyResult[], resynced: string | undefined): ApplyResult {
    const result = written.reduce(joinResults);
    const drift = this.#drift;
    this.#drift = undefined;
    return { ...result, ...this.#whatRemains(), resynced, drift };
  }

  /** Whether only other tables changed between the read and the transaction that was refused for it. */
  async #isStillRight(error: TableError, reading: Reading | undefined, period: Period | undefined): Promise<boolean> {
    if (error.code !== "stale" || reading?.generation === undefined || period === undefined) return false;
    try {
      const { id } = await this.#kernel.generation();
      if (!(await period.untouched(reading.generation, id))) return false;
    } catch {
      return false;
    }
    return true;
  }

  /** If the error requires it, invalidates the observed state. Returns whether to retry now. */
  #mayRetry(error: TableError, wasRead: boolean, repair: boolean): boolean {
    const { code, cause } = error;
    const { invalidations } = this.observed;
    if (code === "stale" || code === "unknown-outcome") {
      if (code === "stale") invalidations.add({ cause: "stale", reason: "the ruleset changed during a transaction" });
      else invalidations.add({ cause: "outcome", reason: "the outcome of a transaction is unknown" });
      return true;
    }
    if (!isDrift(error) || wasRead) return false;
    invalidations.add({ cause: "conflict", reason: "the kernel's table differs from the observed state" });
    if (repair) return true;
    const message = `${this.#options.name}: the table must be repaired before it can be written`;
    throw new TableError("stale", message, [], { cause });
  }

  #whatRemains(): Pick<ApplyResult, "applyAgainMs" | "busy"> {
    const now = this.#clock.now();
    let next = typeof this.#inherited === "object" ? this.#inherited.due : Infinity;
    const { sets, watched } = this.#desired;
    for (const name of watched) {
      const elements = sets.get(name);
      const due = elements?.nextDue;
      if (due !== undefined && due < next) next = due;
      // No work remains. The next change adds the set again.
      if (elements === undefined || (elements.known && due === undefined && !elements.dirty)) watched.delete(name);
    }
    const busy = [...this.#quirks.busyChains].filter((chain) => !this.#desired.chains.has(chain));
    return {
      ...(next === Infinity ? {} : { applyAgainMs: Math.max(0, Math.ceil(next - now)) }),
      ...(busy.length === 0 ? {} : { busy }),
    };
  }

  async #read(): Promise<Reading> {
    const reading = await this.observed.read();
    if (reading.whole) {
      this.#quirks.busyChains.clear();
    }
    return reading;
  }

  /**
   * @param written gets the result of each transaction, at least one, including those before a failed one.
   * @param filled elements that packets had put into the sets of a replaced table. Default: read them if possible.
   */
  async #applyOnce(written: ApplyResult[], filled?: Filled): Promise<void> {
    this.ownership.check(this.observed.state.table);
    await this.observed.readUnknownSets();
    await this.observed.readHandles();
    const { gracePeriodMs = DEFAULT_GRACE_PERIOD_MS, pieceElements = PIECE_ELEMENTS } = this.#options;
    const { state } = this.observed;
    const isFirst = typeof this.#inherited === "string";
    this.#markInherited();
    const slice = new TimeSlice();
    const decisions = decideChanges(
      this.#desired,
      state,
      this.#clock.now(),
      pieceElements,
      isFirst && gracePeriodMs > 0,
    );
    if (slice.spent) await slice.yield();
    const { inherited } = decisions;
    const kept = typeof this.#inherited === "object" ? this.#inherited : inherited;
    if (isFirst) this.#inherited = inherited.sets.size > 0 ? "kept" : "unknown";
    const saved = filled ?? (await this.observed.readSaved(decisions.sets));
    const outgoing = new Outgoing(decisions);
    const { objects } = decisions;
    let rest = decisions.chains;
    const write = async ({ sets, last }: Piece): Promise<void> => {
      const plan = new Plan();
      const changes = { chains: last ? rest : [], sets, objects };
      const input = await this.#planInput(changes, kept.chains, saved);
      planObjects(input, last, plan);
      await planTable(input, plan);
      written.push(await this.#write(plan));
      outgoing.settle(sets, this.#clock.now() + gracePeriodMs);
    };
    try {
      await this.observed.readReplaced(decisions);
      const ahead = await this.#writeChainsAhead(decisions, written);
      rest = rest.filter((chain) => !ahead.has(chain));
      await inTurn(outgoing.pieces(pieceElements), write);
      await outgoing.settled();
      const waking = new Plan();
      planWaking(await this.#planInput({ chains: [], sets: [], objects: [] }, kept.chains, saved), waking);
      if (waking.ops.length > 0) written.push(await this.#write(waking));
    } catch (error) {
      this.#desired.mark(decisions.dirty);
      await outgoing.giveBack();
      throw error;
    }
    if (isFirst) {
      const due = this.#clock.now() + gracePeriodMs;
      this.#inherited = inherited.sets.size === 0 ? undefined : { ...inherited, due };
    }
    this.#desired.forget([...decisions.chains, ...objects], state);
  }

  async #write(plan: Plan): Promise<ApplyResult> {
    const expectGeneration = this.#expected;
    const options = expectGeneration === undefined ? {} : { expectGeneration };
    const result = await commitPlan(this.#kernel, this.#options.name, plan, options);
    if (result.transactions > 0 && expectGeneration !== undefined) this.#expected = nextGeneration(expectGeneration);
    return result;
  }

  /** Lets this apply delete the inherited objects after their grace period. */
  #markInherited(): void {
    const inherited = this.#inherited;
    if (typeof inherited !== "object" || this.#clock.now() < inherited.due) return;
    this.#desired.mark(inherited);
    this.#inherited = undefined;
  }

  /**
   * @param kept undesired chains that stay.
   * @param saved elements of sets that are created again.
   */
  async #planInput(
    changes: Pick<PlanInput, "chains" | "sets" | "objects">,
    kept: ReadonlySet<string>,
    saved: Filled,
  ): Promise<PlanInput> {
    const { own, state } = this.observed;
    const mapsGo = changes.sets.some(
      ({ name, action }) => holdsOn(state, name) && (action === "delete" || action === "recreate"),
    );
    const timed = changes.sets.some(({ name, action }) => action === "keep" && isTimed(state, name));
    return {
      ...changes,
      former: this.observed.former,
      ref: this.observed.ref,
      comment: this.#options.comment,
      own,
      portId: this.ownership.portId,
      state,
      flushMaps: mapsGo && (await this.#quirks.mapsMustBeEmptied()),
      destroyTimed: timed && (await this.#quirks.canDestroy()),
      busy: kept.size === 0 ? this.#quirks.busyChains : new Set([...this.#quirks.busyChains, ...kept]),
      saved,
    };
  }

  /**
   * See make-before-break.ts. Returns the chains that are written. If the kernel refuses this transaction, it also refuses the next one, which reports
   * the error.
   */
  async #writeChainsAhead(decisions: Decisions, written: ApplyResult[]): Promise<Set<ChainPlan>> {
    const { objects } = decisions;
    const ahead = new Set<ChainPlan>();
    for (const part of chainsAhead(decisions, this.observed.state)) {
      const plan = new Plan();
      const input = await this.#planInput({ ...part, objects }, new Set(), new Map());
      planObjects(input, false, plan);
      await planTable(input, plan);
      try {
        written.push(await this.#write(plan));
      } catch (error) {
        if (error instanceof TableError && error.code === "refused") break;
        throw error;
      }
      for (const chain of part.chains) ahead.add(chain);
    }
    return ahead;
  }
}
