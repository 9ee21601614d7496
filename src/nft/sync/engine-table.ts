import { performance } from "node:perf_hooks";

import { inTurn } from "../../base/time-slice.js";
import { SetFlag, TableFlag } from "../kernel/constants.js";
import { KernelError } from "../kernel/errors.js";
import { nextGeneration } from "../kernel/generation.js";
import type { ChangeBatch, ChangeEvent, CommitResult, ElementBatch, Kernel } from "../kernel/kernel.js";
import { DeclaredTable } from "./declared-table.js";
import { fateOf, Quirks, type TableFacts } from "./quirks.js";
import type { ApplyOptions, ApplyResult, Clock, Drift, TableOptions } from "./apply-result.js";
import type { Period } from "./announcements.js";
import { joined } from "./drift.js";
import { hasTargets } from "../language/schema.js";
import { chainsAhead, Outgoing, type Piece, PIECE_ELEMENTS } from "./make-before-break.js";
import { emptyState } from "./table-dump.js";
import { type CheckOutcome, TableCheck } from "./table-check.js";
import { ObservedTable, type Reading } from "./observed-table.js";
import { holdsOn, isTimed, type Names, Plan, type PlanInput, planObjects, planTable, planWaking } from "./plan.js";
import { planText, type TablePlan } from "./plan-text.js";
import { isDrift, joinResults, TableError, toResult, toTableError } from "./results.js";
import { type Snapshot, takeSnapshot } from "./snapshot.js";
import { describeChanges } from "./describe-changes.js";

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
 * A declarative nf_tables table that this program owns. Declare the desired chains, sets and elements in any order, then call `apply()`.
 *
 * - The first apply reads the kernel. Everything in the table is ours, so undesired objects are deleted. Unchanged objects stay, with rule counters
 *   and the contents of dynamic sets.
 * - The cost of a later apply depends on the changes.
 * - Each apply is one atomic transaction, or none if there is nothing to do. Objects that packets must find before it, or may still use after it, go
 *   in transactions of their own (make-before-break.ts, deferred deletions).
 *
 * While `apply()` or `load()` runs, methods that change the desired state throw TableError "busy".
 */
export class Table extends DeclaredTable {
  readonly #kernel: Kernel;
  readonly #options: TableOptions;
  readonly #clock: Clock;
  readonly #observed: ObservedTable;
  readonly #check: TableCheck;
  readonly #quirks: Quirks;
  #portId: number;
  /** The generation that the next transaction requires. Undefined: any. */
  #expected: number | undefined;
  /** Drift that reads found, and that is not repaired yet. */
  #drift: Drift | undefined;
  /**
   * Objects of the table's earlier owner. "unknown" before the first transaction, and "kept" while a transaction that keeps some is tried. Then: the
   * objects to delete after their grace period.
   */
  #inherited: "unknown" | "kept" | (Names & { readonly due: number }) | undefined = "unknown";
  #queue: Promise<unknown> = Promise.resolve();
  #closed = false;

  constructor(kernel: Kernel, options: TableOptions) {
    super(options);
    this.#kernel = kernel;
    this.#portId = kernel.portId;
    this.#options = options;
    this.#clock = options.clock ?? { now: () => performance.now() };
    this.#observed = new ObservedTable(kernel, this.ref, this.desired, options.comment);
    this.#check = new TableCheck(this.#observed);
    this.#quirks = new Quirks(kernel, options.family);
  }

  /** Starts reading the kernel in the background. The first `load` or `apply` uses the result if nothing has changed since. */
  readAhead(): void {
    this.#observed.readAhead();
  }

