import { performance } from "node:perf_hooks";

import { TableFlag } from "../kernel/constants.js";
import { KernelError } from "../kernel/errors.js";
import { nextGeneration } from "../kernel/generation.js";
import type { ChangeBatch, ChangeEvent, CommitResult, Kernel, TableRef, Verdict } from "../kernel/types.js";
import type { Period } from "./sync/announcements.js";
import { BusyChains } from "./quirks/busy-chains.js";
import { capture, type Captured } from "./sync/capture.js";
import { describeChanges, describeForeignChanges } from "./sync/changes.js";
import { type CheckOutcome, compareAll } from "./sync/check.js";
import { insertionDrift, joined } from "./sync/drift.js";
import { CommitFailure, TableError, toTableError } from "./sync/errors.js";
import { probeFeatures, probeOwnedTables, type Features } from "./quirks/features.js";
import { Insertions, type OpenTarget } from "./sync/insertions.js";
import { GoingMaps } from "./quirks/going-maps.js";
import { fateOf, type TableFacts } from "./quirks/ownership.js";
import { inTurn, Outgoing, type Piece, PIECE_ELEMENTS } from "./sync/pieces.js";
import { buildPlan, Phases, type Plan, type PlanInput, type PlannedOp } from "./sync/plan.js";
import { renderTable } from "./rules/render.js";
import { targetsFirst } from "./sync/targets-first.js";
import { faultyObjects, sumOf, toResult } from "./sync/results.js";
import { checkComment, checkName } from "./rules/text.js";
import { CheckSchedule } from "./sync/check-schedule.js";
import type {
  ApplyOptions,
  ApplyResult,
  ChainSpec,
  Clock,
  Drift,
  ElementSet,
  Insertion,
  SetSpec,
  TableOptions,
} from "./rules/types.js";
import { KernelView, type Reading } from "./sync/observed.js";
import { WantedState } from "./sync/desired.js";

const DEFAULT_TAIL_DELAY_MS = 500;
/** Times that one apply() reads the kernel again and tries once more. */
const MAX_RETRIES = 3;
/** Refusals of an object's absence, presence, use or owner: the kernel does not hold what we thought. */
const DRIFT = new Set(["ENOENT", "EEXIST", "EBUSY", "ENFILE", "EPERM"]);

/**
 * A table of nf_tables that this program owns, declared: say which chains, sets and elements are wanted, in any order,
 * then `apply()`. The first apply reads what the kernel holds; everything in the table is ours, so what nobody wants goes, and
 * what is the same stays untouched (rule counters and the contents of dynamic sets survive). Later applies
 * cost as much as what changed. One atomic transaction each, or none when there is nothing to do.
 *
 * The wanted state may be changed while an `apply()` is under way: that one brings the state of one moment to the
 * kernel, the change waits for the next.
 */
export class Table {
  readonly ref: TableRef;
  readonly #kernel: Kernel;
  readonly #options: TableOptions;
  readonly #clock: Clock;
  readonly #wanted: WantedState;
  readonly #insertions: Insertions;
  readonly #checks: CheckSchedule;
  readonly #view: KernelView;
  readonly #goingMaps: GoingMaps;
  readonly #busy = new BusyChains();
  /** Of the socket that commits. */
  #port: number;
  /** Found by reads, and not undone yet. */
  #drift: Drift | undefined;
  #queue: Promise<unknown> = Promise.resolve();
  #features: Promise<Features> | undefined;
  /** Whether the kernel has tables that outlive their owner. */
  #ownable: boolean | undefined;
  #closed = false;

  constructor(kernel: Kernel, options: TableOptions) {
    checkName("table", options.name);
    checkComment(`table ${options.name}`, options.comment);
    this.#kernel = kernel;
    this.#port = kernel.portId;
    this.#options = options;
    this.ref = { family: options.family, table: options.name };
    this.#clock = options.clock ?? { now: () => performance.now() };
    this.#wanted = new WantedState(options.name, options.family);
    this.#view = new KernelView(kernel, this.ref, this.#wanted);
    this.#goingMaps = new GoingMaps(kernel, options.family);
    this.#insertions = new Insertions(options);
    this.#checks = new CheckSchedule(this.#clock, options.postWriteIntervalMs ?? 0, options.refreshIntervalMs ?? 0);
  }

