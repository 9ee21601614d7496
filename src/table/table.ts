import { performance } from "node:perf_hooks";

import { KernelError } from "../kernel/errors.js";
import type { CommitResult, ElementBatch, Kernel, TableRef, Verdict } from "../kernel/types.js";
import { capture, type Captured } from "./capture.js";
import { dumpRules, dumpTable } from "./dump.js";
import type { PackedChange } from "./element-set.js";
import { TableError, toTableError } from "./errors.js";
import { probeFeatures, type Features } from "./features.js";
import { Insertions, type OpenTarget } from "./insertions.js";
import { buildPlan, needsHandles, noCounts, Phases, type Counts, type PlannedOp } from "./plan.js";
import { renderTable } from "./render.js";
import { planTargetsFirst } from "./targets-first.js";
import { serves } from "./schema.js";
import { emptyState, type KernelState } from "./state.js";
import { checkComment, checkName } from "./text.js";
import { CheckSchedule } from "./timing.js";
import type {
  ApplyResult,
  ChainSpec,
  Clock,
  ElementSet,
  FaultyObject,
  Insertion,
  SetSpec,
  TableOptions,
} from "./types.js";
import { WantedState, type SetRecord } from "./wanted.js";

const DEFAULT_TAIL_DELAY_MS = 500;
/** Times that one apply() reads the kernel again and tries once more. */
const MAX_RETRIES = 3;
/** Refusals of an object's absence, presence or use: the kernel does not hold what we thought. */
const DRIFT = new Set(["ENOENT", "EEXIST", "EBUSY", "ENFILE"]);