  /** Reads the kernel's state, unless it is known. Writes nothing. Throws TableError. */
  load(): Promise<void> {
    return this.#exclusively(async () => {
      await this.#resolveOwnership();
      if (this.#observed.invalidations.any) await this.#read();
      await this.#observed.readUnknownSets();
    });
  }

  /** Lets the next apply read everything first. Its result includes `reason`. */
  invalidate(reason: string): void {
    this.#observed.invalidations.add({ cause: "asked", reason });
  }

  /**
   * Notes a transaction that events reported. After a change by another process, the next apply reads the changed parts and repairs them.
   * @returns the changes, in words. Empty if they are ours, concern another table, or were seen by a read.
   */
  notice({ generation, portId, events }: ChangeBatch): string[] {
    if (portId === this.#kernel.portId) {
      this.#observed.announcements.add(generation, false);
      return [];
    }
    const ours = events.filter(
      (event) => event.family === this.ref.family && event.table === this.ref.table && !this.#isPackets(event),
    );
    this.#observed.announcements.add(generation, ours.length > 0);
    if (ours.length === 0) return [];
    const named = ours.flatMap(({ kind, name }) => (kind === "elements" || kind === "set" ? (name ?? []) : []));
    // If a chain was renamed, elements that lead to it now name another chain.
    if (ours.some(({ kind }) => kind === "chain")) named.push(...this.#verdictMaps());
    const scope = ours.some(({ kind }) => kind === "table") ? {} : { sets: named };
    const reason = "another process changed the table";
    const added = this.#observed.invalidations.add({ cause: "foreign", reason, generation, ...scope });
    return added ? describeChanges(ours) : [];
  }

  #verdictMaps(): string[] {
    const { sets } = this.#observed.desired;
    return [...sets].flatMap(([name, { spec }]) => (hasTargets(spec) ? name : []));
  }

  /** From now on, `notice` gets every transaction of the namespace (true), or no longer gets them (false). */
  listening(listening: boolean): void {
    this.#observed.announcements.listen(listening);
  }

  /** Notes that nobody listened for a while, so anything may have changed. Returns false if this was known. */
  eventsLost(reason: string): boolean {
    const { announcements, invalidations } = this.#observed;
    announcements.lost();
    const known = invalidations.has("lost events");
    invalidations.add({ cause: "lost events", reason });
    return !known;
  }

  /** Whether the kernel's table may differ from what we last wrote. The next apply that repairs will check. */
  get invalidated(): boolean {
    return this.#observed.invalidations.any;
  }

  /**
   * Compares everything with the kernel, part by part: the structure, then each set. If an apply disturbs a part, the part is repeated while the next
   * apply waits. Writes nothing: the next apply reads and repairs the differences. Throws TableError.
   * @param mostElements if the kernel counts elements (Linux 6.16): compare about this many elements, of all sets in turn from one check to
   * the next. For the other sets, only compare the number of elements.
   */
  async check(mostElements = Infinity): Promise<CheckOutcome> {
    try {
      return await this.#check.run((part) => this.#undisturbed(part), mostElements);
    } catch (error) {
      throw toTableError(this.#options.name, error);
    }
  }

  /** Reads the counters of elements, for `ElementSet.count`. Throws TableError. */
  async readCounters(): Promise<void> {
    try {
      for (const [set, elements] of this.desired.sets)
        if (elements.known) await elements.readCounters(() => this.#counted(set));
    } catch (error) {
      // A set that was replaced meanwhile is read the next time.
      if (!(error instanceof KernelError) || error.code !== "not-found") throw toTableError(this.#options.name, error);
    }
  }

  /** Returns undefined if the kernel has no such set, or the set has no counters. */
  async #counted(set: string): Promise<ElementBatch | undefined> {
    const info = this.#observed.state.sets.get(set);
    return info?.exprs === undefined || info.exprs.length === 0 ? undefined : this.#kernel.elements(this.ref, info);
  }

  /** Brings the kernel to the desired state. Throws TableError: then nothing has changed, and the desired state is kept. */
  apply(options: ApplyOptions = {}): Promise<ApplyResult> {
    return this.#exclusively(() =>
      options.rebuild === true ? this.#rebuild() : this.#applyWithRetries(options.repair !== false),
    );
  }

  /**
   * Returns what `apply()` would write now. Reads the kernel if its state is not known, and writes nothing. An apply may split the operations into
   * several transactions, and may delete some objects of an earlier owner after their grace period only. Throws TableError.
   */
  plan(): Promise<TablePlan> {
    return this.#exclusively(async () => {
      await this.#resolveOwnership();
      await this.#recheckOwner();
      const view = this.#observed;
      if (view.invalidations.any) this.#drift = joined(this.#drift, (await this.#read()).drift);
      this.#checkOwner(view.state.table);
      await view.readUnknownSets();
      await view.readHandles();
      const { desired } = this;
      const snapshot = takeSnapshot(desired, view.state, this.#clock.now(), Infinity, false);
      const outgoing = new Outgoing(snapshot);
      const plan = new Plan();
      try {
        await view.readReplaced(snapshot);
        for await (const { sets } of outgoing.pieces(Infinity)) {
          const input = await this.#planInput({ ...snapshot, sets }, new Set(), await view.readSaved(snapshot.sets));
          planObjects(input, true, plan);
          planTable(input, plan);
          planWaking(input, plan);
        }
      } finally {
        desired.mark(snapshot.dirty);
        await outgoing.giveBack();
      }
      const isMap = (set: string): boolean =>
        ((view.state.sets.get(set)?.flags ?? 0) & (SetFlag.map | SetFlag.object)) !== 0;
      return {
        operations: plan.ops.map(({ op }) => op),
        counts: plan.counts,
        text: planText(plan.ops, desired, isMap),
      };
    });
  }

  /** Whether this process should own the table (TableOptions.own), and the kernel supports it. */
  async owned(): Promise<boolean> {
    return this.#options.own === true && (await this.#quirks.canOwnTables());
  }

  /** Whether another program owns the table now. Only asks the kernel for its list of tables. */
  async ownedByOther(): Promise<boolean> {
    return this.#isTheirs(await this.#present());
  }

  /** Removes the table. The desired state is kept for a later `apply`. */
  destroy(): Promise<ApplyResult> {
    return this.#serialised(async () => {
      this.invalidate("the table was removed");
      const present = await this.#present();
      this.#checkOwner(present);
      const plan = new Plan();
      if (present !== undefined)
        plan.push("removeChains", this.ref, { op: "delete", kind: "table" }, { kind: "table" });
      return this.#write(plan);
    });
  }

  /** Runs work on the kernel after all earlier calls, and before later ones. Throws TableError. */
  between<T>(work: () => Promise<T>): Promise<T> {
    return this.#serialised(work);
  }

  /** Refuses further calls. The kernel keeps the table. */
  close(): void {
    this.#closed = true;
  }

  /** Runs a part that only reads, outside of other calls. A new call may start meanwhile: then the part is repeated, and further calls wait. */
  async #undisturbed<T>(part: () => Promise<T>): Promise<T> {
    const queue = this.#queue;
    await queue;
    if (queue === this.#queue && !this.#closed) {
      const result = await part();
      if (queue === this.#queue) return result;
    }
    return this.#serialised(part);
  }

  /** Serialises the action. The desired state cannot change until it ends. */
  #exclusively<T>(action: () => Promise<T>): Promise<T> {
    this.desired.holds++;
    return this.#serialised(action).finally(() => this.desired.holds--);
  }

  /** Runs the action after all earlier calls. Throws TableError. */
  #serialised<T>(action: () => Promise<T>): Promise<T> {
    const run = this.#queue.then(async () => {
      if (this.#closed) throw new TableError("closed", `${this.#options.name}: the table is closed`);
      try {
        return await action();
      } catch (error) {
        throw toTableError(this.#options.name, error);
      }
    });
    this.#queue = run.catch(() => undefined);
    return run;
  }

  async #applyWithRetries(repair: boolean): Promise<ApplyResult> {
    let resynced: string | undefined;
    let readWhole = false;
    // Includes transactions before a retry: this apply wrote them all the same.
    const written: ApplyResult[] = [];
    for (let retry = 0; ; retry++) {
      const period = this.#observed.announcements.begin();
      let reading: Reading | undefined;
      try {
        await this.#resolveOwnership();
        await this.#recheckOwner();
        const { invalidations } = this.#observed;
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
        const busy = readWhole && this.#quirks.noteBusy(error.faulty, (chain) => this.desired.chains.has(chain));
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
        await this.#resolveOwnership();
        if (!isDeleted) {
          this.#drift = joined(this.#drift, (await this.#observed.condemn(reason)).drift);
          this.#quirks.busyChains.clear();
        }
        filled ??= await this.#observed.readFilled();
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
    plan.push("addTable", this.ref, { op: "delete", kind: "table" }, { kind: "table" });
    plan.onCommit(() => void (this.#observed.state = emptyState()));
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
    const { invalidations } = this.#observed;
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
    const { sets, watched } = this.desired;
    for (const name of watched) {
      const elements = sets.get(name);
      const due = elements?.nextDue;
      if (due !== undefined && due < next) next = due;
      // No work remains. The next change adds the set again.
      if (elements === undefined || (elements.known && due === undefined && !elements.dirty)) watched.delete(name);
    }
    const busy = [...this.#quirks.busyChains].filter((chain) => !this.desired.chains.has(chain));
    return {
      ...(next === Infinity ? {} : { applyAgainMs: Math.max(0, Math.ceil(next - now)) }),
      ...(busy.length === 0 ? {} : { busy }),
    };
  }

  async #read(): Promise<Reading> {
    const reading = await this.#observed.read();
    if (reading.whole) {
      this.#quirks.busyChains.clear();
    }
    return reading;
  }

  /** Notes whether to own the table, and updates the owner if our socket was replaced. */
  async #resolveOwnership(): Promise<void> {
    const view = this.#observed;
    if (this.#options.own === true && !view.own) view.own = await this.owned();
    const { portId } = this.#kernel;
    if (portId === this.#portId) return;
    // The table of the former socket has no owner now.
    const { table } = view.state;
    if (table !== undefined && table.owner === this.#portId) {
      view.state.table = { flags: table.flags & ~TableFlag.owner };
    }
    this.#portId = portId;
  }

  /** If another program owned the table at the last read: throws TableError if it still does. This costs less than a read. */
  async #recheckOwner(): Promise<void> {
    if (!this.#isTheirs(this.#observed.state.table)) return;
    this.#checkOwner(await this.#present());
    this.#observed.invalidations.add({ cause: "asked", reason: "another program owned the table", sets: [] });
  }

  async #present(): Promise<TableFacts | undefined> {
    return (await this.#kernel.tables(this.ref.family)).find(({ table }) => table === this.ref.table);
  }

  #isTheirs(table: TableFacts | undefined): boolean {
    return table !== undefined && fateOf(table, this.#observed.own, this.#kernel.portId) === "theirs";
  }

  /** Throws TableError if another program owns the table. */
  #checkOwner(table: TableFacts | undefined): void {
    if (!this.#isTheirs(table)) return;
    const { family, name } = this.#options;
    const owner = table?.owner;
    const message =
      `table ${family} ${name} is owned by another program (netlink port ${owner}), so no one else can change it until that program ends. ` +
      `\`nft list table ${family} ${name}\` shows its name`;
    throw new TableError("no-permission", message, [], { owner });
  }

  /** The elements of dynamic sets belong to packets, even if `nft add element` adds them. */
  #isPackets({ kind, name }: ChangeEvent): boolean {
    return kind === "elements" && name !== undefined && this.desired.setSpec(name)?.dynamic === true;
  }

  /**
   * @param written gets the result of each transaction, at least one, including those before a failed one.
   * @param filled elements that packets had put into the sets of a replaced table. Default: read them if possible.
   */
  async #applyOnce(written: ApplyResult[], filled?: Filled): Promise<void> {
    this.#checkOwner(this.#observed.state.table);
    await this.#observed.readUnknownSets();
    await this.#observed.readHandles();
    const { gracePeriodMs = DEFAULT_GRACE_PERIOD_MS, pieceElements = PIECE_ELEMENTS } = this.#options;
    const { state } = this.#observed;
    const isFirst = typeof this.#inherited === "string";
    this.#markInherited();
    const snapshot = takeSnapshot(this.desired, state, this.#clock.now(), pieceElements, isFirst && gracePeriodMs > 0);
    const { inherited } = snapshot;
    const kept = typeof this.#inherited === "object" ? this.#inherited : inherited;
    if (isFirst) this.#inherited = inherited.sets.size > 0 ? "kept" : "unknown";
    const saved = filled ?? (await this.#observed.readSaved(snapshot.sets));
    const outgoing = new Outgoing(snapshot);
    const { objects } = snapshot;
    const write = async ({ sets, last }: Piece): Promise<void> => {
      const plan = new Plan();
      const changes = { chains: last ? snapshot.chains : [], sets, objects };
      const input = await this.#planInput(changes, kept.chains, saved);
      planObjects(input, last, plan);
      planTable(input, plan);
      written.push(await this.#write(plan));
      outgoing.settle(sets, this.#clock.now() + gracePeriodMs);
    };
    try {
      await this.#observed.readReplaced(snapshot);
      written.push(...(await this.#writeChainsAhead(snapshot)));
      await inTurn(outgoing.pieces(pieceElements), write);
      await outgoing.settled();
      const waking = new Plan();
      planWaking(await this.#planInput({ chains: [], sets: [], objects: [] }, kept.chains, saved), waking);
      if (waking.ops.length > 0) written.push(await this.#write(waking));
    } catch (error) {
      this.desired.mark(snapshot.dirty);
      await outgoing.giveBack();
      throw error;
    }
    if (isFirst) {
      const due = this.#clock.now() + gracePeriodMs;
      this.#inherited = inherited.sets.size === 0 ? undefined : { ...inherited, due };
    }
    this.desired.forget([...snapshot.chains, ...objects], state);
  }

  async #write(plan: Plan): Promise<ApplyResult> {
    const { ops, counts } = plan;
    const expectGeneration = this.#expected;
    const options = expectGeneration === undefined ? {} : { expectGeneration };
    let commit: CommitResult | undefined;
    try {
      const batch = ops.map(({ op }) => op);
      if (batch.length > 0) commit = await this.#kernel.commit(batch, options);
    } catch (error) {
      throw toTableError(this.#options.name, error, ops);
    }
    if (commit !== undefined && expectGeneration !== undefined) this.#expected = nextGeneration(expectGeneration);
    plan.settle();
    return toResult(commit, counts);
  }

  /** Lets this apply delete the inherited objects after their grace period. */
  #markInherited(): void {
    const inherited = this.#inherited;
    if (typeof inherited !== "object" || this.#clock.now() < inherited.due) return;
    this.desired.mark(inherited);
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
    const { own, state } = this.#observed;
    const mapsGo = changes.sets.some(
      ({ name, action }) => holdsOn(state, name) && (action === "delete" || action === "recreate"),
    );
    const timed = changes.sets.some(({ name, action }) => action === "keep" && isTimed(state, name));
    return {
      chains: changes.chains,
      sets: changes.sets,
      objects: changes.objects,
      former: this.#observed.former,
      ref: this.ref,
      comment: this.#options.comment,
      own,
      portId: this.#portId,
      state,
      flushMaps: mapsGo && (await this.#quirks.mapsMustBeEmptied()),
      destroyTimed: timed && (await this.#quirks.canDestroy()),
      busy: kept.size === 0 ? this.#quirks.busyChains : new Set([...this.#quirks.busyChains, ...kept]),
      saved,
    };
  }

  /** See make-before-break.ts. If the kernel refuses this transaction, it also refuses the next one, which reports the error. */
  async #writeChainsAhead(snapshot: Snapshot): Promise<ApplyResult[]> {
    const first = chainsAhead(snapshot, this.#observed.state);
    if (first === undefined) return [];
    const plan = new Plan();
    const input = await this.#planInput({ ...first, objects: snapshot.objects }, new Set(), new Map());
    planObjects(input, false, plan);
    planTable(input, plan);
    try {
      return [await this.#write(plan)];
    } catch (error) {
      if (error instanceof TableError && error.code === "refused") return [];
      throw error;
    }
  }
}