  /** Wants the chain with exactly these rules. Throws RangeError for what cannot be expressed. Sets that rules look up in an `inet` table come first. */
  chain(spec: ChainSpec): void {
    this.#wanted.chain(spec);
  }

  removeChain(name: string): void {
    this.#wanted.removeChain(name);
  }

  /**
   * Wants the set or map. Called again with the same name it returns the same elements, unless the width of key or data changed,
   * or whether it is a set of intervals: then the former elements are gone.
   */
  set(spec: SetSpec): ElementSet {
    return this.#wanted.set(spec);
  }

  removeSet(name: string): void {
    this.#wanted.removeSet(name);
  }

  /** Number that stands for the verdict in the data of this table's verdict maps, until its chain is neither wanted nor in the kernel. */
  verdictId(verdict: Verdict): number {
    return this.#wanted.verdicts.id(verdict);
  }

  /** Desires exactly these rules of ours at that end of another table's chain; none: they go. */
  insertions(target: Insertion): void {
    this.#insertions.set(target);
  }

  /** Reads what the kernel holds, unless that is known. Writes nothing. Throws TableError. */
  load(): Promise<void> {
    return this.#serialised(async () => {
      try {
        await this.#resolveOwnership();
        if (this.#view.doubts.any) await this.#read();
        await this.#view.readUnknownSets();
      } catch (error) {
        throw toTableError(this.#options.name, error);
      }
    });
  }

  /** The next apply reads everything first. `reason` comes back in its result. */
  invalidate(reason: string): void {
    this.#view.doubts.add({ cause: "asked", reason });
  }

  /**
   * Takes note of what somebody else did, as events tell it: the next apply reads what it is about, and repairs it.
   * @returns what was done, in words; empty when it is nothing to this table, or has been seen by a read since.
   */
  notice({ generation, events }: ChangeBatch): string[] {
    const inserted = describeForeignChanges(this.#insertions.notice(events));
    const ours = events.filter(
      (event) => event.family === this.ref.family && event.table === this.ref.table && !this.#isPackets(event),
    );
    this.#view.announcements.add(generation, ours.length > 0);
    if (ours.length === 0) return inserted;
    const named = ours.flatMap(({ kind, name }) => (kind === "elements" || kind === "set" ? (name ?? []) : []));
    const whole = ours.some(({ kind }) => kind === "table");
    const reason = "somebody else changed the table";
    const added = this.#view.doubts.add({ cause: "foreign", reason, generation, ...(whole ? {} : { sets: named }) });
    return added ? [...describeChanges(ours), ...inserted] : inserted;
  }

  /** Takes note that a transaction of ours was received in its place among the others. */
  noticeOwn({ generation }: ChangeBatch): void {
    this.#view.announcements.add(generation, false);
  }

  /** Every transaction of the namespace is told to `notice` or `noticeOwn` from now on, or no more. */
  listening(listening: boolean): void {
    this.#view.announcements.listen(listening);
  }

  /** Nobody has listened for a while: anything may have happened. False: that was known. */
  eventsLost(reason: string): boolean {
    const { announcements, doubts } = this.#view;
    announcements.lost();
    const known = doubts.has("lost events");
    doubts.add({ cause: "lost events", reason });
    return !known;
  }

  /** Whether the table may be otherwise than it was left: the next apply that repairs will look. */
  get inDoubt(): boolean {
    return this.#view.doubts.any || this.#insertions.suspect;
  }

  /** Whether `notice` is to get the events of other tables, too: rules of ours may be in any of them. */
  get noticesAllTables(): boolean {
    return this.#insertions.used;
  }

  /**
   * Compares everything with the kernel, part by part: the structure, then each set. A part that an apply disturbs is done once more, and
   * the next apply waits for it. Writes nothing: what differs is read and repaired by the next apply. Throws TableError.
   */
  async check(): Promise<CheckOutcome> {
    try {
      return await compareAll(
        this.#view,
        (part) => this.#undisturbed(part),
        () => this.#insertions.check(this.#kernel),
      );
    } catch (error) {
      throw toTableError(this.#options.name, error);
    }
  }

  /** Brings the kernel to what is wanted. Throws TableError; then nothing has changed, and everything stays wanted. */
  apply(options: ApplyOptions = {}): Promise<ApplyResult> {
    return this.#serialised(async () => {
      const due = this.#checks.due();
      if (due !== undefined) this.invalidate(due);
      return this.#applyWithRetries(options.repair !== false);
    });
  }

