/**
 * Compares the desired and the observed elements of one set or map, and packs the differences.
 *
 *     put / delete                                   take ──► pack ──► commit
 *            │                                        ▲                  │
 *            ▼                                        │                  ▼
 *     ┌────────────┐   differs?   ┌───────────┐       │           settle (or abort)
 *     │  desired   │ ───────────► │ dirty rows│ ──────┘                  │
 *     └────────────┘              └───────────┘ ◄── on failure ──────────┤
 *     ┌────────────┐                                                     │
 *     │   kernel   │ ◄────────────── what was sent, on success ──────────┘
 *     └────────────┘ ◄── load (a dump)
 *
 * Both sides live in one row (rows.ts). So a change costs one look-up, and the cost of a transaction depends on the changes, not on the size of
 * the set. packing.ts takes dirty rows through a transaction, and counted-rows.ts keeps the counters of elements.
 */
import { counted } from "../../base/counted.js";
import { inPieces, type Pieces, runAtOnce, runInSlices } from "../../base/time-slice.js";
import type { ElementBatch } from "../kernel/kernel.js";
import type { SetSpec } from "../language/set-spec.js";
import type { ElementSet, KeptSpec, SetFate } from "./element-set.js";
import { kindOfMap } from "../language/object-kinds.js";
import { catchAllIn } from "../language/intervals.js";
import { hasTargets, rowShape } from "../language/schema.js";
import { columnWord, eachObjectRecord, eachRecord, type RecordVisitor } from "./batch-writer.js";
import { Comments, commentsIn } from "./comments.js";
import { readU64 } from "../bytes/bytes.js";
import { CountedRows, type CounterDump } from "./counted-rows.js";
import { Expiries } from "./expiries.js";
import { DATA, USES } from "../bytes/packed-map.js";
import { Packing } from "./packing.js";
import { DEFERRED, DESIRED, Rows } from "./rows.js";
import type { VerdictRegistry } from "./verdict-registry.js";

export interface ElementDrift {
  readonly gone: number;
  readonly added: number;
  readonly changed: number;
}

interface Loaded {
  /** False if the dump has elements that this set cannot represent (overlapping ranges). */
  readonly complete: boolean;
  readonly drift: ElementDrift;
}

/** Tells whether a read or a write is using the desired state, which must not change until it ends. */
export interface ChangeGate {
  readonly isHeld: boolean;
  /** Throws TableError "busy" if it is held. */
  checkChangeable(): void;
  /** Holds it while the call waits and runs. */
  holding<T>(call: () => Promise<T>): Promise<T>;
}

const OPEN: ChangeGate = { isHeld: false, checkChangeable: () => undefined, holding: (call) => call() };

interface TrackerOptions {
  /** For maps of verdicts or objects. */
  readonly verdicts?: VerdictRegistry;
  readonly onDirty?: () => void;
  /** The monotonic clock for timeouts, in ms. Default: performance.now. */
  readonly now?: () => number;
  /** Default: open. */
  readonly gate?: ChangeGate;
}

/** Keys copied between two pauses: each may first be made from text. */
const COPIED = 64;

/** Whether the Table fills the set, and its elements have timeouts. */
export function tracksEnds({ timeoutMs, dynamic }: SetSpec): boolean {
  return timeoutMs !== undefined && dynamic !== true;
}

/** The elements of one set. Only `Table` calls the methods that `ElementSet` does not have. */
export class TrackedElements implements ElementSet {
  readonly keyLen: number;
  readonly dataLen: number;
  /** Whether the elements of the kernel's set are known. */
  known = false;
  /** The program has said which elements it desires before it knew the kernel's, so the first read keeps none. */
  #keepsNone = false;
  fate: SetFate = {};
  /** Number of elements that it is going to have, if that is known. */
  planned = 0;
  /** Its changes in transactions. */
  readonly packing: Packing;
  readonly #verdicts: VerdictRegistry | undefined;
  protected readonly gate: ChangeGate;
  readonly #rows: Rows;
  /** Scratch buffers: the key to look up, and the data to put, as words. */
  readonly #key: Int32Array;
  readonly #keyBytes: Uint8Array;
  readonly #data: Int32Array;
  readonly #dataBytes: Uint8Array;
  readonly #counted: CountedRows | undefined;
  readonly #expiries: Expiries | undefined;
  readonly #comments: Comments;