/** A commit that failed, with the objects at fault. */
class CommitFailure extends Error {
  constructor(
    readonly kernelError: KernelError,
    readonly faulty: readonly FaultyObject[],
  ) {
    super(kernelError.message, { cause: kernelError });
  }
}

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
  readonly #kernel: Kernel;
  readonly #ref: TableRef;
  readonly #options: TableOptions;
  readonly #clock: Clock;
  readonly #wanted: WantedState;
  readonly #insertions: Insertions;
  readonly #checks: CheckSchedule;
  #state: KernelState = emptyState();
  /** Why the kernel has to be read before the next transaction. */
  #stale: string | undefined = "first read";
  #queue: Promise<unknown> = Promise.resolve();
  #features: Promise<Features> | undefined;
  #closed = false;

  constructor(kernel: Kernel, options: TableOptions) {
    checkName("table", options.name);
    checkComment(`table ${options.name}`, options.comment);
    this.#kernel = kernel;
    this.#options = options;
    this.#ref = { family: options.family, table: options.name };
    this.#clock = options.clock ?? { now: () => performance.now() };
    this.#wanted = new WantedState(options.name, options.family);
    this.#insertions = new Insertions(options.ownerMark);
    this.#checks = new CheckSchedule(this.#clock, options.postWriteIntervalMs ?? 0, options.refreshIntervalMs ?? 0);
  }

  /** Wants the chain with exactly these rules. Throws RangeError for what cannot be expressed. Sets that rules look up in an `inet` table come first. */
  chain(spec: ChainSpec): void {
    this.#wanted.chain(spec);
  }

  removeChain(name: string): void {
    this.#wanted.removeChain(name);
  }

  hasChain(name: string): boolean {
    return this.#wanted.chains.has(name);
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

  /** Number that stands for the verdict in the data of this table's verdict maps. */
  verdictId(verdict: Verdict): number {
    return this.#wanted.verdicts.id(verdict);
  }

  /** Wants exactly these rules of ours at that end of another table's chain; none: they go. */
  insertions(target: Insertion): void {
    this.#insertions.set(target);
  }

  /** Reads what the kernel holds, unless that is known. Writes nothing. Throws TableError. */
  load(): Promise<void> {
    return this.#serialised(async () => {
      try {
        if (this.#stale !== undefined) await this.#read();
        await this.#readUnknownSets();
      } catch (error) {
        throw toTableError(this.#options.name, error);
      }
    });
  }

  /** The next apply reads everything first. `reason` comes back in its result. */
  invalidate(reason: string): void {
    this.#stale ??= reason;
  }

  /** Brings the kernel to what is wanted. Throws TableError; then nothing has changed, and everything stays wanted. */
  apply(): Promise<ApplyResult> {
    return this.#serialised(async () => {
      const due = this.#checks.due();
      if (due !== undefined) this.invalidate(due);
      return this.#applyWithRetries();
    });
  }

  /** What the kernel can do. Probed once; again with `refresh`. */
  features(refresh = false): Promise<Features> {
    if (this.#features === undefined || refresh) {
      const probe = probeFeatures(this.#kernel, this.#ref.family);
      probe.catch(() => {
        if (this.#features === probe) this.#features = undefined;
      });
      this.#features = probe;
    }
    return this.#features;
  }

  /** What is wanted (without insertions), as text that `nft -f` (>= 1.0.6) loads in place of the table. */
  render(): string {
    return renderTable({
      ...this.#ref,
      ...(this.#options.comment === undefined ? {} : { comment: this.#options.comment }),
      sets: [...this.#wanted.sets.values()].map((record) => record.elements),
      chains: [...this.#wanted.chains.values()].map((chain) => chain.spec),
      verdicts: this.#wanted.verdicts,
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

  #serialised<T>(action: () => Promise<T>): Promise<T> {
    const run = this.#queue.then(() => {
      if (this.#closed) throw new TableError("closed", `${this.#options.name}: the table is closed`);
      return action();
    });
    this.#queue = run.catch(() => undefined);
    return run;
  }

  async #applyWithRetries(): Promise<ApplyResult> {
    let resynced: string | undefined;
    for (let retry = 0; ; retry++) {
      try {
        const stale = this.#stale;
        const generation = stale === undefined ? undefined : await this.#read();
        resynced ??= stale;
        const expected = retry < MAX_RETRIES ? generation : undefined;
        const result = await this.#applyOnce(expected);
        this.#checks.done(result.transactions > 0, resynced !== undefined);
        return { ...result, ...this.#whatRemains(), ...(resynced === undefined ? {} : { resynced }) };
      } catch (error) {
        const failure = error instanceof CommitFailure ? error.kernelError : error;
        if (!this.#mayRetry(failure, resynced !== undefined) || retry >= MAX_RETRIES) {
          throw toTableError(this.#options.name, failure, error instanceof CommitFailure ? error.faulty : []);
        }
      }
    }
  }

  /** Notes that the kernel is to be read again where the error says so; whether it is worth another try now. */
  #mayRetry(error: unknown, wasRead: boolean): boolean {
    if (!(error instanceof KernelError)) return false;
    if (error.code === "stale" || error.code === "unknown-outcome") {
      this.invalidate(
        error.code === "stale" ? "the ruleset changed meanwhile" : "the outcome of a transaction is not known",
      );
      this.#insertions.invalidate();
      return true;
    }
    const drifted =
      error.code === "not-found" || (error.code === "refused" && error.faults.some((fault) => DRIFT.has(fault.errno)));
    if (!drifted || wasRead) return false;
    this.invalidate("the kernel holds something else than was thought");
    this.#insertions.invalidate();
    return true;
  }

  #whatRemains(): { applyAgainMs?: number; deferred?: string[] } {
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
    return {
      ...(next === undefined ? {} : { applyAgainMs: Math.max(0, Math.ceil(next - this.#clock.now())) }),
      ...(deferred.length === 0 ? {} : { deferred }),
    };
  }

  /** Reads everything of ours; returns the generation that it belongs to, when that is sure. */
  async #read(): Promise<number | undefined> {
    const { sets, chains } = this.#wanted;
    const dump = await dumpTable(this.#kernel, this.#ref, {
      wantsChain: (chain) => chains.has(chain),
      wantsElements: (info) => {
        const spec = sets.get(info.set)?.elements.spec;
        return spec !== undefined && spec.dynamic !== true && serves(info, spec);
      },
    });
    this.#state = dump.state;
    for (const [name, record] of [...sets, ...this.#wanted.retired]) {
      await this.#loadElements(name, record, dump.elements.get(name));
      record.known = !dump.state.sets.has(name) || dump.elements.has(name);
      if (!record.known) this.#wanted.watched.add(name);
    }
    this.#wanted.markAll(dump.state.chains.keys(), dump.state.sets.keys());
    this.#insertions.invalidate();
    this.#stale = undefined;
    return dump.generation;
  }

  /** Sets that were declared since the kernel was read. */
  async #readUnknownSets(): Promise<void> {
    for (const name of [...this.#wanted.watched]) {
      const record = this.#wanted.sets.get(name);
      if (record === undefined || record.known) continue;
      const kernel = this.#state.sets.get(name);
      const { spec } = record.elements;
      const readable = kernel !== undefined && spec.dynamic !== true && serves(kernel, spec);
      await this.#loadElements(name, record, readable ? await this.#kernel.elements(this.#ref, kernel) : undefined);
      record.known = true;
    }
  }

  async #loadElements(name: string, { elements }: SetRecord, batch: ElementBatch | undefined): Promise<void> {
    if (!(await elements.load(batch))) this.#state.unusable.add(name);
  }

  /** Reads the rules of changed chains whose handles are not known. */
  async #readHandles(): Promise<void> {
    for (const name of [...this.#wanted.dirtyChains]) {
      const kernel = this.#state.chains.get(name);
      const wanted = this.#wanted.chains.get(name);
      if (kernel !== undefined && wanted !== undefined && needsHandles(kernel, wanted))
        kernel.rules = await dumpRules(this.#kernel, this.#ref, name);
    }
  }

  async #applyOnce(expectGeneration: number | undefined): Promise<ApplyResult> {
    const open = await this.#insertions.read(this.#kernel);
    await this.#readUnknownSets();
    await this.#readHandles();
    const first = this.#options.targetsFirst === true ? await this.#writeTargetsFirst(expectGeneration) : undefined;
    const captured = capture(this.#wanted, this.#state, this.#clock.now(), {
      applies: this.#options.lateChains ?? (() => false),
      delayMs: this.#options.tailDelayMs ?? DEFAULT_TAIL_DELAY_MS,
    });
    const changes = new Map<string, PackedChange>();
    for (const { name, taken } of captured.sets) if (taken !== undefined) changes.set(name, await taken.pack());
    const phases = new Phases();
    this.#insertions.plan(open, phases);
    const plan = buildPlan(
      {
        ref: this.#ref,
        comment: this.#options.comment,
        state: this.#state,
        chains: captured.chains,
        sets: captured.sets.map(({ taken: _, ...set }) => {
          const change = changes.get(set.name);
          return change === undefined ? set : { ...set, change };
        }),
      },
      phases,
    );
    // Each transaction counts the generation up by one.
    const expected = first === undefined || expectGeneration === undefined ? expectGeneration : expectGeneration + 1;
    const commit = await this.#commitOrAbort(plan.ops, captured, changes, expected);
    plan.settle();
    for (const name of captured.retired) this.#wanted.retired.delete(name);
    const due = this.#clock.now() + (this.#options.tailDelayMs ?? DEFAULT_TAIL_DELAY_MS);
    for (const { name, taken } of captured.sets) {
      const change = changes.get(name);
      if (change !== undefined) await taken?.settle(change, due);
    }
    const result = toResult(commit, plan.counts);
    return first === undefined ? result : sumOf(first, result);
  }

  /** See targets-first.ts. What the kernel refuses here it refuses in the transaction that follows, which says so. */
  async #writeTargetsFirst(expectGeneration: number | undefined): Promise<ApplyResult | undefined> {
    const plan = planTargetsFirst(this.#ref, this.#wanted, this.#state);
    if (plan === undefined) return undefined;
    try {
      const commit = await this.#commit(plan.ops, expectGeneration);
      plan.settle();
      return toResult(commit, plan.counts);
    } catch (error) {
      if (error instanceof CommitFailure && error.kernelError.code === "refused") return undefined;
      throw error;
    }
  }

  async #commitOrAbort(
    ops: readonly PlannedOp[],
    captured: Captured,
    changes: ReadonlyMap<string, PackedChange>,
    expectGeneration: number | undefined,
  ): Promise<CommitResult | undefined> {
    try {
      return await this.#commit(ops, expectGeneration);
    } catch (error) {
      this.#wanted.restore(captured.dirty);
      for (const { name, taken } of captured.sets) {
        const change = changes.get(name);
        if (change !== undefined) await taken?.abort(change);
      }
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
    const tables = await this.#kernel.tables(this.#ref.family);
    const open = (await this.#insertions.read(this.#kernel)).map((target): OpenTarget => ({
      ...target,
      insert: [],
      append: [],
    }));
    const phases = new Phases();
    this.#insertions.plan(open, phases);
    if (tables.some((table) => table.table === this.#ref.table)) {
      phases.removeChains.push({ op: { op: "delete", kind: "table", ...this.#ref }, origin: { kind: "table" } });
      phases.counts.table.delete++;
    }
    return toResult(await this.#commit(phases.inOrder(), undefined), phases.counts);
  }
}

/** Of two transactions of one apply. */
function sumOf(a: ApplyResult, b: ApplyResult): ApplyResult {
  const operations = noCounts();
  for (const [kind, counts] of Object.entries(operations) as [keyof Counts, { add: number; delete: number }][]) {
    counts.add = a.operations[kind].add + b.operations[kind].add;
    counts.delete = a.operations[kind].delete + b.operations[kind].delete;
  }
  return {
    transactions: a.transactions + b.transactions,
    operations,
    total: a.total + b.total,
    bytes: a.bytes + b.bytes,
    kernelNs: a.kernelNs + b.kernelNs,
    encodeNs: a.encodeNs + b.encodeNs,
  };
}

function toResult(commit: CommitResult | undefined, counts: Counts): ApplyResult {
  const operations = commit === undefined ? noCounts() : counts;
  const total = Object.values(operations).reduce((sum, { add, delete: deleted }) => sum + add + deleted, 0);
  return {
    transactions: commit === undefined ? 0 : 1,
    operations,
    total,
    bytes: commit?.bytes ?? 0,
    kernelNs: commit?.kernelNs ?? 0,
    encodeNs: commit?.encodeNs ?? 0,
  };
}

/** The kernel's faults in terms of our objects. */
function faultyObjects(error: KernelError, ops: readonly PlannedOp[]): FaultyObject[] {
  return error.faults.flatMap((fault) => {
    const planned = ops[fault.op];
    if (planned === undefined) return [];
    const { op, origin } = planned;
    const batch = op.kind === "elements" && op.op !== "flush" ? op.elements : undefined;
    const stride = batch === undefined ? 0 : batch.bytes.length / batch.count;
    const key =
      batch === undefined || fault.element === undefined || origin.kind !== "element"
        ? undefined
        : batch.bytes.slice(fault.element * stride, fault.element * stride + batch.keyLen);
    return [
      {
        ...origin,
        ...(key === undefined ? {} : { key }),
        errno: fault.errno,
        ...(fault.text === undefined ? {} : { text: fault.text }),
      },
    ];
  });
}
