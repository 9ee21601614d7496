import { performance } from "node:perf_hooks";

import { inTurn } from "../base/time-slice.js";
import { TableFlag } from "../netlink/constants.js";
import { KernelError } from "../netlink/errors.js";
import { nextGeneration } from "../netlink/generation.js";
import type { ChangeBatch, ChangeEvent, CommitResult, ElementBatch, Kernel } from "../netlink/kernel.js";
import { DeclaredTable } from "./declared-table.js";
import { type Features, fateOf, Quirks, type TableFacts } from "./quirks.js";
import type { ApplyOptions, ApplyResult, Clock, Drift, Insertion, TableOptions } from "./rules/rule.js";
import type { Period } from "./sync/announcements.js";
import { driftOf, joined } from "./sync/drift.js";
import { Insertions, NOTHING_INSERTED } from "./sync/insertions.js";
import { chainsAhead, Outgoing, type Piece, PIECE_ELEMENTS } from "./sync/make-before-break.js";
import { emptyState } from "./sync/dump.js";
import { type CheckOutcome, TableCheck } from "./sync/check.js";
import { ObservedTable, type Reading } from "./sync/observed.js";
import { holdsOn, isTimed, type Names, Plan, type PlanInput, planObjects, planTable, planWaking } from "./sync/plan.js";
import { joinResults, TableError, toResult, toTableError } from "./sync/results.js";
import { type Snapshot, takeSnapshot } from "./sync/snapshot.js";
import { describeChanges, describeForeignChanges } from "./sync/describe-changes.js";

const DEFAULT_GRACE_PERIOD_MS = 500;
/** Times that one apply() reads the kernel again and tries once more. */
const MAX_RETRIES = 3;
/** Refusals of an object's absence, presence, use or owner: the kernel does not hold what was observed. */
const DRIFT = new Set(["ENOENT", "EEXIST", "EBUSY", "ENFILE", "EPERM"]);

/** By set: what packets have put into it. */
type Filled = ReadonlyMap<string, ElementBatch>;

/** Whether a transaction was refused for its size. */
function lacksMemory({ code, faulty }: TableError): boolean {
  return code === "too-large" || faulty.some(({ errno }) => errno === "ENOMEM" || errno === "ENOBUFS");
}

/**
 * A table of nf_tables that this program owns, declared: say which chains, sets and elements are desired, in any order,
 * then `apply()`. The first apply reads what the kernel holds; everything in the table is ours, so what is not desired goes, and
 * what is the same stays untouched (rule counters and the contents of dynamic sets survive). Later applies
 * cost as much as what changed. One atomic transaction each, or none when there is nothing to do; what packets must find before it, or may
 * still use after it, goes in transactions of its own (make-before-break.ts, deferred deletions).
 *
 * While `apply()` or `load()` runs, methods that change what is desired throw TableError "busy".
 */
export class Table extends DeclaredTable {
  readonly #kernel: Kernel;
  readonly #options: TableOptions;
  readonly #clock: Clock;
  readonly #insertions: Insertions;
  readonly #observed: ObservedTable;
  readonly #check: TableCheck;
  readonly #quirks: Quirks;
  #port: number;
  /** Generation on which the next transaction is planned; undefined: whichever it is. */
  #expected: number | undefined;
  /** Found by reads, and not undone yet. */
  #drift: Drift | undefined;
  /**
   * Of the table's earlier owner: "unknown" until the first transaction, "kept" while one is tried that keeps some; then what goes when its
   * grace period is over.
   */
  #leftovers: "unknown" | "kept" | (Names & { readonly due: number }) | undefined = "unknown";
  #queue: Promise<unknown> = Promise.resolve();
  #closed = false;

  constructor(kernel: Kernel, options: TableOptions) {
    super(options);
    this.#kernel = kernel;
    this.#port = kernel.portId;
    this.#options = options;
    this.#clock = options.clock ?? { now: () => performance.now() };
    this.#observed = new ObservedTable(kernel, this.ref, this.desired, options.comment);
    this.#check = new TableCheck(this.#observed);
    this.#quirks = new Quirks(kernel, options.family);
    this.#insertions = new Insertions(options);
  }