  constructor(
    public spec: KeptSpec,
    { verdicts, onDirty, now = () => performance.now(), gate = OPEN }: TrackerOptions = {},
  ) {
    const shape = rowShape(spec);
    this.keyLen = shape.keyLen;
    this.dataLen = shape.dataLen;
    const timed = tracksEnds(spec);
    const onFree = (row: number): void => {
      this.#counted?.freed(row);
      this.#expiries?.freed(row);
      this.#comments.freed(row);
    };
    this.#rows = new Rows(shape, onDirty, onFree);
    this.#comments = new Comments(this.#rows);
    this.gate = gate;
    this.#verdicts = hasTargets(spec) ? verdicts : undefined;
    this.#counted = spec.counters && new CountedRows(this.#rows, this);
    this.#expiries = timed ? this.#makeExpiries(now) : undefined;
    this.packing = new Packing(this.#rows, this, this.#verdicts, this.#counted, this.#expiries, this.#comments);
    this.#key = new Int32Array(this.#rows.keyWords);
    this.#keyBytes = new Uint8Array(this.#key.buffer);
    this.#data = new Int32Array(this.#rows.dataWords);
    this.#dataBytes = new Uint8Array(this.#data.buffer);
  }

  #makeExpiries(now: () => number): Expiries {
    return new Expiries(this.#rows, () => this.spec.timeoutMs ?? 0, now, {
      over: (row) => this.#end(row),
      gone: (row) => {
        this.#rows.dropKernel(row);
        // The next transaction frees it, or writes it if it is desired again.
        this.#rows.markDirty(row);
      },
    });
  }

  /** Ends expired elements, unless a read or a write is using the rows. */
  #sweep(): void {
    if (!this.gate.isHeld) this.#expiries?.sweep();
  }

  #end(row: number): void {
    const rows = this.#rows;
    this.#verdicts?.release(rows.words(row)[rows.at(row) + DATA]);
    this.#comments.markUndesired(row);
    if (rows.isInKernel(rows.of(row))) rows.expire(row);
    else rows.markUndesired(row, 0);
  }

  get size(): number {
    this.#sweep();
    return this.#rows.desiredSize;
  }
  get kernelSize(): number {
    return this.#rows.kernelSize;
  }
  /** Number of elements that the kernel counts: all but the catch-all. */
  get kernelCount(): number {
    const row = this.#rows.unkeyed;
    return this.kernelSize - (row >= 0 && this.#rows.isInKernel(this.#rows.of(row)) ? 1 : 0);
  }
  get pendingAdds(): number {
    return this.#rows.pendingAdds;
  }
  get dirty(): boolean {
    return this.#rows.dirty;
  }

  put(key: Uint8Array, data?: Uint8Array, timeoutMs?: number, comment?: string): boolean {
    this.gate.checkChangeable();
    this.#sweep();
    return this.#putCommented(key, data, timeoutMs, comment);
  }

  replace(keys: Iterable<Uint8Array>, timeoutMs?: number, comment?: string): Promise<void> {
    return this.gate.holding(() => runInSlices(this.replacing(keys, timeoutMs, comment)));
  }

  replaceNets(nets: readonly string[]): void {
    this.gate.checkChangeable();
    runAtOnce(this.replacing(this.netKeys(nets)));
  }

  /** Returns the keys of networks. */
  protected netKeys(_nets: readonly string[]): Uint8Array[] {
    throw new TypeError(`set ${this.spec.set} is not an interval set`);
  }

  /** Desires exactly these keys. Throws before it changes anything. */
  protected *replacing(given: Iterable<Uint8Array>, timeoutMs?: number, comment?: string): Pieces<void> {
    const keys = yield* this.copied(given);
    this.#keepsNone ||= !this.known;
    this.#expiries?.sweep();
    const rows = this.#rows;
    const kept = new Uint8Array(rows.end + keys.length);
    yield* inPieces(keys.length, (from, to) => {
      for (const key of keys.slice(from, to)) {
        this.#putCommented(key, undefined, timeoutMs, comment);
        kept[this.#desiredRow(key)] = 1;
      }
    });
    yield* inPieces(rows.end, (from, to) => {
      for (let row = from; row < to; row++)
        if ((rows.of(row) & DESIRED) !== 0 && kept[row] === 0) this.#markUndesired(row, false);
    });
  }

  /** Copies keys, and checks their lengths. */
  protected *copied(keys: Iterable<Uint8Array>): Pieces<Uint8Array[]> {
    const copies: Uint8Array[] = [];
    for (const key of keys) {
      if (key.length > 0) this.#readKey(key);
      if (copies.push(key.slice()) % COPIED === 0) yield;
    }
    return copies;
  }

  #putCommented(key: Uint8Array, data?: Uint8Array, timeoutMs?: number, comment?: string): boolean {
    const changed = this.#putElement(key, data, timeoutMs);
    if (comment === undefined) return changed;
    const row = this.#desiredRow(key);
    if (!this.#comments.put(row, comment)) return changed;
    this.#rows.markDirty(row);
    return true;
  }

  comment(key: Uint8Array): string | undefined {
    const row = this.#desiredRow(key);
    return row < 0 ? undefined : this.#comments.of(row);
  }

  #putElement(key: Uint8Array, data: Uint8Array | undefined, timeoutMs: number | undefined): boolean {
    const expiries = this.#expiries;
    if (expiries === undefined && timeoutMs !== undefined)
      throw new TypeError(`set ${this.spec.set}: its elements have no timeouts`);
    const row = this.#rowFor(key, data);
    const isNew = this.#put(row, this.#data, 0);
    if (expiries?.put(row, timeoutMs, !isNew) !== true) return isNew;
    this.#rows.markDirty(row);
    return true;
  }

  /** Returns the desired timeout of the element in a set with timeouts, and the time left, ms. 0 if it has none. */
  times(key: Uint8Array): readonly [timeoutMs: number, leftMs: number] {
    const row = this.#desiredRow(key);
    return row < 0 ? [0, 0] : (this.#expiries?.times(row) ?? [0, 0]);
  }

  retain(key: Uint8Array, data?: Uint8Array): boolean {
    this.gate.checkChangeable();
    const row = this.#rowFor(key, data);
    const isNew = this.#put(row, this.#data, 0);
    this.#rows.words(row)[this.#rows.at(row) + USES]++;
    return isNew;
  }

  plan(more: number): void {
    this.planned = Math.max(this.planned, this.#rows.desiredSize + more);
  }

  retainList(key: Uint8Array, base: number, data: Int32Array, count: number): number {
    return this.#putList(key, base, data, count, 1);
  }

  replaceList(key: Uint8Array, base: number, data: Int32Array, count: number): number {
    return this.#putList(key, base, data, count, 0);
  }

  /** Desires each element of the list, and adds `uses` to its use count. Returns how many of them are new or got other data. */
  #putList(key: Uint8Array, base: number, data: Int32Array, count: number, uses: 0 | 1): number {
    if (this.spec.dynamic === true || this.#verdicts !== undefined) throw this.#noList();
    this.gate.checkChangeable();
    const rows = this.#rows;
    this.#readHead(key);
    let changed = 0;
    for (let i = 0, row = -1; i < count; i++) {
      const last = base + i;
      const isNext = i > 0 && (last & rows.groupMask) !== 0;
      row = isNext ? rows.findOrInsertNext(row) : rows.findOrInsert(this.#keyAt(last));
      if (this.#put(row, data, i * rows.dataWords)) changed++;
      rows.words(row)[rows.at(row) + USES] += uses;
    }
    return changed;
  }

  releaseList(key: Uint8Array, base: number, count: number, deferred: boolean): void {
    this.gate.checkChangeable();
    this.#readHead(key);
    for (let i = 0; i < count; i++) {
      const row = this.#rows.find(this.#keyAt(base + i));
      if (row >= 0 && (this.#rows.of(row) & DESIRED) !== 0) this.#release(row, deferred);
    }
  }

  kernelHoldsList(key: Uint8Array, base: number, data: Int32Array, count: number): boolean {
    const rows = this.#rows;
    this.#readHead(key);
    for (let i = 0, row = -1; i < count; i++) {
      const last = base + i;
      row = i > 0 && (last & rows.groupMask) !== 0 ? rows.findNext(row) : rows.find(this.#keyAt(last));
      if (row < 0 || !rows.isInKernel(rows.of(row)) || !rows.kernelHolds(row, data, i * rows.dataWords)) return false;
    }
    return true;
  }

  delete(key: Uint8Array, deferred = false): boolean {
    this.gate.checkChangeable();
    this.#sweep();
    const row = this.#desiredRow(key);
    if (row >= 0) this.#markUndesired(row, deferred);
    return row >= 0;
  }

  release(key: Uint8Array, deferred = false): void {
    this.gate.checkChangeable();
    const row = this.#desiredRow(key);
    if (row >= 0) this.#release(row, deferred);
  }

  has(key: Uint8Array): boolean {
    this.#sweep();
    return this.#desiredRow(key) >= 0;
  }

  get(key: Uint8Array): Uint8Array | undefined {
    this.#sweep();
    const row = this.#desiredRow(key);
    return row < 0 ? undefined : this.#rows.dataBytes(row);
  }

  count(key: Uint8Array): number {
    return this.counted(key).packets;
  }

  counted(key: Uint8Array): { readonly packets: number; readonly bytes: number } {
    return this.#counted?.counted(this.#find(key)) ?? { packets: 0, bytes: 0 };
  }

  countBefore(key: Uint8Array): number {
    return this.#counted?.before(this.#find(key)) ?? 0;
  }

  forEachGrown(visit: (key: Uint8Array) => void): void {
    this.#counted?.forEachGrown((row) => visit(this.#rows.keyBytes(row)));
  }

  /** Reads the counters of the kernel's elements. May run at the same time as any other call. */
  async readCounters(dump: CounterDump): Promise<void> {
    await this.#counted?.read(dump);
  }

  kernelValue(key: Uint8Array): Uint8Array | undefined {
    if (this.kernelSize === 0) return undefined;
    const row = this.#find(key);
    if (row < 0 || !this.#rows.isInKernel(this.#rows.of(row))) return undefined;
    return this.#rows.kernelBytes(row);
  }

  nets(): string[] {
    throw new TypeError(`set ${this.spec.set} is not an interval set`);
  }

  desireObserved(): void {
    this.gate.checkChangeable();
    this.#keep();
  }

  /** Whether the kernel can hold the key together with the desired ones. */
  protected fits(_key: Uint8Array): boolean {
    return true;
  }

  #keep(): void {
    const rows = this.#rows;
    const found: number[] = [];
    for (let row = 0; row < rows.end; row++)
      if (this.#isUndesired(row) && this.fits(rows.keyBytes(row))) found.push(row);
    for (const row of found) {
      this.#put(row, rows.kernelWords(row), rows.kernelAt(row));
      this.#expiries?.adopt(row);
      this.#comments.adopt(row);
    }
  }

  clear(): void {
    this.gate.checkChangeable();
    this.#keepsNone ||= !this.known;
    for (let row = 0; row < this.#rows.end; row++)
      if ((this.#rows.of(row) & DESIRED) !== 0) this.#markUndesired(row, false);
  }

  forEach(visit: (key: Uint8Array, data: Uint8Array) => void): void {
    this.#sweep();
    for (let row = 0, { end } = this.#rows; row < end; row++) {
      if ((this.#rows.of(row) & DESIRED) !== 0) visit(this.#rows.keyBytes(row), this.#rows.dataBytes(row));
    }
  }

  forEachUndesired(visit: (key: Uint8Array) => void): void {
    if (this.#rows.kernelSize === 0) return;
    for (let row = 0, { end } = this.#rows; row < end; row++)
      if (this.#isUndesired(row)) visit(this.#rows.keyBytes(row));
  }

  #isUndesired(row: number): boolean {
    const state = this.#rows.of(row);
    return (state & DESIRED) === 0 && this.#rows.isInKernel(state);
  }

  /** Moves up to `most` deferred deletions whose grace period is over to the next transaction. Returns their number. */
  endGrace(now: number, most = Infinity): number {
    return this.#rows.endGrace(now, most);
  }

  /** Chains and objects that elements in their grace period lead to. */
  deferredTargets(): Set<string> {
    const names = new Set<string>();
    this.#rows.forEachDeferred((row) => names.add(this.#kernelTarget(row)));
    return names;
  }

  undeferTargets(names: ReadonlySet<string>): void {
    this.#rows.forEachDeferred((row) => {
      if (names.has(this.#kernelTarget(row))) this.#rows.undefer(row);
    });
  }

  /** Whether the kernel holds an element that leads to one of the chains or objects. */
  leadsTo(names: ReadonlySet<string>): boolean {
    const rows = this.#rows;
    for (let row = 0; row < rows.end; row++) {
      if (rows.isInKernel(rows.of(row)) && names.has(this.#kernelTarget(row))) return true;
    }
    return false;
  }

  /** The name of the chain or object that the kernel's element leads to. "" if there is none. */
  #kernelTarget(row: number): string {
    return this.#verdicts?.nameOf(this.#rows.kernelWords(row)[this.#rows.kernelAt(row)]) ?? "";
  }

  get nextDue(): number | undefined {
    return this.#rows.nextDue;
  }

  /**
   * Replaces the observed state by a dump. Without a dump, the kernel has no such set. If nothing was known before, elements that are not desired
   * come from an earlier run.
   */
  async load(batch?: ElementBatch): Promise<Loaded> {
    if (batch === undefined) {
      const drift = { gone: this.#rows.kernelSize, added: 0, changed: 0 };
      this.#rows.loseKernel();
      this.#comments.forgetKernel();
      return { complete: true, drift };
    }
    this.#forgetOver();
    const { deferUndesired = false } = this.spec;
    const first = !this.known;
    // Then no row can be missing, and no row has to be checked again.
    const fresh = first && typeof deferUndesired === "boolean" && this.#rows.kernelSize === 0;
    if (this.#rows.end === 0) this.#rows.reserve(batch.count);
    this.#rows.forgetKernel(!fresh);
    const drift = { gone: 0, added: 0, changed: 0 };
    const counterAt = this.#counted === undefined ? -1 : columnWord(batch, "counter");
    const timeAt = this.#expiries === undefined ? -1 : columnWord(batch, "timeout");
    const leftAt = this.#expiries === undefined ? -1 : columnWord(batch, "expiration");
    const catchAll = catchAllIn(batch);
    const comments = commentsIn(batch);
    const hasComments = comments.size > 0 || this.#comments.any;
    await this.#eachRecord(batch, (words, at, data, dataAt, record) => {
      const row = record === catchAll ? this.#rows.insertUnkeyed() : this.#rows.findOrInsert(words, at);
      if (counterAt >= 0) this.#counted?.note(row, words, at + counterAt);
      const how = this.#rows.found(row, data, dataAt, fresh && deferUndesired);
      if (this.#expiries !== undefined) {
        const timeoutMs = timeAt < 0 ? 0 : readU64(words, at + timeAt);
        this.#expiries.found(row, leftAt < 0 ? 0 : readU64(words, at + leftAt), timeoutMs);
        if (this.#expiries.renewed(row)) this.#rows.markDirty(row);
      }
      const differs = hasComments && this.#comments.found(row, comments.get(record));
      if (hasComments && this.#comments.differs(row)) this.#rows.markDirty(row);
      if (how !== undefined) drift[how]++;
      else if (differs) drift.changed++;
    });
    if (fresh) this.#rows.markAll();
    else {
      const defers = typeof deferUndesired === "boolean" ? () => deferUndesired : deferUndesired;
      drift.gone = await this.#rows.finishLoad((row) => first && defers(this.#rows.keyBytes(row)));
    }
    if (first && this.spec.keep === true && !this.#keepsNone) this.#keep();
    return { complete: true, drift };
  }

  /** A dump without elements that the kernel has ended, or is about to end, is no drift. */
  #forgetOver(): void {
    if (this.#expiries === undefined) return;
    this.#expiries.sweep();
    for (const row of this.#expiries.overRows()) this.#rows.dropKernel(row);
  }

  #eachRecord(batch: ElementBatch, visit: RecordVisitor): Promise<void> {
    const kind = kindOfMap(this.spec);
    if (kind !== undefined)
      return eachObjectRecord(batch, (object) => this.#verdicts?.id({ kind, object }) ?? 0, visit);
    return eachRecord(batch, (verdict) => this.#verdicts?.id(verdict) ?? 0, visit);
  }

  /** Compares a dump with the observed state, which must not change meanwhile. */
  async compare(batch: ElementBatch): Promise<ElementDrift> {
    this.#sweep();
    const drift = { gone: 0, added: 0, changed: 0 };
    let found = 0;
    const comments = commentsIn(batch);
    const catchAll = catchAllIn(batch);
    await this.#eachRecord(batch, (words, at, data, dataAt, record) => {
      const row = record === catchAll ? this.#rows.unkeyed : this.#rows.find(words, at);
      // The kernel may still hold an expired element.
      if (row >= 0 && this.#expiries?.isOver(row) === true) return;
      if (row < 0 || !this.#rows.isInKernel(this.#rows.of(row))) drift.added++;
      else {
        found++;
        const same = this.#rows.kernelHolds(row, data, dataAt) && this.#comments.kernelHas(row, comments.get(record));
        if (!same) drift.changed++;
      }
    });
    return { ...drift, gone: this.#rows.kernelSize - this.#overInKernel() - found };
  }

  #overInKernel(): number {
    let rows = 0;
    for (const row of this.#expiries?.overRows() ?? []) if (this.#rows.isInKernel(this.#rows.of(row))) rows++;
    return rows;
  }

  /** Copies key and data. Returns the row of the key, and creates it if necessary. */
  #rowFor(key: Uint8Array, data: Uint8Array | undefined): number {
    if (this.spec.dynamic === true)
      throw new TypeError(`set ${this.spec.set} is dynamic: only packets add its elements`);
    const length = data?.length ?? 0;
    if (length !== this.dataLen)
      throw new RangeError(`set ${this.spec.set}: expected ${counted(this.dataLen, "byte")} of data, found ${length}`);
    const words = key.length === 0 ? undefined : this.#readKey(key);
    for (let i = 0; i < this.dataLen; i++) this.#dataBytes[i] = data?.[i] ?? 0;
    if (this.#verdicts !== undefined) this.#verdicts.get(this.#data[0]);
    return words === undefined ? this.#rows.insertUnkeyed() : this.#rows.findOrInsert(words);
  }

  #put(row: number, data: Int32Array, at: number): boolean {
    const rows = this.#rows;
    const isDesired = (rows.of(row) & DESIRED) !== 0;
    if (isDesired && rows.holds(row, data, at)) return false;
    if (this.#verdicts !== undefined) {
      this.#verdicts.retain(data[at]);
      if (isDesired) this.#verdicts.release(rows.words(row)[rows.at(row) + DATA]);
    }
    rows.desire(row, data, at);
    return true;
  }

  #release(row: number, deferred: boolean): void {
    if (--this.#rows.words(row)[this.#rows.at(row) + USES] <= 0) this.#markUndesired(row, deferred);
  }

  #markUndesired(row: number, deferred: boolean): void {
    this.#verdicts?.release(this.#rows.words(row)[this.#rows.at(row) + DATA]);
    this.#comments.markUndesired(row);
    this.#rows.markUndesired(row, deferred ? DEFERRED : 0);
  }

  #desiredRow(key: Uint8Array): number {
    const row = this.#find(key);
    return row >= 0 && (this.#rows.of(row) & DESIRED) !== 0 ? row : -1;
  }

  #find(key: Uint8Array): number {
    return key.length === 0 ? this.#rows.unkeyed : this.#rows.find(this.#readKey(key));
  }

  /** Copies a key. Returns its words. */
  #readKey(key: Uint8Array): Int32Array {
    const { keyLen } = this;
    if (key.length !== keyLen)
      throw new RangeError(`set ${this.spec.set}: expected a key of ${counted(keyLen, "byte")}, found ${key.length}`);
    for (let i = 0; i < keyLen; i++) this.#keyBytes[i] = key[i];
    return this.#key;
  }

  /** Copies the part that all keys of a list share: everything but the last word. */
  #readHead(key: Uint8Array): void {
    if (key.length !== this.keyLen - 4) throw this.#noList();
    for (let i = 0; i < key.length; i++) this.#keyBytes[i] = key[i];
  }

  /** The key that ends in `last`, in the list that `#readHead` read last. */
  #keyAt(last: number): Int32Array {
    this.#key[this.#rows.keyWords - 1] = last;
    return this.#key;
  }

  #noList(): RangeError {
    return new RangeError(`set ${this.spec.set}: lists need keys that end in a number, and no verdicts`);
  }
}