  /** Whether the table is to be owned (TableOptions.own) and the kernel can. */
  async owned(): Promise<boolean> {
    if (this.#options.own !== true) return false;
    this.#ownable ??= await probeOwnedTables(this.#kernel, this.ref.family);
    return this.#ownable;
  }

  /** Whether another program owns the table now. Asks the kernel for no more than its list of tables. */
  async ownedByOther(): Promise<boolean> {
    return this.#isTheirs(await this.#present());
  }

  /** What the kernel can do. Probed once; again with `refresh`. */
  features(refresh = false): Promise<Features> {
    if (this.#features === undefined || refresh) {
      const probe = probeFeatures(this.#kernel, this.ref.family);
      probe.catch(() => {
        if (this.#features === probe) this.#features = undefined;
      });
      this.#features = probe;
    }
    return this.#features;
  }

  /**
   * What is desired, as text that `nft -f` (>= 1.0.6) loads in place of the table; insertions, which have no place of their own, are
   * added by it to chains that have to be there.
   */
  render(): string {
    return renderTable({
      ...this.ref,
      ...(this.#options.comment === undefined ? {} : { comment: this.#options.comment }),
      sets: [...this.#wanted.sets.values()].map((record) => record.elements),
      chains: [...this.#wanted.chains.values()].map((chain) => chain.spec),
      verdicts: this.#wanted.verdicts,
      insertions: this.#insertions.render(),
    });
  }

  /** Removes the table and our rules in other tables; what is wanted stays so, should `apply` be called again. */
  destroy(): Promise<ApplyResult> {
    return this.#serialised(async () => {
      this.invalidate("the table was removed");
      this.#insertions.invalidate();
      try {
        return await this.#destroyOnce();
      } catch (error) {
        throw error instanceof CommitFailure
          ? toTableError(this.#options.name, error.kernelError, error.faulty)
          : toTableError(this.#options.name, error);
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

  #serialised<T>(action: () => Promise<T>): Promise<T> {
    const run = this.#queue.then(() => {
      if (this.#closed) throw new TableError("closed", `${this.#options.name}: the table is closed`);
      return action();
    });
    this.#queue = run.catch(() => undefined);
    return run;
  }

  async #applyWithRetries(repair: boolean): Promise<ApplyResult> {
    let resynced: string | undefined;
    let readWhole = false;
    for (let retry = 0; ; retry++) {
      const period = this.#view.announcements.begin();
      let reading: Reading | undefined;
      try {
        await this.#resolveOwnership();
        await this.#lookAtOwner();
        const { doubts } = this.#view;
        if ((repair && doubts.any) || doubts.pressing) reading = await this.#read();
        resynced ??= reading?.reason;
        readWhole ||= reading?.whole === true;
        this.#drift = joined(this.#drift, reading?.drift);
        const result = await this.#applyOnce(retry < MAX_RETRIES ? reading?.generation : undefined, repair);
        this.#checks.done(result.transactions > 0, resynced !== undefined);
        const drift = this.#drift;
        this.#drift = undefined;
        return {
          ...result,
          ...this.#whatRemains(),
          ...(resynced === undefined ? {} : { resynced }),
          ...(drift === undefined ? {} : { drift }),
        };
      } catch (error) {
        const failure = error instanceof CommitFailure ? error.kernelError : error;
        const faulty = error instanceof CommitFailure ? error.faulty : [];
        if (retry < MAX_RETRIES && (await this.#isStillRight(failure, reading, period))) {
          // Written on what was read, without expecting anything: what another process does to the table now shows in events.
          readWhole = false;
          continue;
        }
        const busy = readWhole && this.#busy.note(faulty, (chain) => this.#wanted.chains.has(chain));
        if (!(busy || this.#mayRetry(failure, readWhole, repair)) || retry >= MAX_RETRIES) {
          throw toTableError(this.#options.name, failure, faulty);
        }
      } finally {
        period?.end();
      }
    }
  }

  /** Whether only other tables changed between the read and the transaction that was refused for it. */
  async #isStillRight(error: unknown, reading: Reading | undefined, period: Period | undefined): Promise<boolean> {
    if (!(error instanceof KernelError) || error.code !== "stale") return false;
    if (reading?.generation === undefined || period === undefined) return false;
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
  #mayRetry(error: unknown, wasRead: boolean, repair: boolean): boolean {
    if (!(error instanceof KernelError)) return false;
    const { doubts } = this.#view;
    if (error.code === "stale" || error.code === "unknown-outcome") {
      if (error.code === "stale") doubts.add({ cause: "stale", reason: "the ruleset changed meanwhile" });
      else doubts.add({ cause: "outcome", reason: "the outcome of a transaction is not known" });
      return true;
    }
    const drifted =
      error.code === "not-found" || (error.code === "refused" && error.faults.some((fault) => DRIFT.has(fault.errno)));
    if (!drifted || wasRead) return false;
    doubts.add({ cause: "conflict", reason: "the kernel holds something else than was thought" });
    this.#insertions.invalidate();
    if (repair) return true;
    throw new TableError("stale", `${this.#options.name}: nothing can be written before it is repaired`, [], {
      cause: error,
    });
  }

  #whatRemains(): Pick<ApplyResult, "applyAgainMs" | "deferred" | "busy"> {
    let next = this.#checks.next;
    const { sets, watched } = this.#wanted;
    for (const name of watched) {
      const record = sets.get(name);
      const late = record?.elements.nextLate;
      if (late !== undefined && (next === undefined || late < next)) next = late;
      // Nothing is left to do: it comes back when something is.
      if (record === undefined || (record.known && late === undefined && !record.elements.dirty)) watched.delete(name);
    }
    for (const due of this.#wanted.lateChains.values()) next = Math.min(next ?? due, due);
    const { deferred } = this.#insertions;
    const retryAt = this.#insertions.retryAt(this.#clock.now());
    if (retryAt !== undefined) next = Math.min(next ?? retryAt, retryAt);
    const busy = [...this.#busy.names].filter((chain) => !this.#wanted.chains.has(chain));
    return {
      ...(next === undefined ? {} : { applyAgainMs: Math.max(0, Math.ceil(next - this.#clock.now())) }),
      ...(deferred.length === 0 ? {} : { deferred }),
      ...(busy.length === 0 ? {} : { busy }),
    };
  }

  async #read(): Promise<Reading> {
    const reading = await this.#view.read();
    if (reading.whole) {
      this.#busy.forget();
      this.#insertions.invalidate();
    }
    return reading;
  }

  /** Notes whether the table is to be owned, and what became of it when our socket had to be replaced. */
  async #resolveOwnership(): Promise<void> {
    const view = this.#view;
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
    if (!this.#isTheirs(this.#view.state.table)) return;
    const present = await this.#present();
    if (this.#isTheirs(present)) throw this.#notOurs(present);
    this.#view.doubts.add({ cause: "asked", reason: "another program owned the table", sets: [] });
  }

  async #present(): Promise<TableFacts | undefined> {
    return (await this.#kernel.tables(this.ref.family)).find(({ table }) => table === this.ref.table);
  }

  #isTheirs(table: TableFacts | undefined): table is TableFacts {
    return table !== undefined && fateOf(table, this.#view.own, this.#kernel.portId) === "theirs";
  }

  /** Throws TableError when another program owns the table. */
  #checkOwner(): void {
    const { table } = this.#view.state;
    if (this.#isTheirs(table)) throw this.#notOurs(table);
  }

  #notOurs({ owner }: TableFacts): TableError {
    const { family, name } = this.#options;
    const message =
      `table ${family} ${name} is owned by another program (netlink port ${owner}): nobody else can change it until that ends; ` +
      `"nft list table ${family} ${name}" shows its name`;
    return new TableError("no-permission", message, [], owner === undefined ? {} : { owner });
  }

  /** What packets fill is theirs: `nft add element` there as well. */
  #isPackets({ kind, name }: ChangeEvent): boolean {
    return kind === "elements" && name !== undefined && this.#wanted.setSpec(name)?.dynamic === true;
  }

  async #applyOnce(expectGeneration: number | undefined, repair: boolean): Promise<ApplyResult> {
    this.#checkOwner();
    const { open, drift } = await this.#insertions.read(this.#kernel, this.ref, repair);
    this.#drift = joined(this.#drift, insertionDrift(drift));
    await this.#view.readUnknownSets();
    await this.#view.readHandles();
    const expect = { generation: expectGeneration };
    const results: ApplyResult[] = [];
    const delayMs = this.#options.tailDelayMs ?? DEFAULT_TAIL_DELAY_MS;
    const pieceElements = this.#options.pieceElements ?? PIECE_ELEMENTS;
    const applies = this.#options.lateChains ?? (() => false);
    const captured = capture(this.#wanted, this.#view.state, this.#clock.now(), { applies, delayMs }, pieceElements);
    const outgoing = new Outgoing(captured.sets);
    const write = async ({ sets, last }: Piece): Promise<void> => {
      const phases = new Phases();
      if (last) this.#insertions.plan(open, phases);
      const flushMaps = await this.#goingMaps.mustBeEmptied(sets);
      const chains = last ? captured.chains : [];
      results.push(await this.#write(buildPlan({ ...this.#planBasis(), chains, sets, flushMaps }, phases), expect));
      outgoing.settle(sets, this.#clock.now() + delayMs);
    };
    try {
      if (this.#options.targetsFirst === true) results.push(...(await this.#writeTargetsFirst(captured, expect)));
      await inTurn(outgoing.pieces(pieceElements), write);
      await outgoing.settled();
    } catch (error) {
      this.#wanted.restore(captured.dirty, captured.due);
      await outgoing.giveBack();
      throw error;
    }
    for (const name of captured.retired) this.#wanted.retired.delete(name);
    this.#wanted.forgetVerdicts(captured.chains, this.#view.state.chains);
    return results.reduce(sumOf);
  }

  /** Commits the plan, and notes that it is in force. */
  async #write(plan: Plan, expect: { generation: number | undefined }): Promise<ApplyResult> {
    const commit = await this.#commit(plan.ops, expect.generation);
    if (commit !== undefined && expect.generation !== undefined) expect.generation = nextGeneration(expect.generation);
    plan.settle();
    return toResult(commit, plan.counts);
  }

  #planBasis(): Omit<PlanInput, "chains" | "sets" | "flushMaps"> {
    const { own, state } = this.#view;
    return { ref: this.ref, comment: this.#options.comment, own, portId: this.#port, state, busy: this.#busy.names };
  }

  /** See targets-first.ts. What the kernel refuses here it refuses in the transaction that follows, which says so. */
  async #writeTargetsFirst(captured: Captured, expect: { generation: number | undefined }): Promise<ApplyResult[]> {
    const first = targetsFirst(captured, this.#view.state);
    if (first === undefined) return [];
    try {
      return [await this.#write(buildPlan({ ...this.#planBasis(), ...first, flushMaps: false }), expect)];
    } catch (error) {
      if (error instanceof CommitFailure && error.kernelError.code === "refused") return [];
      throw error;
    }
  }

  async #commit(ops: readonly PlannedOp[], expectGeneration: number | undefined): Promise<CommitResult | undefined> {
    if (ops.length === 0) return undefined;
    try {
      return await this.#kernel.commit(
        ops.map((planned) => planned.op),
        expectGeneration === undefined ? {} : { expectGeneration },
      );
    } catch (error) {
      throw error instanceof KernelError ? new CommitFailure(error, faultyObjects(error, ops)) : error;
    }
  }

  async #destroyOnce(): Promise<ApplyResult> {
    const present = await this.#present();
    if (this.#isTheirs(present)) throw this.#notOurs(present);
    const reading = await this.#insertions.read(this.#kernel, this.ref);
    const open = reading.open.map((target): OpenTarget => ({ ...target, insert: [], append: [] }));
    const phases = new Phases();
    this.#insertions.plan(open, phases);
    if (present !== undefined) {
      phases.removeChains.push({ op: { op: "delete", kind: "table", ...this.ref }, origin: { kind: "table" } });
      phases.counts.table.delete++;
    }
    return toResult(await this.#commit(phases.inOrder(), undefined), phases.counts);
  }
}