  /** Desires exactly these rules of ours at that end of another table's chain; none: they go. */
  insertions(target: Insertion): void {
    this.desired.checkChangeable();
    this.#insertions.set(target);
  }

  /** Begins to read what the kernel holds, beside whatever is done until the first `load` or `apply`, which uses it if nothing has changed since. */
  readAhead(): void {
    this.#observed.readAhead();
  }

  /** Reads what the kernel holds, unless that is known. Writes nothing. Throws TableError. */
  load(): Promise<void> {
    return this.#exclusively(async () => {
      await this.#resolveOwnership();
      if (this.#observed.invalidations.any) await this.#read();
      await this.#observed.readUnknownSets();
    });
  }

  /** The next apply reads everything first. `reason` comes back in its result. */
  invalidate(reason: string): void {
    this.#observed.invalidations.add({ cause: "asked", reason });
  }

  /**
   * Takes note of a transaction, as events tell it. Of what another process did: the next apply reads what it is about, and repairs it.
   * @returns what was done, in words; empty when it is ours or nothing to this table, or has been seen by a read since.
   */
  notice({ generation, portId, events }: ChangeBatch): string[] {
    if (portId === this.#kernel.portId) {
      this.#observed.announcements.add(generation, false);
      return [];
    }
    const inserted = describeForeignChanges(this.#insertions.notice(events));
    const ours = events.filter(
      (event) => event.family === this.ref.family && event.table === this.ref.table && !this.#isPackets(event),
    );
    this.#observed.announcements.add(generation, ours.length > 0);
    if (ours.length === 0) return inserted;
    const named = ours.flatMap(({ kind, name }) => (kind === "elements" || kind === "set" ? (name ?? []) : []));
    const scope = ours.some(({ kind }) => kind === "table") ? {} : { sets: named };
    const reason = "another process changed the table";
    const added = this.#observed.invalidations.add({ cause: "foreign", reason, generation, ...scope });
    return added ? [...describeChanges(ours), ...inserted] : inserted;
  }

  /** Every transaction of the namespace is told to `notice` from now on, or no more. */
  listening(listening: boolean): void {
    this.#observed.announcements.listen(listening);
  }

  /** Nobody has listened for a while: anything may have happened. False: that was known. */
  eventsLost(reason: string): boolean {
    const { announcements, invalidations } = this.#observed;
    announcements.lost();
    const known = invalidations.has("lost events");
    invalidations.add({ cause: "lost events", reason });
    return !known;
  }

  /** Whether the table may be otherwise than it was left: the next apply that repairs will look. */
  get invalidated(): boolean {
    return this.#observed.invalidations.any || this.#insertions.suspect;
  }

  /** Whether `notice` is to get the events of other tables, too: rules of ours may be in any of them. */
  get noticesAllTables(): boolean {
    return this.#insertions.used;
  }

  /**
   * Compares everything with the kernel, part by part: the structure, then each set. A part that an apply disturbs is done once more, and
   * the next apply waits for it. Writes nothing: what differs is read and repaired by the next apply. Throws TableError.
   * @param mostElements where the kernel counts elements (Linux 6.16): the elements of about as many are compared, of all sets in turn from one check
   * to the next, and of the others their number.
   */
  async check(mostElements = Infinity): Promise<CheckOutcome> {
    try {
      return await this.#check.run(
        (part) => this.#undisturbed(part),
        () => this.#insertions.check(this.#kernel),
        mostElements,
      );
    } catch (error) {
      throw toTableError(this.#options.name, error);
    }
  }

  /** Reads what the elements of sets with counters have counted, for `ElementSet.count`. Throws TableError. */
  async readCounters(): Promise<void> {
    try {
      for (const [set, elements] of this.desired.sets)
        if (elements.known) await elements.readCounters(() => this.#counted(set));
    } catch (error) {
      // A set that was made anew meanwhile is read the next time.
      if (!(error instanceof KernelError) || error.code !== "not-found") throw toTableError(this.#options.name, error);
    }
  }

  /** Undefined: the kernel has no such set, or one without counters. */
  async #counted(set: string): Promise<ElementBatch | undefined> {
    const info = this.#observed.state.sets.get(set);
    return info?.exprs === undefined || info.exprs.length === 0 ? undefined : this.#kernel.elements(this.ref, info);
  }

  /** Brings the kernel to what is desired. Throws TableError; then nothing has changed, and everything stays desired. */
  apply(options: ApplyOptions = {}): Promise<ApplyResult> {
    return this.#exclusively(() =>
      options.rebuild === true ? this.#rebuild() : this.#applyWithRetries(options.repair !== false),
    );
  }

  /** Whether the table is to be owned (TableOptions.own) and the kernel can. */
  async owned(): Promise<boolean> {
    return this.#options.own === true && (await this.#quirks.canOwnTables());
  }

  /** Whether another program owns the table now. Asks the kernel for no more than its list of tables. */
  async ownedByOther(): Promise<boolean> {
    return this.#isTheirs(await this.#present());
  }

  /** What the kernel can do. Probed once; again with `refresh`. */
  features(refresh = false): Promise<Features> {
    return this.#quirks.features(refresh);
  }

  protected override renderInsertions(): readonly string[] {
    return this.#insertions.render();
  }

  /** Removes the table and our rules in other tables; what is desired stays so, should `apply` be called again. */
  destroy(): Promise<ApplyResult> {
    return this.#serialised(async () => {
      this.invalidate("the table was removed");
      this.#insertions.invalidate();
      try {
        const present = await this.#present();
        this.#checkOwner(present);
        const reading = await this.#insertions.read(this.#kernel, this.ref);
        const open = reading.open.map((target) => ({ ...target, desired: NOTHING_INSERTED }));
        const plan = new Plan();
        this.#insertions.plan(open, plan);
        if (present !== undefined)
          plan.push("removeChains", this.ref, { op: "delete", kind: "table" }, { kind: "table" });
        return await this.#write(plan);
      } finally {
        this.#insertions.invalidate();
      }
    });
  }

  /** Refuses further calls; the kernel keeps what it holds. */
  close(): void {
    this.#closed = true;
  }

  /** Does what only reads while nothing else is done: beside what may come, and if something did, once more while that waits. */
  async #undisturbed<T>(part: () => Promise<T>): Promise<T> {
    const queue = this.#queue;
    await queue;
    if (queue === this.#queue && !this.#closed) {
      const result = await part();
      if (queue === this.#queue) return result;
    }
    return this.#serialised(part);
  }

  /** The same; what is desired cannot change until it is done. */
  #exclusively<T>(action: () => Promise<T>): Promise<T> {
    return this.desired.hold(() => this.#serialised(action));
  }

  /** Does it when all that was asked before is done. Throws TableError. */
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
    // What a retry finds in force was written by this apply all the same.
    const written: ApplyResult[] = [];
    for (let retry = 0; ; retry++) {
      const period = this.#observed.announcements.begin();
      let reading: Reading | undefined;
      try {
        await this.#resolveOwnership();
        await this.#lookAtOwner();
        const { invalidations } = this.#observed;
        if ((repair && invalidations.any) || invalidations.pressing) reading = await this.#read();
        resynced ??= reading?.reason;
        readWhole ||= reading?.whole === true;
        this.#drift = joined(this.#drift, reading?.drift);
        this.#expected = retry < MAX_RETRIES ? reading?.generation : undefined;
        await this.#applyOnce(written, repair);
        return this.#resultOf(written, resynced);
      } catch (failure) {
        const error = toTableError(this.#options.name, failure);
        if (retry < MAX_RETRIES && (await this.#isStillRight(error, reading, period))) {
          // Written on what was read, without expecting anything: what another process does to the table now shows in events.
          readWhole = false;
          continue;
        }
        if (
          this.#leftovers === "kept" &&
          error.faulty.some(({ kind, errno }) => kind === "chain" && errno === "EBUSY")
        ) {
          // An element that stays holds on to a chain that is made anew. Anything else is refused without leftovers, too, and they stay.
          this.#leftovers = undefined;
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
   * The last resort (ApplyOptions.rebuild). A table that is too large for one transaction goes first, and comes in pieces: packets see nothing of it
   * until the last one. What packets had put into dynamic sets may be what is refused: it is dropped then. Each of the two is tried once.
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
          this.#insertions.invalidate();
        }
        filled ??= await this.#observed.readFilled();
        await this.#applyOnce(written, true, filled);
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

  /** Ahead of a table that is too large for one transaction. */
  async #deleteTable(): Promise<ApplyResult> {
    const plan = new Plan();
    plan.push("addTable", this.ref, { op: "delete", kind: "table" }, { kind: "table" });
    plan.onceInForce(() => void (this.#observed.state = emptyState()));
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
    // Of the tables that these are in nothing tells.
    this.#insertions.invalidate();
    return true;
  }

  /** Notes that the kernel is to be read again where the error says so; whether it is worth another try now. */
  #mayRetry({ code, faulty, cause }: TableError, wasRead: boolean, repair: boolean): boolean {
    const { invalidations } = this.#observed;
    if (code === "stale" || code === "unknown-outcome") {
      if (code === "stale") invalidations.add({ cause: "stale", reason: "the ruleset changed meanwhile" });
      else invalidations.add({ cause: "outcome", reason: "the outcome of a transaction is not known" });
      return true;
    }
    const drifted = code === "not-found" || (code === "refused" && faulty.some(({ errno }) => DRIFT.has(errno)));
    if (!drifted || wasRead) return false;
    invalidations.add({ cause: "conflict", reason: "the kernel holds something else than was observed" });
    this.#insertions.invalidate();
    if (repair) return true;
    const message = `${this.#options.name}: nothing can be written before it is repaired`;
    throw new TableError("stale", message, [], { cause });
  }

  #whatRemains(): Pick<ApplyResult, "applyAgainMs" | "deferred" | "busy"> {
    const now = this.#clock.now();
    let next = this.#insertions.retryAt(now) ?? Infinity;
    if (typeof this.#leftovers === "object") next = Math.min(next, this.#leftovers.due);
    const { sets, watched } = this.desired;
    for (const name of watched) {
      const elements = sets.get(name);
      const due = elements?.nextDue;
      if (due !== undefined && due < next) next = due;
      // Nothing is left to do: it comes back when something is.
      if (elements === undefined || (elements.known && due === undefined && !elements.dirty)) watched.delete(name);
    }
    const { deferred } = this.#insertions;
    const busy = [...this.#quirks.busyChains].filter((chain) => !this.desired.chains.has(chain));
    return {
      ...(next === Infinity ? {} : { applyAgainMs: Math.max(0, Math.ceil(next - now)) }),
      ...(deferred.length === 0 ? {} : { deferred }),
      ...(busy.length === 0 ? {} : { busy }),
    };
  }

  async #read(): Promise<Reading> {
    const reading = await this.#observed.read();
    if (reading.whole) {
      this.#quirks.busyChains.clear();
      this.#insertions.invalidate();
    }
    return reading;
  }

  /** Notes whether the table is to be owned, and what became of it when our socket had to be replaced. */
  async #resolveOwnership(): Promise<void> {
    const view = this.#observed;
    if (this.#options.own === true && !view.own) view.own = await this.owned();
    const { portId } = this.#kernel;
    if (portId === this.#port) return;
    // What the former socket owned is nobody's now.
    const { table } = view.state;
    if (table !== undefined && table.owner === this.#port) {
      view.state.table = { flags: table.flags & ~TableFlag.owner };
    }
    this.#port = portId;
  }

  /** Where another program was seen to own the table: throws TableError if it still does, for less than a read costs. */
  async #lookAtOwner(): Promise<void> {
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

  /** Throws TableError where another program owns the table. */
  #checkOwner(table: TableFacts | undefined): void {
    if (!this.#isTheirs(table)) return;
    const { family, name } = this.#options;
    const owner = table?.owner;
    const message =
      `table ${family} ${name} is owned by another program (netlink port ${owner}): nobody else can change it until that ends; ` +
      `"nft list table ${family} ${name}" shows its name`;
    throw new TableError("no-permission", message, [], { owner });
  }

  /** What packets fill is theirs: `nft add element` there as well. */
  #isPackets({ kind, name }: ChangeEvent): boolean {
    return kind === "elements" && name !== undefined && this.desired.setSpec(name)?.dynamic === true;
  }

  /**
   * @param written gets the result of each transaction, at least one: also of those before the one that failed.
   * @param filled what packets had put into the sets of a table that is made anew; by default what can be read of it.
   */
  async #applyOnce(written: ApplyResult[], repair: boolean, filled?: Filled): Promise<void> {
    this.#checkOwner(this.#observed.state.table);
    const { open, drift } = await this.#insertions.read(this.#kernel, this.ref, repair);
    this.#drift = joined(this.#drift, driftOf(new Set(["foreign"]), drift));
    await this.#observed.readUnknownSets();
    await this.#observed.readHandles();
    const { gracePeriodMs = DEFAULT_GRACE_PERIOD_MS, pieceElements = PIECE_ELEMENTS } = this.#options;
    const { state } = this.#observed;
    const isFirst = typeof this.#leftovers === "string";
    this.#endLeftovers();
    const snapshot = takeSnapshot(this.desired, state, this.#clock.now(), pieceElements, isFirst && gracePeriodMs > 0);
    const { leftovers } = snapshot;
    const kept = typeof this.#leftovers === "object" ? this.#leftovers : leftovers;
    if (isFirst) this.#leftovers = leftovers.sets.size > 0 ? "kept" : "unknown";
    const saved = filled ?? (await this.#observed.readFilled());
    const outgoing = new Outgoing(snapshot);
    const write = async ({ sets, last }: Piece): Promise<void> => {
      const plan = new Plan();
      if (last) this.#insertions.plan(open, plan);
      if (last) planObjects(this.ref, state, plan);
      planTable(await this.#planInput({ chains: last ? snapshot.chains : [], sets }, kept.chains, saved), plan);
      written.push(await this.#write(plan));
      outgoing.settle(sets, this.#clock.now() + gracePeriodMs);
    };
    try {
      written.push(...(await this.#writeChainsAhead(snapshot)));
      await inTurn(outgoing.pieces(pieceElements), write);
      await outgoing.settled();
      const waking = new Plan();
      planWaking(await this.#planInput({ chains: [], sets: [] }, kept.chains, saved), waking);
      if (waking.ops.length > 0) written.push(await this.#write(waking));
    } catch (error) {
      this.desired.mark(snapshot.dirty.chains, snapshot.dirty.sets, snapshot.dirty.targets);
      await outgoing.giveBack();
      throw error;
    }
    if (isFirst) {
      const due = this.#clock.now() + gracePeriodMs;
      this.#leftovers = leftovers.sets.size === 0 ? undefined : { ...leftovers, due };
    }
    this.desired.forget(snapshot.chains, state);
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

  /** Leftovers whose grace period is over are looked at once more, and go. */
  #endLeftovers(): void {
    const leftovers = this.#leftovers;
    if (typeof leftovers !== "object" || this.#clock.now() < leftovers.due) return;
    this.desired.mark(leftovers.chains, leftovers.sets);
    this.#leftovers = undefined;
  }

  /**
   * @param kept chains that stay although they are not desired.
   * @param saved elements of sets that come anew.
   */
  async #planInput(
    changes: Pick<PlanInput, "chains" | "sets">,
    kept: ReadonlySet<string>,
    saved: Filled,
  ): Promise<PlanInput> {
    const { own, state } = this.#observed;
    const mapsGo = changes.sets.some(
      ({ name, action }) => holdsOn(state, name) && (action === "delete" || action === "recreate"),
    );
    const timed = changes.sets.some(({ name, action }) => action === "keep" && isTimed(state, name));
    return {
      ...changes,
      ref: this.ref,
      comment: this.#options.comment,
      own,
      portId: this.#port,
      state,
      flushMaps: mapsGo && (await this.#quirks.mapsMustBeEmptied()),
      destroyTimed: timed && (await this.#quirks.canDestroy()),
      busy: kept.size === 0 ? this.#quirks.busyChains : new Set([...this.#quirks.busyChains, ...kept]),
      saved,
    };
  }

  /** See make-before-break.ts. What the kernel refuses here it refuses in the transaction that follows, which says so. */
  async #writeChainsAhead(snapshot: Snapshot): Promise<ApplyResult[]> {
    const first = chainsAhead(snapshot, this.#observed.state);
    if (first === undefined) return [];
    const plan = new Plan();
    planTable(await this.#planInput(first, new Set(), new Map()), plan);
    try {
      return [await this.#write(plan)];
    } catch (error) {
      if (error instanceof TableError && error.code === "refused") return [];
      throw error;
    }
  }
}
